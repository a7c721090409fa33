"""The folder for a driver's temporary files on one machine: Spark's blocks, spilled rows and state, what the JVM
unpacks, and copies of checkpoints.

Each driver has its own folder below `<home>/tmp`, and holds a lock of the operating system on it for as long as its
process lives. A killed driver loses its lock at that instant and leaves its folder. So each driver that starts
tries each folder's lock, and deletes a folder whose lock it gets. Age and process id don't matter.

On a file system without locks, folders are never deleted.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from onlyonce import settings
from onlyonce.environment import variable

BLOCKS = "spark.local.dir"
JAVA = "spark.driver.extraJavaOptions"
LOCK = "lock"
_UNPACKED = "-Djava.io.tmpdir="

_held: dict[Path, int] = {}
"""The folders that this process holds, with the open file of the lock. The lock ends with the process, however it
ends.
"""


def root() -> Path:
    """Return the parent of all drivers' folders."""
    return settings.home() / "tmp"


def added(master: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return our options and, with a local master, the options for a new folder of the driver.

    Settings of the team about such folders stay as they are.
    """
    found = dict(ours)
    java = f"{theirs.get(JAVA, '')} {variable('JDK_JAVA_OPTIONS') or ''} {variable('JAVA_TOOL_OPTIONS') or ''}"
    wanted = {
        BLOCKS: BLOCKS not in theirs and variable("SPARK_LOCAL_DIRS") is None,
        JAVA: _UNPACKED not in java and not re.search(r"\s", str(root())),
    }
    if not master.startswith("local") or not any(wanted.values()):
        return found
    folder = root() / f"driver-{uuid4().hex[:12]}"
    _make(folder)
    if wanted[BLOCKS]:
        found[BLOCKS] = str(folder)
    if wanted[JAVA]:
        before = found.get(JAVA, theirs.get(JAVA, ""))
        found[JAVA] = f"{before} {_UNPACKED}{folder}".strip()
    return found


def hold(options: Mapping[str, str]) -> None:
    """Hold the folder that a driver's options name, if it is one of ours, until this process ends. Delete folders of
    ended drivers.
    """
    named = re.search(rf"{_UNPACKED}(\S+)", options.get(JAVA, ""))
    for folder in {Path(name) for name in (options.get(BLOCKS), named and named[1]) if name}:
        if folder.parent == root() and folder not in _held:
            _hold(folder)
    sweep()


def of_driver() -> Path:
    """Return this driver's folder. If it holds none, make one."""
    if not _held:
        _hold(root() / f"driver-{uuid4().hex[:12]}")
        sweep()
    return next(iter(_held))


def sweep() -> list[Path]:
    """Delete the folders of ended drivers, and return them."""
    gone = []
    for folder in root().glob("driver-*") if root().is_dir() else ():
        with suppress(OSError):  # held by its driver, just deleted by another one, or without locks
            lock = _opened(folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
                gone.append(folder)
            finally:
                os.close(lock)
    return gone


def _make(folder: Path) -> None:
    """Make a driver's folder. Its parent is private: a check may be the first to use the home."""
    settings.make_folder(settings.home(), (root().name,))
    folder.mkdir(exist_ok=True)


def _hold(folder: Path) -> None:
    # Between spark-submit and this line no process holds the folder. If another driver has deleted it meanwhile, it is
    # made again: it was still empty.
    while True:
        _make(folder)
        lock = _opened(folder)
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), (folder / LOCK).stat()):
                _held[folder] = lock
                return
        os.close(lock)


def _opened(folder: Path) -> int:
    return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
