"""A process that has everything imported and forks the processes under fault: a run costs no start of Python.

`python -m tests.fault.matrix.zygote`: one JSON request a line on stdin, {"play": …, "environment": …, "log": path};
the answer is {"pid": n}, and {"ended": n, "status": …} when that child is gone. It never touches a database or a
Delta table itself, so its children share no connection and no thread with it.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from onlyonce import failpoints
from tests.fault.matrix.play import Play, child
from tests.support.platform import ROOT

PATIENCE = 600
LATE = (
    "psycopg2.extras",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "sqlalchemy.dialects.postgresql.psycopg2",
    "onlyonce.sinks.delta.sink_delta",
)
"""What the children need and would import late, each for itself."""


class Zygote:
    """The parent's side: starts children and waits for their ends. Several threads may use it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.fault.matrix.zygote"]
        self._process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._asking, self._change = threading.Lock(), threading.Condition()
        self._started: list[int] = []
        self._ended: dict[int, int] = {}
        self._gone = False
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(PATIENCE)

    def start(self, play: Play, log: Path, **environment: str) -> int:
        """Start a process that plays; gives its id."""
        assert self._process.stdin
        request = {"play": asdict(play), "environment": environment, "log": str(log)}
        with self._asking:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            with self._change:
                self._await(lambda: bool(self._started))
                return self._started.pop()

    def wait(self, pid: int) -> int:
        """Its exit code, negative for a signal."""
        with self._change:
            self._await(lambda: pid in self._ended)
            return self._ended.pop(pid)

    def run(self, play: Play, log: Path, **environment: str) -> int:
        """Start one and wait for its end."""
        return self.wait(self.start(play, log, **environment))

    def _await(self, come: Callable[[], bool]) -> None:
        assert self._change.wait_for(lambda: come() or self._gone, PATIENCE), "no word of a child"
        assert come(), "the zygote is gone"

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            told: dict[str, int] = json.loads(line)
            with self._change:
                if "ended" in told:
                    self._ended[told["ended"]] = told["status"]
                else:
                    self._started.append(told["pid"])
                self._change.notify_all()
        with self._change:
            self._gone = True
            self._change.notify_all()


def _serve() -> None:
    for name in LATE:
        importlib.import_module(name)
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    events = selectors.DefaultSelector()
    events.register(sys.stdin, selectors.EVENT_READ)
    events.register(woken, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            if key.fd == sys.stdin.fileno():
                line = sys.stdin.readline()
                if not line:
                    return
                _tell({"pid": _fork(json.loads(line))})
            else:
                os.read(woken, 4096)
        _reap()


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.environ.update(request["environment"])
    importlib.reload(failpoints)  # it reads the environment when it is imported
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = child(Play(**request["play"]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _tell({"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def _tell(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    _serve()
