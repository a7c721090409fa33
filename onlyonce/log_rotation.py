"""The log file of a process that runs for long is bounded: once it is large its content is put aside, and the file goes
on empty.

The JVM and Python write to one file that both have open, so it keeps its name and its inode. What is written in the
instant between copy and cut gets lost; logs show work, and no commit depends on them. Who calls it: the heartbeat of a
long run. Errors: OSError. Only a file in `<home>/logs` that is open for appending is touched: a file, pipe or terminal
of somebody else's is left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
from pathlib import Path

from onlyonce import settings


def rotate() -> Path | None:
    """Put aside what this process has written to its standard error, if that is a large file of ours; gives the file
    that has it now."""
    log = _file_of(2)
    bytes_, files = settings.log_limits()
    if log is None or log.stat().st_size <= bytes_:
        return None
    sys.stderr.flush()
    kept = [log, *(log.with_name(f"{log.name}.{number}") for number in range(1, files + 1))]
    for older, newer in zip(kept[:1:-1], kept[-2:0:-1], strict=True):
        if newer.exists():
            newer.replace(older)
    shutil.copyfile(log, kept[1])
    os.truncate(log, 0)
    return kept[1]


def _file_of(descriptor: int) -> Path | None:
    try:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        mine = stat.S_ISREG(os.fstat(descriptor).st_mode) and place.samefile(f"/proc/self/fd/{descriptor}")
    except OSError:  # closed, deleted, or a system without such names
        return None
    return place if appends and mine and place.parent == settings.home() / "logs" else None
