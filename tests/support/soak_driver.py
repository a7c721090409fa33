"""One driver of a soak: a run of the stream in a session of its own, which faults strike from outside."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from contextlib import suppress

import psutil

from tests.support.platform import JOB_TIMEOUT, Platform
from tests.support.soak_input import PIPELINE


class Driver:
    """A run that was started. Its output is read as it comes, so that it never waits for a reader."""

    def __init__(self, platform: Platform, *arguments: str) -> None:
        self._process = platform.start(PIPELINE, "--max-files", "120", *arguments)
        self._lines: deque[str] = deque(maxlen=400)
        self.struck: list[str] = []
        self.is_stopped = self.is_replaced = False
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def code(self) -> int | None:
        """Its exit code; None while it lives."""
        return self._process.poll()

    @property
    def output(self) -> str:
        """The last lines that it wrote."""
        return "".join(self._lines)

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        return self._process.wait(JOB_TIMEOUT * 4)

    def stop(self) -> None:
        """SIGSTOP to the driver, its JVM and its Python workers."""
        self.is_stopped = True
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT to them."""
        self.is_stopped = False
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to all of them; what one of them has started meanwhile goes in the next round."""
        while self._signal(signal.SIGKILL):
            pass
        self._process.wait(JOB_TIMEOUT)

    def workers(self) -> list[psutil.Process]:
        """The Python workers of its tasks, without the daemon that forks them."""
        found = []
        for process in self._session():
            with suppress(psutil.Error):
                parent = process.parent()
                if _is_python_of_spark(process) and parent is not None and _is_python_of_spark(parent):
                    found.append(process)
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines.extend(self._process.stdout)

    def _session(self) -> list[psutil.Process]:
        # Of one session, not of one process group: Spark regroups its workers.
        found = []
        for pid in psutil.pids():
            with suppress(ProcessLookupError, psutil.Error):
                if os.getsid(pid) == self._process.pid:
                    process = psutil.Process(pid)
                    found += [process] if process.status() != psutil.STATUS_ZOMBIE else []
        return found

    def _signal(self, which: signal.Signals) -> int:
        session = self._session()
        for process in session:
            with suppress(psutil.Error):
                process.send_signal(which)
        return len(session)


PYTHONS_OF_SPARK = ("pyspark.daemon", "pyspark/daemon", "engine.worker_daemon", "engine/worker_daemon")
"""Spark's own daemon and ours; a worker is a fork of one of them."""


def _is_python_of_spark(process: psutil.Process) -> bool:
    return any(name in part for part in process.cmdline() for name in PYTHONS_OF_SPARK)
