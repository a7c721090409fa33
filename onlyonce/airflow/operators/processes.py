"""Finds the processes of a driver that runs beside its task, and ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

# Airflow sends SIGTERM and five seconds later SIGKILL.
_KILL_PATIENCE = 3.0


def end_drivers(application: str) -> None:
    """End what this process has started for an application: spark-submit, the JVM, its Python, and their workers."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if application in child.cmdline():
                end_tree(child.pid)


def end_tree(pid: int) -> None:
    """End a process and all that it started: ask first, so that Spark removes its temporary files."""
    try:
        root = psutil.Process(pid)
        tree = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    _each([root.terminate, *(process.terminate for process in tree)])
    # Not psutil's wait: it would take the exit code away from who waits, and a killed driver look like a success.
    end = time.monotonic() + _KILL_PATIENCE
    while _runs(root) and time.monotonic() < end:
        time.sleep(0.05)
    _, tree = psutil.wait_procs(tree, timeout=0.5)
    _each([root.kill, *(process.kill for process in tree)])


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _each(signals: Iterable[Callable[[], None]]) -> None:
    for signal in signals:
        with suppress(psutil.NoSuchProcess):
            signal()
