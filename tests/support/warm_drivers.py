"""Drivers that wait with Spark up: a run that is to be killed starts at once, and the next driver starts up meanwhile.

`python -m tests.support.warm_drivers` is one of them. It says that it is ready on standard output, takes its order as one line of JSON,
{"job": …, "arguments": […], "environment": {…}, "log": path}, and is from then on the process that `python -m jobs.<job>` would be: its
own session with its own JVM and Python workers, which a fail-point kills by SIGKILL.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import deque
from types import TracebackType

import psutil

from onlyonce.local import processes
from onlyonce.testing.crashtest.scratch import JOB_TIMEOUT, NOT_OURS
from tests.support.platform import ROOT, Platform

MASTER = "local[2]"


class WarmDrivers:
    """A row of drivers that wait. Used by one thread."""

    def __init__(self, waiting: int = 1) -> None:
        self._waiting: deque[subprocess.Popen[str]] = deque()
        self._count = waiting

    def __enter__(self) -> WarmDrivers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for driver in self._waiting:
            _end(driver)

    def run(
        self, platform: Platform, point: str, nth: int, *arguments: str, job: str = "stream", **more: str
    ) -> tuple[int, str]:
        """A run of this platform that is killed at a pass of a point, as `Platform.run_killed`; gives exit code and output."""
        folder = platform.home / "failpoints"
        folder.mkdir(exist_ok=True)
        (folder / point).unlink(missing_ok=True)
        armed = {"ONLYONCE_FAILPOINTS": f"{point}:{nth}:kill", "ONLYONCE_FAILPOINT_DIR": str(folder)}
        self._fill()
        driver = self._waiting.popleft()
        self._fill()  # it starts up while this one runs
        return self._order(driver, platform, job, *arguments, **armed, **more)

    def _order(
        self, driver: subprocess.Popen[str], platform: Platform, job: str, *arguments: str, **environment: str
    ) -> tuple[int, str]:
        log = platform.home / "driver.log"
        log.unlink(missing_ok=True)
        order = {
            "job": job, "arguments": [*arguments, "--master", MASTER], "log": str(log),
            "environment": platform.environment | environment,
        }  # fmt: skip
        assert driver.stdin
        assert driver.stdout
        assert driver.stdout.readline() == "ready\n", "a driver did not come up"
        print(json.dumps(order), file=driver.stdin, flush=True)
        _end(driver)
        return driver.returncode, log.read_text(errors="replace")

    def _fill(self) -> None:
        while len(self._waiting) < self._count:
            self._waiting.append(_start())


def _start() -> subprocess.Popen[str]:
    ours = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm_drivers"], cwd=ROOT, text=True, start_new_session=True, env=ours,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _end(driver: subprocess.Popen[str]) -> None:
    """It ends when it has no order; one that does not is ended, with all that it has started."""
    assert driver.stdin
    assert driver.stdout
    driver.stdin.close()
    try:
        driver.wait(JOB_TIMEOUT)
    except subprocess.TimeoutExpired:
        one = psutil.Process(driver.pid)
        processes.stop([*one.children(recursive=True), one], patience=0)
        driver.wait()
    driver.stdout.close()


def _serve() -> None:
    from onlyonce import failpoints
    from onlyonce.session import session

    context = session.start("warm", MASTER).sparkContext
    for name in (
        "onlyonce.run.stream",
        "onlyonce.run.drain",
        "onlyonce.outputs.backfill",
        "pyarrow.dataset",
        "deltalake",
    ):
        importlib.import_module(name)
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        context.stop()
        return
    order = json.loads(line)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["environment"])
    context.environment.update(order["environment"])  # of the Python workers, which the JVM starts
    importlib.reload(failpoints)  # it reads the environment when it is imported
    sys.argv = [order["job"], *order["arguments"]]
    importlib.import_module(f"jobs.{order['job']}").cli()


if __name__ == "__main__":
    _serve()
