"""Processes that play one run after another, so that thousands of runs cost no start of a process.

A bench forks them, and waits for what happens to them: a stop by a fail-point, or the end of a run. It polls nothing.
Fork a bench before its process touches a Delta table: delta-rs starts threads, which no fork takes along.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from onlyonce import configuration, failpoints
from tests.fault.matrix.play import Play, child
from tests.fault.matrix.zygote import LATE, PATIENCE

PR_SET_PDEATHSIG = 1


@dataclass
class Driver:
    """One process: `code` is None while it plays, and the exit code of its last run afterwards."""

    pid: int
    talk: socket.socket
    stopped: bool = False
    code: int | None = 0


class Bench:
    """Some drivers. `start` and `wait` are those of a zygote, for `World` and `Run`."""

    def __init__(self, drivers: int) -> None:
        for name in LATE:
            importlib.import_module(name)
        self._woken, wakes = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wakes, False)
        gc.freeze()
        self._drivers: dict[int, Driver] = {}
        for _ in range(drivers):
            self._fork()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for driver in self._drivers.values():
            os.kill(driver.pid, signal.SIGKILL)
            os.waitpid(driver.pid, 0)

    def start(self, play: Play, log: Path, **environment: str) -> int:
        """Let a driver that has nothing to do play; return its process id."""
        driver = next(one for one in self._drivers.values() if one.code is not None)
        driver.code = None
        request = {"play": asdict(play), "environment": environment, "log": str(log)}
        driver.talk.sendall(json.dumps(request).encode() + b"\n")
        return driver.pid

    def wait(self, pid: int) -> int:
        """Return the exit code of a driver's run when it has ended."""
        driver = self._drivers[pid]
        while driver.code is None:
            self.happens(PATIENCE)
        return driver.code

    def plays(self, pid: int) -> bool:
        """Return whether a driver's run has not ended."""
        return self._drivers[pid].code is None

    def stopped(self, pid: int) -> bool:
        """Return whether a driver stands at a fail-point."""
        return self._drivers[pid].stopped

    def wake(self, pid: int) -> None:
        """Let a stopped driver continue."""
        self._drivers[pid].stopped = False
        os.kill(pid, signal.SIGCONT)

    def happens(self, seconds: float) -> bool:
        """Wait until a driver stops or ends its run. Return False if none does in this time."""
        playing = {one.talk.fileno(): one for one in self._drivers.values() if one.code is None}
        ready = select.select([self._woken, *playing], [], [], seconds)[0]
        for one in ready:
            if one == self._woken:
                os.read(self._woken, 4096)
                self._note_stops()
            else:
                driver = playing[one]
                driver.code = int(driver.talk.recv(16))
        return bool(ready)

    def _note_stops(self) -> None:
        for driver in self._drivers.values():
            pid, status = os.waitpid(driver.pid, os.WNOHANG | os.WUNTRACED)
            if pid:
                assert os.WIFSTOPPED(status), f"a driver has died: {status}"
                driver.stopped = True

    def _fork(self) -> None:
        ours, its = socket.socketpair()
        pid = os.fork()
        if pid:
            its.close()
            self._drivers[pid] = Driver(pid, ours)
            return
        for earlier in self._drivers.values():
            earlier.talk.close()
        ours.close()
        with suppress(BrokenPipeError):
            _serve(its)
        os._exit(0)


def _serve(talk: socket.socket) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a stopped driver does not outlive its bench
    gc.set_threshold(100_000)
    # A test kills processes, never the machine: no file needs to reach the disk.
    os.fsync = lambda fd: None
    # A run reads its settings seventy times, and they stay as they are.
    configuration.current = functools.lru_cache(1)(configuration.current)
    with talk.makefile("rb") as requests:
        for line in requests:
            talk.sendall(str(_play(json.loads(line))).encode())


def _play(request: dict[str, Any]) -> int:
    os.environ.update(request["environment"])
    importlib.reload(failpoints)  # it reads the environment when it is imported
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    configuration.current.cache_clear()  # type: ignore[attr-defined]
    code = child(Play(**request["play"]))
    sys.stdout.flush()
    sys.stderr.flush()
    return code
