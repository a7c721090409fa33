"""A driver and its executors as pods: Spark's own processes by docker/kubernetes, under an API that a test answers for.

No real control plane, no network of pods and no real container is tried here (tests/cluster/kubernetes.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import tests.dags.conftest  # noqa: F401 - gives Airflow a folder of its own

# isort: split
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from onlyonce import environment
from onlyonce.airflow import dags
from onlyonce.core.locations import location
from onlyonce.local import feed, processes
from onlyonce.tables import stores
from tests.cluster.kubernetes import NAMESPACE, Api, Node, api
from tests.cluster.stopped import stopped
from tests.dags.conftest import TaskInstance
from tests.support import reference, s3
from tests.support.platform import ROOT, Platform, free_port
from tests.support.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.whole, pytest.mark.timeout(900)]

TEMPLATES = ROOT / "docker" / "kubernetes"
PIPELINES = "tests.support.apart_reference"
PARAMS = {"mode": "once", "close": True, "bounded": False, "max_files": None, "dry_run": False}
LOST = "this run has lost all its executors"
GIVEN_UP = "Spark ended this run's application while it worked"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server of S3."""
    with s3.versitygw(tmp_path_factory.mktemp("kubernetes") / "s3") as server:
        yield server


@dataclass
class Namespace:
    """A namespace of a cluster, with its Secrets, and the pipeline `user_counts` whose data is in the store."""

    platform: Platform
    api: Api
    node: Node
    bucket: str
    files: list[Path]

    def drain(self, more: Mapping[str, str] | None = None, **variables: str) -> None:
        """What the task of the DAG does: it submits, and follows the driver's pod. `more`: settings of Spark."""
        of_driver = {
            "PYTHONPATH": str(ROOT), "ONLYONCE_HOME": str(self.node.folder / "home"), "ONLYONCE_DATA": f"{self.bucket}/lake",
            "STORE": self.bucket, "ONLYONCE_IN_DRIVER_BYTES": "0", "ONLYONCE_EXECUTOR_PATIENCE": "5",
        }  # fmt: skip
        mounted, token = "spark.kubernetes.authenticate.driver.mounted", self.node.folder / "token"
        token.write_text("none")
        conf = {
            "spark.kubernetes.container.image": "none", "spark.kubernetes.driver.master": self.api.url.removeprefix("k8s://"),
            "spark.kubernetes.driver.podTemplateFile": f"{TEMPLATES}/driver.yaml",
            "spark.kubernetes.executor.podTemplateFile": f"{TEMPLATES}/executor.yaml",
            f"{mounted}.oauthTokenFile": str(token), f"{mounted}.caCertFile": str(token),
            "spark.driver.port": str(free_port()), "spark.driver.blockManager.port": str(free_port()),
            "spark.driver.memory": "1g", "spark.executor.memory": "512m", "spark.executor.cores": "1",
            "spark.executor.instances": "2", "spark.ui.enabled": "false", "spark.executorEnv.PYTHONPATH": str(ROOT),
            **(more or {}),
        }  # fmt: skip
        spark = {"conn_id": "spark_kubernetes", "conf": conf, "env_vars": of_driver | variables}
        made = dags(PIPELINES, housekeeping=(), schedule=None, spark=spark)
        context = {"params": PARAMS, "run_id": "manual__1", "ti": TaskInstance("user_counts_stream")}
        made["user_counts_stream"].task_dict["run"].execute(context)

    @property
    def driver(self) -> str:
        """The name of the last driver's pod."""
        return next(name for name in reversed(self.node.processes) if name.endswith("-driver"))

    def stopped(self, point: str, beside: ThreadPoolExecutor, **more: str) -> Future[None]:
        """Drain until the driver is stopped at a fail-point, with its executors at work."""
        folder = self.platform.home / "failpoints"
        folder.mkdir()
        armed = {"ONLYONCE_FAILPOINT_DIR": str(folder), "ONLYONCE_FAILPOINTS": f"{point}:1:stop"}
        task = beside.submit(lambda: self.drain(more, **armed))
        processes.wait_until(lambda: self.platform.struck(point) > 0 or task.done(), 600, point)
        assert not task.done()
        assert self.api.pods("executor")
        return task

    def resume(self) -> None:
        """Let the driver go on."""
        pod = psutil.Process(self.node.processes[self.driver].pid)
        processes.wait_until(lambda: bool(stopped(pod)), 60, "the driver's stop")
        for process in stopped(pod):
            process.resume()


@pytest.fixture
def namespace(platform: Platform, store: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Namespace]:
    """With re-delivered input of `user_counts`. Airflow's worker knows the database by a Secret, as the pods do."""
    bucket, keys = store.bucket(), store.environment
    secrets = {
        "onlyonce-database": {"ONLYONCE_DATABASE_URL": platform.environment["ONLYONCE_DATABASE_URL"]},
        "onlyonce-store": keys,
    }
    platform.give(monkeypatch, **keys, ONLYONCE_DATA=f"{bucket}/lake", STORE=bucket)
    feed.feed_files("user_counts", tmp_path / "in", duplicates=0.1, records=1000, files=6)
    files = sorted((tmp_path / "in").glob("*.jsonl"))
    for file in files:
        place = location(bucket) / "inbox" / "user_counts" / file.name
        stores.of(place).put(place, file.read_bytes())
    (tmp_path / "node").mkdir()
    node = Node(tmp_path / "node", secrets)
    # The provider for Kubernetes is not installed; the Spark provider asks only whether it is there.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{environment.variable('PATH')}")
    with api(node) as server:
        extra = {"deploy-mode": "cluster", "namespace": NAMESPACE}
        connection = {"conn_type": "spark", "host": server.url, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_KUBERNETES", json.dumps(connection))
        yield Namespace(platform, server, node, bucket, files)


def check(namespace: Namespace) -> None:
    """The results are the batch computation's, and no executor is left."""
    reference.compare(namespace.platform, "user_counts", [namespace.files[:3], namespace.files[3:]])
    assert namespace.api.pods("executor") == []


def test_a_run_in_pods_is_a_run_like_any_other(namespace: Namespace) -> None:
    namespace.drain()

    assert sum("-exec-" in name for name in namespace.node.processes) >= 2
    check(namespace)


@pytest.mark.parametrize("failures, why", [("1000", LOST), ("1", GIVEN_UP)])
def test_a_driver_without_executors_ends_as_retryable(namespace: Namespace, failures: str, why: str) -> None:
    """A quota, or a full cluster, gives it no others: by our patience, or by the failures that Spark allows.

    The next try of the task finishes the batch.
    """
    allowed = {"spark.executor.maxNumFailures": failures}
    with ThreadPoolExecutor(1) as beside:
        task = namespace.stopped("output-after-begin", beside, **allowed)
        namespace.api.refuses = "pods"
        for pod in namespace.api.pods("executor"):
            namespace.node.kill(pod)
        namespace.resume()
        with pytest.raises(AirflowException) as failed:
            task.result(300)
    assert not isinstance(failed.value, AirflowFailException)
    assert why in namespace.node.log(namespace.driver)

    namespace.api.refuses = None
    namespace.drain()
    check(namespace)


def test_a_deleted_pod_of_a_driver_does_not_show(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executors go with it, and the next try of the task finishes the batch."""
    monkeypatch.setattr("onlyonce.airflow.spark_job.SILENT_SECONDS", 10.0)
    with ThreadPoolExecutor(1) as beside:
        task = namespace.stopped("receive-after-delta", beside)
        namespace.api.delete("pods", namespace.driver)
        with pytest.raises(AirflowException) as failed:
            task.result(300)
    assert not isinstance(failed.value, AirflowFailException)
    assert namespace.api.pods("executor") == []

    namespace.drain()
    check(namespace)
