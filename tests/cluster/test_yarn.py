"""Hadoop's own YARN, with the driver in the cluster: what the DAG of a pipeline starts there, by Airflow's Spark
provider, is a run like any other."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

import tests.dags.conftest  # noqa: F401 - gives Airflow a folder of its own

# isort: split
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from onlyonce import environment
from onlyonce.airflow import dags
from onlyonce.core.locations import location
from onlyonce.local import feed, processes
from onlyonce.tables import stores
from tests.cluster.stopped import stopped
from tests.cluster.yarn import PYSPARK, Yarn, yarn
from tests.dags.conftest import TaskInstance
from tests.support import reference, s3
from tests.support.platform import ROOT, Platform
from tests.support.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3000)]

PIPELINES = "tests.support.apart_reference"
PARAMS = {"mode": "once", "close": True, "bounded": False, "max_files": None, "dry_run": False}
SIZES = {
    "spark.executor.instances": "2", "spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.executor.memoryOverhead": "1g",
    "spark.driver.memory": "1g", "spark.driver.memoryOverhead": "1g", "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server of S3."""
    with s3.versitygw(tmp_path_factory.mktemp("yarn") / "s3") as server:
        yield server


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """A YARN."""
    with yarn(tmp_path_factory.mktemp("yarn") / "hadoop") as cluster:
        yield cluster


@dataclass
class Team:
    """A team's Airflow worker: what it knows of the store and the database are Airflow connections."""

    platform: Platform
    store: S3
    bucket: str
    archive: Path

    def task(self, name: str, conf: Mapping[str, str] | None = None, **variables: str) -> Any:
        """The task that drains a pipeline, as the three lines of a DAG file make it."""
        of_driver = {
            "PYTHONPATH": str(ROOT), "ONLYONCE_HOME": "home", "ONLYONCE_DATA": f"{self.bucket}/lake", "STORE": self.bucket,
            "ONLYONCE_IN_DRIVER_BYTES": "0",
        }  # fmt: skip
        spark = {
            "conf": {**SIZES, "spark.yarn.jars": f"local:{PYSPARK}/*", "spark.executorEnv.PYTHONPATH": str(ROOT), **(conf or {})},
            "env_vars": of_driver | variables,
            "archives": f"{self.archive}#environment",
        }  # fmt: skip
        return dags(PIPELINES, housekeeping=(), schedule=None, spark=spark)[f"{name}_stream"].task_dict["run"]

    def drain(self, name: str, conf: Mapping[str, str] | None = None, **variables: str) -> None:
        """What the task does, on a worker that has none of the variables that lead this test to store and database."""
        context = {"params": PARAMS, "run_id": "manual__1", "ti": TaskInstance(f"{name}_stream")}
        with pytest.MonkeyPatch.context() as worker:
            for variable in {*self.store.environment, *self.platform.environment} - {"ONLYONCE_HOME"}:
                worker.delenv(variable, raising=False)
            self.task(name, conf, **variables).execute(context)


@pytest.fixture
def team(platform: Platform, store: S3, hadoop: Yarn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Team:
    """Its Spark connection names the cluster.

    Python comes in an archive: in the place of a packed environment, which would be a gigabyte, one that leads to the
    environment of this machine."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    with tarfile.open(tmp_path / "onlyonce.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "bin", "bin")
    bucket, keys, url = store.bucket(), store.environment, make_url(platform.environment["ONLYONCE_DATABASE_URL"])
    platform.give(monkeypatch, **keys, ONLYONCE_DATA=f"{bucket}/lake", STORE=bucket)
    extra = json.dumps({"region_name": keys["AWS_REGION"], "endpoint_url": keys["AWS_ENDPOINT_URL"]})
    connections = {
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}},
        "ONLYONCE_DB": {"conn_type": "postgres", "host": url.host, "port": url.port, "login": url.username, "password": url.password, "schema": url.database, "extra": dict(url.query)},
        "ONLYONCE_STORE": {"conn_type": "aws", "login": keys["AWS_ACCESS_KEY_ID"], "password": keys["AWS_SECRET_ACCESS_KEY"], "extra": extra},
    }  # fmt: skip
    for name, connection in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.conf))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{environment.variable('PATH')}")
    return Team(platform, store, bucket, tmp_path / "onlyonce.tar.gz")


def fed(team: Team, name: str, records: int, folder: Path) -> list[Path]:
    """Re-delivered input of a pipeline, in the store."""
    feed.feed_files(name, folder, duplicates=0.1, records=records, files=6)
    files = sorted(folder.glob("*.jsonl"))
    inbox = location(team.bucket) / "inbox" / name
    for file in files:
        stores.of(inbox).put(inbox / file.name, file.read_bytes())
    return files


def test_a_run_with_its_driver_in_the_cluster_is_a_run_like_any_other(
    team: Team, hadoop: Yarn, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The results are the batch computation's.

    Neither the task's log nor YARN's has a secret, nor what Spark's pages show, which is its event log.
    """
    files = fed(team, "user_counts", 1000, tmp_path / "in")
    (tmp_path / "pages").mkdir()
    team.drain(
        "user_counts",
        {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (tmp_path / "pages").as_uri(),
        },
    )
    reference.compare(team.platform, "user_counts", [files[:3], files[3:]])

    pages = "".join(path.read_text() for path in (tmp_path / "pages").rglob("events*") if path.is_file())
    printed = {"task": "".join(capfd.readouterr()), "containers": hadoop.logs(), "pages": pages}
    assert (
        "AWS_SECRET_ACCESS_KEY" in pages,
        "SparkContext" in printed["containers"],
        "--master yarn" in printed["task"],
    ) == (True, True, True)
    password = make_url(team.platform.environment["ONLYONCE_DATABASE_URL"]).password or ""
    assert not [
        (where, secret) for where, text in printed.items() for secret in (password, s3.SECRET) if secret in text
    ]


@pytest.mark.fault
def test_an_application_master_that_is_killed_does_not_show(
    team: Team, hadoop: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its rows are committed.

    YARN begins no driver of its own: the task is tried again, and its driver goes on from there.
    """
    monkeypatch.setattr("onlyonce.airflow.spark_job.SILENT_SECONDS", 10.0)
    files = fed(team, "user_counts", 1000, tmp_path / "in")
    folder, point = team.platform.home / "failpoints", "receive-after-delta"
    folder.mkdir(parents=True)
    armed = {"ONLYONCE_FAILPOINT_DIR": str(folder), "ONLYONCE_FAILPOINTS": f"{point}:1:stop"}
    with ThreadPoolExecutor(1) as beside:
        first = beside.submit(lambda: team.drain("user_counts", None, **armed))
        processes.wait_until(lambda: team.platform.struck(point) > 0 or first.done(), 1200, point)
        [master] = hadoop.masters()
        master.kill()
        with pytest.raises(AirflowException) as failed:
            first.result(600)
    assert not isinstance(failed.value, AirflowFailException)
    assert (hadoop.applications()[-1].getCurrentApplicationAttemptId().getAttemptId(), hadoop.masters()) == (1, [])

    team.drain("user_counts", None, **armed)
    reference.compare(team.platform, "user_counts", [files[:3], files[3:]])


@pytest.mark.fault
def test_a_driver_without_executors_ends_as_retryable(
    team: Team, hadoop: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine of the only executor is lost, and the master's own has no room for another one.

    It comes last: the machine does not come back. The task is tried again with executors that find room.
    """
    files = fed(team, "user_counts", 1000, tmp_path / "in")
    folder, point = team.platform.home / "failpoints", "output-after-begin"
    folder.mkdir(parents=True)
    armed = {"ONLYONCE_FAILPOINT_DIR": str(folder), "ONLYONCE_FAILPOINTS": f"{point}:1:stop"}
    alone = {"spark.executor.instances": "1", "spark.executor.memoryOverhead": "2g"}
    with ThreadPoolExecutor(1) as beside:
        first = beside.submit(lambda: team.drain("user_counts", alone, ONLYONCE_EXECUTOR_PATIENCE="5", **armed))
        processes.wait_until(lambda: team.platform.struck(point) > 0 or first.done(), 1200, point)
        [master], [executor] = hadoop.masters(), hadoop.executors()
        processes.wait_until(lambda: bool(stopped(master)), 60, "the driver's stop")
        hadoop.lose_machine(executor)
        for one in stopped(master):
            one.resume()
        with pytest.raises(AirflowException) as failed:
            first.result(600)
    assert not isinstance(failed.value, AirflowFailException)
    assert "this run has lost all its executors" in hadoop.logs()

    team.drain("user_counts", {"spark.executor.instances": "1"}, **armed)
    reference.compare(team.platform, "user_counts", [files[:3], files[3:]])
