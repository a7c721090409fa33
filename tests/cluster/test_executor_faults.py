"""What befalls executors on a standalone Spark cluster: a machine is lost, one is frozen and wakes, one is slow.

Fail-points are set in the environment of one worker alone, so its executor is the one that is struck, wherever the
driver is.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from onlyonce.local import processes
from tests.cluster.machines import BOTH
from tests.cluster.standalone import Cluster, cluster
from tests.fault import ledger
from tests.fault.test_kills import put_all
from tests.support import shop_oracle
from tests.support.check_shop import check, pairs
from tests.support.platform import JOB_TIMEOUT, ROOT, Platform, free_port

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow]

FILES = shop_oracle.sales(240, 2)
HALVED = "tests/support/halved_shop.py"
IMPATIENT = {
    "spark.network.timeout": "20s", "spark.network.timeoutInterval": "5s", "spark.executor.heartbeatInterval": "4s",
}  # fmt: skip
"""After so long without a heartbeat an executor is given up."""
SPECULATIVE = {
    "spark.speculation": "true", "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.1",
    "spark.speculation.interval": "100ms", "spark.speculation.minTaskRuntime": "10s",
}  # fmt: skip
"""A task that hangs gets a twin. One that is slow only because its executor has just started gets none: the twins
would win each task before the armed executor comes to its fail-point."""


def worker(spark: Cluster, **environment: str) -> subprocess.Popen[bytes]:
    """One more worker, with a core for each of the two partitions of a batch in the cluster as a whole."""
    return spark.start(
        "spark-worker",
        free_port(),
        SPARK_WORKER_CORES="1",
        SPARK_WORKER_MEMORY="1g",
        PYTHONPATH=str(ROOT),
        **environment,
    )


def armed(platform: Platform, point: str, action: str) -> dict[str, str]:
    """The environment in which a fail-point strikes at its first pass."""
    folder = platform.home / "failpoints"
    folder.mkdir()
    return {"ONLYONCE_FAILPOINT_DIR": str(folder), "ONLYONCE_FAILPOINTS": f"{point}:1:{action}"}


def start(platform: Platform, spark: Cluster, **configured: str) -> subprocess.Popen[str]:
    """A run on the cluster, with settings as an operator gives them: in spark-defaults.conf."""
    folder = platform.home / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(
        spark.settings + "".join(f"{name} {value}\n" for name, value in (BOTH | configured).items())
    )
    return platform.start(
        "shop", "--close", master=spark.master, SPARK_CONF_DIR=str(folder), SPARK_EXECUTOR_MEMORY="512m",
        ONLYONCE_DRIVER_MEMORY="1g", ONLYONCE_SHUFFLE_PARTITIONS="2", PYTHONPATH=str(ROOT),
        ONLYONCE_IN_DRIVER_BYTES="0",
    )  # fmt: skip


def ended_well(platform: Platform, driver: subprocess.Popen[str], suite: str, point: str) -> None:
    """The run has ended by itself, and the results are the oracle's."""
    output, _ = driver.communicate(timeout=JOB_TIMEOUT)
    assert driver.returncode == 0, output[-3000:]
    assert platform.struck(point) >= 1, f"{point} was never passed by the armed worker"
    ledger.compared(f"cluster: {suite}", point, 1, pairs(platform, FILES))
    check(platform, FILES)


def stopped_below(process: subprocess.Popen[bytes]) -> psutil.Process | None:
    """The Python worker that a fail-point has stopped, if it has."""
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.status() == psutil.STATUS_STOPPED:
                return child
    return None


def executor_of(python: psutil.Process) -> psutil.Process:
    """The JVM that a Python worker works for."""
    return next(parent for parent in python.parents() if parent.name() == "java")


@pytest.mark.parametrize("point", ["receive-unit-before-commit", "postgres-unit-after-commit"])
def test_a_machine_that_is_lost_does_not_show(
    new_platform: Callable[..., Platform], tmp_path: Path, point: str
) -> None:
    """Worker, executor and its Python are killed at once, before or after a unit's commit: the other machine does it
    over."""
    platform = new_platform(HALVED)
    put_all(platform, FILES)
    with cluster(tmp_path, workers=0) as spark:
        lost = worker(spark, **armed(platform, point, "kill"))
        worker(spark)
        driver = start(platform, spark)
        ended_well(platform, driver, "a machine lost", point)
        assert lost.wait(60) == -signal.SIGKILL


def test_a_machine_that_is_frozen_and_wakes_after_the_retry_does_not_show(
    new_platform: Callable[..., Platform], tmp_path: Path
) -> None:
    """It is stopped before its claim; Spark gives it up and another does its task; woken, it is told that the unit is
    there."""
    platform = new_platform(HALVED)
    put_all(platform, FILES)
    point, told = "postgres-unit-before-claim", "postgres-unit-after-claim"
    with cluster(tmp_path, workers=0) as spark:
        frozen = armed(platform, point, "stop")
        frozen["ONLYONCE_FAILPOINTS"] += f",{told}:1000:raise"  # never: its passes are counted
        armed_worker = worker(spark, **frozen)
        worker(spark)
        driver = start(platform, spark, **IMPATIENT)
        processes.wait_until(
            lambda: stopped_below(armed_worker) is not None or driver.poll() is not None, JOB_TIMEOUT, "the fail-point"
        )
        python = stopped_below(armed_worker)
        assert python is not None, driver.communicate()[0][-3000:]
        # The worker as well: it would end an executor whose driver has gone, and with it the task.
        frozen_machine = [psutil.Process(armed_worker.pid), executor_of(python)]
        for process in frozen_machine:
            process.suspend()
        try:
            output, _ = driver.communicate(timeout=JOB_TIMEOUT)
            before = platform.struck(told)
            python.resume()
            processes.wait_until(
                lambda: platform.struck(told) == before + 1, 60, "the claim of the task that was frozen"
            )
        finally:
            for process in frozen_machine:
                process.resume()
        assert driver.returncode == 0, output[-3000:]
    ledger.compared("cluster: a machine frozen", point, 1, pairs(platform, FILES))
    check(platform, FILES)


def test_a_straggler_and_its_speculative_twin_write_once(new_platform: Callable[..., Platform], tmp_path: Path) -> None:
    """A task hangs before its claim; Spark starts a twin of it elsewhere: one of the two writes."""
    platform = new_platform(HALVED)
    put_all(platform, FILES)
    point = "receive-unit-before-claim"
    with cluster(tmp_path, workers=0) as spark:
        slow = worker(spark, **armed(platform, point, "stop"))
        # A twin never runs on the host of the first attempt, and hosts are told apart by their names.
        worker(spark, SPARK_LOCAL_HOSTNAME="localhost")
        driver = start(platform, spark, **SPECULATIVE)
        ended_well(platform, driver, "a speculative twin", point)
        if (python := stopped_below(slow)) is not None:
            os.kill(python.pid, signal.SIGCONT)
    check(platform, FILES)
