"""Write the jobs' log lines, and bound the log file of a process that runs for long.

Each line is key=value, with pipeline, run and attempt; a query's lines also have its incarnation and epoch, a unit's
lines the unit. Logs show work and not commits: a line may come twice, and may get lost.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from onlyonce import environment, settings
from onlyonce.core.runs import Report


def rotate() -> Path | None:
    """Copy this process's standard error aside and empty it, if it is a large file of ours; return the copy.

    The JVM and Python both have the file open, so it keeps its name and its inode. A line that is written between copy
    and truncation is lost. Only a file in `<home>/logs` that is open for appending is touched, never another program's
    file, pipe or terminal. Raise OSError if the copy fails.
    """
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


_listeners: list[Callable[[Mapping[str, Any]], None]] = []


@contextmanager
def heard_by(listener: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
    """Call the listener with the values of each log line inside the block, on the thread that writes it: it must be
    quick."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def configure(**always: str) -> None:
    """Send log lines to standard error, each with these values. ONLYONCE_LOG=json makes them JSON.

    The attempt is Airflow's try of the task; at the shell it is 1. Values are the process's and not the thread's: Spark
    calls batch functions on threads of its own.
    """
    values = {**always, "attempt": environment.variable("AIRFLOW_CTX_TRY_NUMBER") or "1"}

    def add_always(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**event, **{key: value for key, value in values.items() if key not in event}}

    last = structlog.processors.JSONRenderer() if settings.log_format() == "json" else _lines()
    structlog.configure(
        processors=[
            add_always,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _told_to_listeners,
            last,
        ],
        # Standard error as it is when a line is written: the present one may be closed by then.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def tell(report: Report) -> None:
    """Write a report to the log, as the end of a task: what is committed, read from the log."""
    log = structlog.get_logger()
    log.info("report", title=report.title, **{k.replace(" ", "_"): v for k, v in report.facts.items()})
    for name, rows in report.tables.items():
        for row in rows:
            log.info(name, **{("of" if k == "event" else k): _plain(v) for k, v in row.items() if v is not None})
    for warning in report.warnings:
        log.warning(warning)


def _lines() -> structlog.typing.Processor:
    return structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"], drop_missing=True)


def _told_to_listeners(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    for listener in _listeners:
        listener(event)
    return event


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str | bool) else json.loads(json.dumps(value, default=str))
