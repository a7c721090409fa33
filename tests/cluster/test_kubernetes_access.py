"""What Spark asks of Kubernetes is what docker/kubernetes/access.yaml permits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import yaml

from onlyonce.settings import ROOT
from tests.cluster.kubernetes import NAMESPACE, Api, Request, api

pytestmark = pytest.mark.spark

DRIVER = """
from pyspark import SparkContext

context = SparkContext()
open({pipe!r}).close()  # waits until the test opens it
context.stop()
"""


@pytest.fixture(name="api")
def _api() -> Iterator[Api]:
    """An API without a node, so that each pod waits."""
    with api() as server:
        yield server


def permitted(role: str) -> set[Request]:
    """What a Role of access.yaml permits."""
    parts = yaml.safe_load_all((ROOT / "docker" / "kubernetes" / "access.yaml").read_text())
    [rules] = [part["rules"] for part in parts if part["kind"] == "Role" and part["metadata"]["name"] == role]
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def submit(api: Api, mode: str, application: str, *conf: str) -> subprocess.CompletedProcess[str]:
    """Submit as the DAG's operator does."""
    settings = [f"spark.kubernetes.namespace={NAMESPACE}", "spark.kubernetes.container.image=none", *conf]
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", api.url, "--deploy-mode", mode]
    for setting in settings:
        command += ["--conf", setting]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    return subprocess.run([*command, application], env=environment, capture_output=True, text=True)


def test_spark_submit_asks_for_what_its_role_permits(api: Api) -> None:
    """In cluster mode.

    What it makes is among it: a driver's pod, its service, its configuration and a network policy.
    """
    done = submit(api, "cluster", "local:///none.py", "spark.kubernetes.submission.waitAppCompletion=false")

    assert done.returncode == 0, done.stderr[-3000:]
    assert {(group, resource) for group, resource, _ in api.asked} == {
        ("", "pods"), ("", "services"), ("", "configmaps"), ("networking.k8s.io", "networkpolicies"),
    }  # fmt: skip
    assert api.asked - permitted("onlyonce-submit") == set()


@pytest.mark.parametrize("kind", ["pods", "services", "configmaps", "networkpolicies"])
def test_submit_that_fails_leaves_nothing(api: Api, kind: str) -> None:
    """Spark deletes the driver's pod, which owns the rest."""
    api.refuses = kind
    done = submit(api, "cluster", "local:///none.py", "spark.kubernetes.submission.waitAppCompletion=false")

    assert done.returncode != 0
    assert api.left == [], f"{api.made}\n{done.stderr[-3000:]}"
    assert api.asked - permitted("onlyonce-submit") == set()


@pytest.mark.whole
def test_a_driver_asks_for_what_its_role_permits(api: Api, tmp_path: Path) -> None:
    """From its start to its end: it makes executors, follows them, and removes them."""
    application, pipe = tmp_path / "driver.py", tmp_path / "pipe"
    os.mkfifo(pipe)
    application.write_text(DRIVER.format(pipe=str(pipe)))

    def end() -> None:
        api.made_pod.wait()
        pipe.write_text("")

    threading.Thread(target=end, daemon=True).start()
    done = submit(
        api,
        "client",
        str(application),
        "spark.driver.host=127.0.0.1",
        "spark.ui.enabled=false",
        "spark.executor.instances=1",
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert ("", "pods", "create") in api.asked
    assert api.asked - permitted("onlyonce-driver") == set()
