"""Named fail-points, at which the tests and `onlyonce crashtest` kill the real processes.

Unless switched on, they cost one dictionary look-up.

ONLYONCE_FAILPOINTS="name:nth:action,…" switches them on. ONLYONCE_FAILPOINT_DIR is a folder in which the passes of all
processes are counted, so that a point strikes once and not again after the restart. The actions: `kill` ends the whole
session of processes (start the job in a session of its own), `kill-process` only the process that passes, `raise`
raises an error, `stop` sends SIGSTOP. `fail` raises at this pass and at every later one, so that a task fails however
often Spark tries it again. Each name has one row in the tables of docs/specification, which say what state a kill there
leaves. ONLYONCE_FAILPOINT_RECORD names a file to which each pass appends its point's name, in order;
ONLYONCE_FAILPOINT_STRIKES one to which each strike does.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_ASKED = os.environ.get("ONLYONCE_FAILPOINTS", "")
_POINTS = {p.split(":")[0]: (int(p.split(":")[1]), p.split(":")[2]) for p in _ASKED.split(",") if p}

RECORD = os.environ.get("ONLYONCE_FAILPOINT_RECORD", "")
STRIKES = os.environ.get("ONLYONCE_FAILPOINT_STRIKES", "")


class FailPoint(RuntimeError):
    """The error of the action `raise`."""


def passing(name: str) -> None:
    """Mark a moment before or after an effect of the specification."""
    if RECORD:
        note(RECORD, name)
    if name not in _POINTS:
        return
    nth, action = _POINTS[name]
    passed = _count(Path(os.environ["ONLYONCE_FAILPOINT_DIR"]), name)
    if passed == nth or (passed > nth and action == "fail"):
        if STRIKES:
            note(STRIKES, name)
        _strike(name, action)


def note(file: str, name: str) -> None:
    """Append a point's name to a file in one write, which stays whole if other processes append too."""
    with open(file, "ab", buffering=0) as record:  # noqa: PTH123 - unbuffered
        record.write(f"{name}\n".encode())


def _count(folder: Path, name: str) -> int:
    # Appending one byte is atomic. The file's size is the number of passes so far.
    with open(folder / name, "ab", buffering=0) as file:  # noqa: PTH123 - one descriptor for the write and the position after it
        file.write(b".")
        return file.tell()


def _kill_session() -> None:
    import psutil  # only a process that is about to die needs it

    # Driver, JVM and Python workers share a session, but not a process group: Spark regroups its workers.
    mine = os.getsid(0)
    for pid in psutil.pids():
        if pid != os.getpid():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == mine:
                    os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _strike(name: str, action: str) -> None:
    if action == "kill":
        _kill_session()
    elif action == "kill-process":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        raise FailPoint(f"fail-point {name}")
