"""docker/kubernetes: what is there is valid by Kubernetes' own schemas, and the image can be what Spark asks of one.

Nothing here was run on a cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from onlyonce.settings import ROOT

FOLDER = ROOT / "docker" / "kubernetes"
NEWEST = kubernetes_validate.latest_version()


def documents(name: str) -> list[Any]:
    """What a manifest holds."""
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.yaml")))
def test_each_manifest_is_valid_by_the_schema_of_its_kind(name: str) -> None:
    """To the last word: one that the schema does not have is an error."""
    for one in documents(name):
        kubernetes_validate.validate(one, NEWEST, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**one, "metadata": {**one["metadata"], "nmae": "x"}}, NEWEST, strict=True)


def test_what_a_manifest_names_is_there() -> None:
    """Accounts and roles of the bindings, and the accounts of the DAG file; an executor asks Kubernetes for nothing,
    and has no URL of the database."""
    access = documents("access.yaml")
    made = {(one["kind"], one["metadata"]["name"]) for one in access}
    for binding in (one for one in access if one["kind"] == "RoleBinding"):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in made
        assert all(("ServiceAccount", who["name"]) in made for who in binding["subjects"] if "namespace" not in who)
    bound = {who["name"] for one in access if one["kind"] == "RoleBinding" for who in one["subjects"]}
    example = (FOLDER / "dags.py").read_text()
    for account in ("onlyonce-driver", "onlyonce-executor"):
        assert f'"{account}"' in example
        assert ("ServiceAccount", account) in made
    assert "onlyonce-executor" not in bound
    [driver], [executor] = documents("driver.yaml"), documents("executor.yaml")
    secrets = [
        {of["secretRef"]["name"] for of in pod["spec"]["containers"][0]["envFrom"]} for pod in (driver, executor)
    ]
    assert secrets == [{"onlyonce-database", "onlyonce-declared", "onlyonce-store"}, {"onlyonce-store"}]
    assert driver["spec"]["restartPolicy"] == "Never"


SAYS = '#!/bin/sh\nfor one in "$0" "$@"; do printf "%s\\n" "${one##*/bin/}"; done\n'
IN_A_POD = {
    "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7", "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078", "SPARK_JAVA_OPT_1": "-Dname=a value of two",
    "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_CLASSPATH": "/opt/onlyonce/.venv/jars/*", "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3", "SPARK_EXECUTOR_CORES": "2", "SPARK_APPLICATION_ID": "spark-1", "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "onlyonce-exec-3", "SPARK_CONF_DIR": "/opt/spark/conf",
}  # fmt: skip


def entered(folder: Path, *words: str) -> list[str]:
    """What a container does with these words, line by line; java and spark-submit say how they were called."""
    (folder / "bin").mkdir()
    for name in ("java", "spark-submit"):
        (folder / "bin" / name).write_text(SAYS)
        (folder / "bin" / name).chmod(0o755)
    given = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "JAVA_HOME": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        **IN_A_POD,
    }
    return subprocess.run(
        [FOLDER / "entrypoint.sh", *words], env=given, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_the_image_is_a_driver(tmp_path: Path) -> None:
    """In client mode, as one that is in the cluster already."""
    told = entered(
        tmp_path, "driver", "--properties-file", "/opt/spark/conf/spark.properties", "local:///opt/stream.py", "a b"
    )
    assert told == [
        "spark-submit", "--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.7",
        "--properties-file", "/opt/spark/conf/spark.properties", "local:///opt/stream.py", "a b",
    ]  # fmt: skip


def test_the_image_is_an_executor(tmp_path: Path) -> None:
    """By the variables that Spark gives its pod; our jars and Spark's are on the class path."""
    told = entered(tmp_path, "executor")
    assert told[:5] == ["java", "-Dspark.driver.port=7078", "-Dname=a value of two", "-Xms512m", "-Xmx512m"]
    assert told[5] == "-cp"
    assert told[6].startswith("/opt/spark/conf:/opt/onlyonce/.venv/jars/*:")
    assert told[6].endswith("/pyspark/jars/*")
    assert told[7] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    pairs = dict(zip(told[8::2], told[9::2], strict=True))
    assert pairs == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078", "--executor-id": "3", "--cores": "2", "--app-id": "spark-1",
        "--hostname": "10.0.0.8", "--resourceProfileId": "0", "--podName": "onlyonce-exec-3",
    }  # fmt: skip


def test_any_other_word_is_a_command(tmp_path: Path) -> None:
    """As docker-compose.yml has them."""
    assert entered(tmp_path, "printf", "%s", "a b") == ["a b"]
