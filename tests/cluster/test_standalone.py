"""A pipeline on a standalone Spark cluster: executors in processes of their own, as docker-compose.yml has them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.pipelines import USER_COUNTS
from onlyonce import settings
from onlyonce.local import processes
from onlyonce.local.feed import feed_files
from tests import oracle
from tests.cluster.standalone import cluster
from tests.spark.run.test_reference import KEYS, cut, same
from tests.support import spark_rpc
from tests.support.platform import ROOT, Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def onlyonce(platform: Platform, *arguments: str, **given: str) -> subprocess.CompletedProcess[str]:
    """A command of the shell, with the settings that docker-compose.yml gives to a driver."""
    environment = {
        "SPARK_EXECUTOR_MEMORY": "512m",
        "ONLYONCE_DRIVER_MEMORY": "1g",
        "ONLYONCE_SHUFFLE_PARTITIONS": "2",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [str(Path(sys.executable).with_name("onlyonce")), *arguments], text=True, capture_output=True, check=False,
        env=os.environ | platform.environment | environment | given, timeout=600,
    )  # fmt: skip


def test_a_run_on_a_cluster_is_a_run_like_any_other(new_platform: Callable[..., Platform], tmp_path: Path) -> None:
    """`onlyonce run --master spark://…` reads re-delivered input, and what it writes equals the batch over it; the work
    was done by the cluster's executors.

    Where nothing says how many partitions a state has, no output with windows begins, and what was received stays."""
    platform = new_platform("jobs/pipelines.py")
    feed_files("user_counts", settings.inbox("user_counts"), duplicates=0.1, records=1000, files=6)
    files = sorted(settings.inbox("user_counts").glob("*.jsonl"))
    with cluster(tmp_path) as spark:
        assert "SaslMessage" in spark_rpc.answer(spark.port)
        unsaid = onlyonce(platform, "run", "user_counts", "--master", spark.master, ONLYONCE_SHUFFLE_PARTITIONS="")
        assert (unsaid.returncode, "spark.cores.max" in unsaid.stdout + unsaid.stderr) == (64, True), (
            unsaid.stdout + unsaid.stderr
        )
        assert platform.sql("SELECT DISTINCT query FROM onlyonce.batches")["query"].tolist() == ["receive"]
        done = onlyonce(platform, "run", "user_counts", "--close", "--master", spark.master)
        assert done.returncode == 0, done.stdout + done.stderr
        # The master learns of a driver's end a moment after it.
        processes.wait_until(
            lambda: len(spark.says()["completedapps"]) == 2, 60, "the end of the run in the master's list"
        )
        for app in spark.says()["completedapps"]:
            assert (app["name"], app["state"]) == ("onlyonce user_counts", "FINISHED")
            assert app["cores"] == 2
            assert app["memoryperexecutor"] == 512

    records = oracle.distinct(files, oracle.USER_COUNTS)
    batches = cut(files, USER_COUNTS.source.max_files_a_batch)  # type: ignore[arg-type]
    fates = oracle.fates_by_cut(batches, "2min", "1min", of=oracle.USER_COUNTS)
    in_time = oracle.only(records, fates[~fates["late"]], oracle.USER_COUNTS)
    same(oracle.counts_per_user(in_time), platform.table("user_counts/per_user"), [*KEYS, "user", "count"], [])
    of_all = platform.sql("SELECT * FROM results.count_of_all")
    same(oracle.count_of_all(in_time), of_all, [*KEYS, "count", "users"], [])
    fate = platform.sql(
        "SELECT bool_and(conserved) AS conserved, sum(kept) AS kept, sum(duplicate) AS again FROM onlyonce.conservation"
    ).iloc[0]
    assert (fate["conserved"], int(fate["kept"])) == (True, len(records))
    assert int(fate["again"]) == len(oracle.deliveries(files, oracle.USER_COUNTS)) - len(records)
