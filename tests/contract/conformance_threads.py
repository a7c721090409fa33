"""What `Processes` does, by threads of this process: for a sink whose writer needs the one JVM of the tests.

A kill is an exception at the fail-point, which no code on the way catches; a stop is a wait there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onlyonce import failpoints
from onlyonce.failpoints import FailPoint
from onlyonce.testing.scratch import Processes
from tests.contract.conftest import Log

PATIENCE = 120.0


class _Work(threading.Thread):
    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.error: BaseException | None = None
        self.reached, self.go_on = threading.Event(), threading.Event()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error


class Threads(Processes):
    """One piece of work in each thread. The cases don't tell it from processes."""

    def __init__(self, log: Log, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(log, folder)
        self._patch, self._folder = patch, folder
        patch.setattr(failpoints, "_strike", self._strike)

    def killed(self, work: Callable[[], None], point: str) -> None:
        """The exception gets through to here."""
        self._arm(point, "raise")
        with pytest.raises(FailPoint):
            work()
        self._disarm()

    def stopped(self, work: Callable[[], None], point: str) -> Any:
        """A thread that waits at the point."""
        self._arm(point, "stop")
        thread = self.started(work)
        assert thread.reached.wait(PATIENCE), f"{point} was not passed"
        self._disarm()
        return thread

    def started(self, work: Callable[[], None], point: str = "", action: str = "") -> Any:
        """A thread."""
        thread = _Work(work)
        thread.start()
        return thread

    def ends(self, *children: Any) -> list[int]:
        """0 for each that has ended well."""
        for thread in children:
            thread.go_on.set()
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a thread does not end"
        return [int(thread.error is not None) for thread in children]

    def _has_ended(self, child: Any) -> bool:
        return not child.is_alive()

    def _arm(self, point: str, action: str) -> None:
        self._number += 1
        counts = self._folder / f"{self._number}"
        counts.mkdir()
        self._patch.setenv("ONLYONCE_FAILPOINT_DIR", str(counts))
        self._patch.setattr(failpoints, "_POINTS", {point: (1, action)})

    def _disarm(self) -> None:
        self._patch.setattr(failpoints, "_POINTS", {})

    def _strike(self, name: str, action: str) -> None:
        thread = threading.current_thread()
        if action == "raise" or not isinstance(thread, _Work):
            raise FailPoint(f"fail-point {name}")
        thread.reached.set()
        assert thread.go_on.wait(PATIENCE)
