"""A program that has taken over a pod."""

from __future__ import annotations

import pytest

from tests.compose.test_kubernetes import documents
from tests.security.statements import states


@states("The pods run without root, without privileges and with a read-only root file system.")
@pytest.mark.parametrize("name", ["driver.yaml", "executor.yaml"])
def test_pods_have_no_rights(name: str) -> None:
    """Only /tmp can be written, which goes with the pod."""
    [pod] = documents(name)
    [container] = pod["spec"]["containers"]

    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]


@states("With `network.yaml` only drivers and executors reach each other's ports.")
def test_the_policy_names_the_pods_of_the_templates() -> None:
    """By a label that both templates have."""
    [policy] = documents("network.yaml")
    [rule] = policy["spec"]["ingress"]
    label = policy["spec"]["podSelector"]["matchLabels"]

    assert [who["podSelector"]["matchLabels"] for who in rule["from"]] == [label]
    for name in ("driver.yaml", "executor.yaml"):
        [pod] = documents(name)
        assert label.items() <= pod["metadata"]["labels"].items()
