"""Pull runs in processes of their own, which can be killed: forked off one that has everything imported.

`python -m tests.support.pullers` answers each JSON line on standard input by one on standard output. It makes no
connection itself, so its children share none with it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from types import TracebackType
from typing import Any

from onlyonce.core.errors import OnlyonceError
from tests.support.platform import ROOT


class Pullers:
    """The parent's side."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.support.pullers"]
        self._process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Pullers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(120)

    def start(self, pipeline: str, **environment: str) -> int:
        """Start a pull run with what is in this environment now, and more; gives its process."""
        mine = {name: value for name, value in os.environ.items() if name.startswith(("ONLYONCE_", "PUBSUB_"))}
        return int(self._ask("start", pipeline=pipeline, environment=mine | environment))

    def wait(self, pid: int) -> tuple[int, int]:
        """When it has ended: its exit code, negative for a signal, and the most memory that it had, in KB."""
        code, used = self._ask("wait", pid=pid)
        return code, used

    def wait_stopped(self, pid: int) -> None:
        """Until it has been stopped by a signal."""
        self._ask("wait_stopped", pid=pid)

    def _ask(self, what: str, **values: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps({"do": what} | values), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def _serve() -> None:
    for late in ("google.cloud.pubsub_v1", "onlyonce.sources.pubsub", "sqlalchemy.dialects.postgresql.psycopg2"):
        importlib.import_module(late)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(ORDERS[asked.pop("do")](**asked)), flush=True)


def _start(pipeline: str, environment: dict[str, str]) -> int:
    from onlyonce import failpoints
    from onlyonce.sources import pubsub

    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.environ.update(environment)
    importlib.reload(failpoints)  # it reads the environment when it is imported
    try:
        pubsub.main([pipeline])
    except OnlyonceError as error:
        os._exit(error.exit_code)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _wait(pid: int) -> tuple[int, int]:
    _, status, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss


def _wait_stopped(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WSTOPPED)


ORDERS: dict[str, Any] = {"start": _start, "wait": _wait, "wait_stopped": _wait_stopped}

if __name__ == "__main__":
    _serve()
