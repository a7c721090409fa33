"""Kill the master of a standalone Spark cluster in each step of a batch, and start it again at once.

The driver, or the Python of an executor, is stopped at a fail-point; the master is killed and started; then the driver
continues. So the moment of the kill is exact.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from onlyonce.local import processes
from tests.cluster.standalone import Cluster, cluster
from tests.cluster.stopped import stopped
from tests.compose import composed
from tests.fault import ledger
from tests.fault.test_kills import put_all
from tests.support import shop_oracle
from tests.support.check_shop import check, pairs
from tests.support.platform import JOB_TIMEOUT, ROOT, Platform, free_port

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow]

FILES = shop_oracle.sales(240, 2)
HALVED = "tests/support/halved_shop.py"
IN_DRIVER = ["receive-before-begin", "receive-after-begin", "output-after-begin"]
"""After each of these a step needs executors."""
LAST_STEPS = ["receive-before-end", "output-before-end"]
"""After these the batch itself ends without executors; the next step needs them."""
IN_TASK = ["receive-unit-before-commit", "postgres-unit-after-commit"]


def start(platform: Platform, spark: Cluster, **environment: str) -> subprocess.Popen[str]:
    """A run on the cluster that waits 5 seconds for an executor after it lost all."""
    return platform.start(
        "shop", "--close", master=spark.master, SPARK_EXECUTOR_MEMORY="512m", ONLYONCE_DRIVER_MEMORY="1g",
        ONLYONCE_SHUFFLE_PARTITIONS="2", ONLYONCE_IN_DRIVER_BYTES="0", ONLYONCE_EXECUTOR_PATIENCE="5",
        PYTHONPATH=str(ROOT), **environment,
    )  # fmt: skip


def armed(platform: Platform, point: str) -> dict[str, str]:
    """The environment in which a process stops at the first pass of a fail-point."""
    folder = platform.home / "failpoints"
    folder.mkdir(exist_ok=True)
    return {"ONLYONCE_FAILPOINT_DIR": str(folder), "ONLYONCE_FAILPOINTS": f"{point}:1:stop"}


def worker(spark: Cluster, **environment: str) -> psutil.Process:
    """A worker with two cores."""
    started = spark.start(
        "spark-worker", free_port(), SPARK_WORKER_CORES="2", SPARK_WORKER_MEMORY="1g", PYTHONPATH=str(ROOT),
        **environment,
    )  # fmt: skip
    return psutil.Process(started.pid)


def executors(worker: psutil.Process) -> list[psutil.Process]:
    """The JVMs that a worker has started."""
    return [child for child in worker.children() if child.name() == "java"]


def wait_for_stop(driver: subprocess.Popen[str], root: psutil.Process) -> list[psutil.Process]:
    """Wait until a fail-point has stopped a process; return it."""
    processes.wait_until(lambda: bool(stopped(root)) or driver.poll() is not None, JOB_TIMEOUT, "the fail-point")
    assert driver.poll() is None, driver.communicate()[0][-3000:]
    return stopped(root)


def killed_and_started(spark: Cluster, worker: psutil.Process, *options: str) -> None:
    """Kill the master and start it; return when the worker has registered."""
    spark.kill_master()
    spark.start_master(*options)
    processes.wait_until(lambda: spark.says()["aliveworkers"] == 1, 120, "the worker at the new master")


def next_run_finishes(platform: Platform, spark: Cluster, suite: str, point: str) -> None:
    """The same command again ends well, and the results are the oracle's."""
    again = start(platform, spark)
    output, _ = again.communicate(timeout=JOB_TIMEOUT)
    assert again.returncode == 0, output[-3000:]
    ledger.compared(f"cluster: {suite}", point, 1, pairs(platform, FILES))
    check(platform, FILES)


@pytest.mark.parametrize("point", [*IN_DRIVER, *LAST_STEPS, *IN_TASK])
def test_a_run_without_its_master_ends_as_retryable(
    new_platform: Callable[..., Platform], tmp_path: Path, point: str
) -> None:
    """The new master does not know the run, so no executor comes; the run ends by itself, and the next one finishes."""
    platform = new_platform(HALVED)
    put_all(platform, FILES)
    with cluster(tmp_path, workers=0) as spark:
        at_worker = armed(platform, point) if point in IN_TASK else {}
        machine = worker(spark, **at_worker)
        driver = start(platform, spark, **({} if at_worker else armed(platform, point)))
        at_stop = wait_for_stop(driver, machine if at_worker else psutil.Process(driver.pid))
        killed_and_started(spark, machine)
        processes.wait_until(lambda: not executors(machine), 120, "the end of the run's executors")
        for process in at_stop:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL if at_worker else signal.SIGCONT)
        output, _ = driver.communicate(timeout=180)
        assert driver.returncode == 75, output[-3000:]
        assert "Spark's master does not know this run" in output
        assert "ONLYONCE_EXECUTOR_PATIENCE" in output
        next_run_finishes(platform, spark, "the master killed", point)


def kept_state(folder: Path) -> list[str]:
    """The options of docker-compose.yml by which a master keeps its state, with a folder of this test."""
    (folder / "kept").mkdir()
    given = composed.environment(composed.load()["services"]["spark-master"])["SPARK_MASTER_OPTS"]
    return [
        option.replace("/var/lib/spark", str(folder / "kept")) for option in str(given).split() if "recovery" in option
    ]


@pytest.mark.parametrize("point", ["receive-after-begin", "output-after-begin"])
def test_a_master_that_keeps_its_state_does_not_show(
    new_platform: Callable[..., Platform], tmp_path: Path, point: str
) -> None:
    """As docker-compose.yml has it: the master knows the run again, the executors live on, the run ends well."""
    platform = new_platform(HALVED)
    put_all(platform, FILES)
    kept = kept_state(tmp_path)
    with cluster(tmp_path, workers=0, options=kept) as spark:
        machine = worker(spark)
        driver = start(platform, spark, **armed(platform, point))
        [at_stop] = wait_for_stop(driver, psutil.Process(driver.pid))
        before = executors(machine)
        killed_and_started(spark, machine, *kept)
        at_stop.resume()
        output, _ = driver.communicate(timeout=JOB_TIMEOUT)
        assert driver.returncode == 0, output[-3000:]
        assert [app["state"] for app in spark.says()["completedapps"]] in ([], ["FINISHED"])
    assert before
    ledger.compared("cluster: a master with its state killed", point, 1, pairs(platform, FILES))
    check(platform, FILES)


def test_a_run_without_executors_ends_as_retryable(new_platform: Callable[..., Platform], tmp_path: Path) -> None:
    """The only machine is lost, and the master has no other: any cluster manager leaves a driver like this."""
    platform, point = new_platform(HALVED), "output-after-begin"
    put_all(platform, FILES)
    with cluster(tmp_path, workers=0) as spark:
        machine = worker(spark)
        driver = start(platform, spark, **armed(platform, point))
        [at_stop] = wait_for_stop(driver, psutil.Process(driver.pid))
        lost = executors(machine)
        machine.kill()
        psutil.wait_procs(lost, 60)
        at_stop.resume()
        output, _ = driver.communicate(timeout=180)
        assert driver.returncode == 75, output[-3000:]
        assert "this run has lost all its executors" in output
        worker(spark)
        next_run_finishes(platform, spark, "the only machine lost", point)
