"""Drivers that wait with Spark up: a run that is to be killed starts at once, and the next driver starts up meanwhile.

`python -m tests.support.warm_drivers` is one of them. It says that it is ready on standard output, takes its order as
one line of JSON, {"job": …, "arguments": […], "environment": {…}, "log": path}, and is from then on the process that
`python -m jobs.<job>` would be: its own session with its own JVM and Python workers, which a fail-point kills by
SIGKILL.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType

import psutil

from onlyonce.local import processes
from onlyonce.testing.scratch import JOB_TIMEOUT, NOT_OURS
from tests.support.platform import ROOT, Platform

MASTER = "local[2]"
LOOK_SECONDS = 0.02


class WarmDrivers:
    """A row of drivers that wait. Used by one thread. `conf`: settings of their sessions."""

    def __init__(self, waiting: int = 1, conf: Mapping[str, str] = MappingProxyType({})) -> None:
        self._waiting: deque[subprocess.Popen[str]] = deque()
        self._count, self._conf = waiting, dict(conf)

    def __enter__(self) -> WarmDrivers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Those that wait go."""
        for driver in self._waiting:
            _kill_session(driver)
            _end(driver)

    def run(
        self,
        platform: Platform,
        point: str,
        nth: int,
        *arguments: str,
        job: str = "stream",
        action: str = "kill",
        **more: str,
    ) -> tuple[int, str]:
        """A run of this platform that is killed at a pass of a point, as `Platform.run_killed`; gives exit code and
        output."""
        folder = platform.home / "failpoints"
        folder.mkdir(exist_ok=True)
        (folder / point).unlink(missing_ok=True)
        armed = {"ONLYONCE_FAILPOINTS": f"{point}:{nth}:{action}", "ONLYONCE_FAILPOINT_DIR": str(folder)}
        driver, log = self._ordered(platform, job, *arguments, **armed, **more)
        return _ended(driver, log)

    def run_for(
        self, platform: Platform, passes: int, seconds: float, *arguments: str, job: str = "stream"
    ) -> tuple[int, str]:
        """A run that is killed so long after it has passed so many points, whichever they are; gives exit code and
        output."""
        record = platform.home / "passed"
        record.write_text("")
        driver, log = self._ordered(platform, job, *arguments, ONLYONCE_FAILPOINT_RECORD=str(record))
        while driver.poll() is None and record.read_text().count("\n") < passes:
            time.sleep(LOOK_SECONDS)
        time.sleep(seconds)
        _kill_session(driver)
        return _ended(driver, log)

    def _ordered(
        self, platform: Platform, job: str, *arguments: str, **environment: str
    ) -> tuple[subprocess.Popen[str], Path]:
        self._fill()
        driver = self._waiting.popleft()
        self._fill()  # it starts up while this one runs
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
        return driver, log

    def _fill(self) -> None:
        while len(self._waiting) < self._count:
            self._waiting.append(_start(self._conf))


def _start(conf: dict[str, str]) -> subprocess.Popen[str]:
    ours = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm_drivers", json.dumps(conf)], cwd=ROOT, text=True, start_new_session=True, env=ours,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _ended(driver: subprocess.Popen[str], log: Path) -> tuple[int, str]:
    _end(driver)
    return driver.returncode, log.read_text(errors="replace")


def _kill_session(driver: subprocess.Popen[str]) -> None:
    # The driver first: it is not to see how the JVM and the workers of its session go.
    driver.kill()
    for one in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(one) == driver.pid:
                os.kill(one, signal.SIGKILL)


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
    from onlyonce.engine import session

    spark = session.start("warm", MASTER)
    for name, value in json.loads(sys.argv[1]).items():
        spark.conf.set(name, value)
    context = spark.sparkContext
    for name in (
        "onlyonce.run.stream",
        "onlyonce.run.queries",
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
