"""Executors that come and go under a run: dynamic allocation, decommissioning, and executors that vanish.

The driver is stopped at a fail-point of a batch, executors go, and the driver continues with others. Or an executor is
killed in a task, which is stopped at a fail-point.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from onlyonce.local import processes
from tests.cluster.standalone import Cluster, cluster
from tests.cluster.test_executor_faults import executor_of
from tests.cluster.test_master import FILES, HALVED, IN_TASK, armed, executors, wait_for_stop, worker
from tests.fault import ledger
from tests.fault.test_kills import put_all
from tests.support.check_shop import check, pairs
from tests.support.platform import JOB_TIMEOUT, ROOT, Platform

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow]

COME_AND_GO = {
    "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0", "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "2s", "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s", "spark.executor.cores": "1",
    "spark.decommission.enabled": "true", "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true", "spark.storage.decommission.rddBlocks.enabled": "true",
}  # fmt: skip
POINTS = ["receive-after-begin", "receive-before-end", "output-after-begin", "output-consumed", "output-before-end"]


def start(platform: Platform, spark: Cluster, **environment: str) -> subprocess.Popen[str]:
    """A run whose executors come when tasks wait and go 2 seconds after their last task."""
    folder = platform.home / "conf"
    folder.mkdir()
    lines = (f"{name} {value}\n" for name, value in COME_AND_GO.items())
    (folder / "spark-defaults.conf").write_text(spark.settings + "".join(lines))
    return platform.start(
        "shop", "--close", master=spark.master, SPARK_CONF_DIR=str(folder), SPARK_EXECUTOR_MEMORY="512m",
        ONLYONCE_DRIVER_MEMORY="1g", ONLYONCE_SHUFFLE_PARTITIONS="2", ONLYONCE_IN_DRIVER_BYTES="0",
        ONLYONCE_EXECUTOR_PATIENCE="60", PYTHONPATH=str(ROOT), **environment,
    )  # fmt: skip


def idle(machines: list[psutil.Process]) -> None:
    """Nothing is done: all executors go by themselves, since no task waits."""
    processes.wait_until(lambda: not any(map(executors, machines)), 120, "the end of idle executors")


def decommissioned(machines: list[psutil.Process]) -> None:
    """One machine is taken out of service, as before maintenance: its executors hand over what they hold, and go."""
    machines[0].send_signal(signal.SIGPWR)
    processes.wait_until(lambda: not executors(machines[0]), 120, "the end of the executors of one machine")


def vanished(machines: list[psutil.Process]) -> None:
    """Every executor is killed with what it holds."""
    for process in [one for machine in machines for one in executors(machine)]:
        process.kill()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("go", [idle, decommissioned, vanished], ids=lambda way: way.__name__)
def test_executors_that_go_do_not_show(
    new_platform: Callable[..., Platform], tmp_path: Path, point: str, go: Callable[[list[psutil.Process]], None]
) -> None:
    """Others come for the next step; the run ends well, and its results are the oracle's."""
    platform = new_platform(HALVED)
    put_all(platform, FILES)
    with cluster(tmp_path, workers=0) as spark:
        machines = [worker(spark, SPARK_WORKER_OPTS="-Dspark.decommission.enabled=true") for _ in range(2)]
        driver = start(platform, spark, **armed(platform, point))
        [at_stop] = wait_for_stop(driver, psutil.Process(driver.pid))
        go(machines)
        at_stop.resume()
        output, _ = driver.communicate(timeout=JOB_TIMEOUT)
        assert driver.returncode == 0, output[-3000:]
    ledger.compared(f"cluster: executors {go.__name__}", point, 1, pairs(platform, FILES))
    check(platform, FILES)


@pytest.mark.parametrize("point", IN_TASK)
def test_an_executor_killed_in_its_task_does_not_show(
    new_platform: Callable[..., Platform], tmp_path: Path, point: str
) -> None:
    """Its JVM and its Python get SIGKILL before or after a unit's commit. Spark gives the task to another executor."""
    platform = new_platform(HALVED)
    put_all(platform, FILES)
    with cluster(tmp_path, workers=0) as spark:
        for _ in range(2):
            worker(spark, **armed(platform, point))
        driver = start(platform, spark)
        [python] = wait_for_stop(driver, psutil.Process())
        executor = executor_of(python)
        for process in [executor, *executor.children(recursive=True)]:
            process.kill()
        output, _ = driver.communicate(timeout=JOB_TIMEOUT)
        assert driver.returncode == 0, output[-3000:]
    ledger.compared("cluster: an executor killed in its task", point, 1, pairs(platform, FILES))
    check(platform, FILES)
