"""A program that has taken over a pod."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import kubernetes_validate
import pytest

from tests.compose.test_kubernetes import NEWEST, documents
from tests.security.statements import states

SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{NEWEST}-local"


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


@states(
    "They reach names' servers, each other, and the ports of the database, of stores over TLS and of Kubernetes, "
    "but no metadata service of a cloud."
)
def test_a_pod_reaches_no_other_port() -> None:
    """Nor, by any port, the addresses at which clouds give out the account of the machine."""
    [policy] = documents("network.yaml")
    spec = policy["spec"]
    each_other, names, outside = spec["egress"]
    blocks = [
        (ip_network(to["ipBlock"]["cidr"]), [ip_network(out) for out in to["ipBlock"]["except"]])
        for to in outside["to"]
    ]

    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [who["podSelector"] for who in each_other["to"]] == [spec["podSelector"]]
    assert [(port["port"], port["protocol"]) for port in names["ports"]] == [(53, "UDP"), (53, "TCP")]
    assert all("namespaceSelector" in to for to in names["to"])
    assert [(port["port"], port["protocol"]) for port in outside["ports"]] == [
        (5432, "TCP"),
        (443, "TCP"),
        (6443, "TCP"),
    ]
    for metadata in map(
        ip_address, ("169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23")
    ):
        assert not any(
            metadata in block and not any(metadata in out for out in excepted) for block, excepted in blocks
        ), metadata


ALLOWED = {"onlyonce-database", "onlyonce-declared", "onlyonce-store"}
DEFINITIONS = json.loads((SCHEMAS / "_definitions.json").read_text())
DEFINITIONS = DEFINITIONS.get("definitions") or DEFINITIONS["$defs"]


def names_of_secrets(kind: str, at: str = "") -> Iterator[str]:
    """Yield each place below a kind of Kubernetes that names a Secret, by Kubernetes' own schema."""
    for name, field in DEFINITIONS[kind].get("properties", {}).items():
        place, listed = f"{at}.{name}".lstrip("."), field.get("items", {})
        below = (field.get("$ref") or listed.get("$ref") or "").rpartition("/")[2]
        if "secret" in (name + below).lower():
            yield place
        elif below and not below.startswith("io.k8s.apimachinery"):
            yield from names_of_secrets(below, place)


@states(
    "With `secrets.yaml` a pod that a driver or Airflow makes sees only onlyonce's three Secrets, and has no "
    "other account."
)
def test_a_pod_sees_no_other_secret() -> None:
    """Each way in which a pod of Kubernetes can name a Secret is in the policy, and each kind of volume that can is
    left out."""
    policy, binding = documents("secrets.yaml")
    spec = policy["spec"]
    rules = [" ".join(one["expression"].split()) for one in spec["validations"]]
    volumes = next(rule for rule in rules if "spec.?volumes" in rule)
    kinds = set(re.findall(r"has\(volume\.(\w+)\)", volumes))
    pod = set(names_of_secrets("io.k8s.api.core.v1.PodSpec"))
    containers = ("containers", "initContainers", "ephemeralContainers")

    assert {place for place in pod if not place.startswith("volumes.")} == {
        "imagePullSecrets",  # of the node; no container sees them
        *(f"{of}.{place}" for of in containers for place in ("env.valueFrom.secretKeyRef", "envFrom.secretRef")),
    }
    assert {
        place
        for place in pod
        if place.split(".")[1:2] and place.split(".")[0] == "volumes" and place.split(".")[1] in kinds
    } == {"volumes.projected.sources.secret"}
    assert "!has(source.secret)" in volumes
    assert any("secretRef.name in variables.allowed" in rule for rule in rules)
    assert any("secretKeyRef.name in variables.allowed" in rule for rule in rules)
    named = {one["name"]: one["expression"] for one in spec["variables"]}
    assert set(json.loads(named["allowed"])) == ALLOWED
    assert named["containers"] == "object.spec.containers + object.spec.?initContainers.orValue([])"
    assert spec["failurePolicy"] == "Fail"
    assert (binding["spec"]["policyName"], binding["spec"]["validationActions"]) == (
        policy["metadata"]["name"],
        ["Deny"],
    )


@states(
    "With `secrets.yaml` a pod that a driver or Airflow makes sees only onlyonce's three Secrets, and has no "
    "other account."
)
def test_the_policy_is_for_the_accounts_that_make_pods() -> None:
    """Those of `access.yaml`.

    None of them may add a container to a running pod, which is another resource; the pods of our templates name allowed
    Secrets only.
    """
    access = documents("access.yaml")
    roles = {one["metadata"]["name"]: one["rules"] for one in access if one["kind"] == "Role"}
    makers = {
        f"system:serviceaccount:{who.get('namespace', 'onlyonce')}:{who['name']}"
        for one in access if one["kind"] == "RoleBinding"
        if any("pods" in rule["resources"] and "create" in rule["verbs"] for rule in roles[one["roleRef"]["name"]])
        for who in one["subjects"]
    }  # fmt: skip
    [condition] = documents("secrets.yaml")[0]["spec"]["matchConditions"]

    assert set(re.findall(r'"([^"]+)"', condition["expression"])) == makers
    assert not any(
        {"secrets", "pods/exec", "pods/ephemeralcontainers", "*"} & {*rule["resources"]}
        for rules in roles.values()
        for rule in rules
    )
    for name in ("driver.yaml", "executor.yaml"):
        [pod] = documents(name)
        assert {of["secretRef"]["name"] for of in pod["spec"]["containers"][0]["envFrom"]} <= ALLOWED
