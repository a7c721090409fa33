"""The outputs of a long run that stand still.

The threads of the outputs and the thread that watches them share it. docs/specification/long-run.md.

Who calls it: `onlyonce.run.continuous`. Errors: the error that the run ends with when every output stands still.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import structlog

from onlyonce.context.query import LOOK_SECONDS
from onlyonce.model.run.isolation import cause_of, first_line, for_good

log = structlog.get_logger()

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until an output that failed is tried again: twice as long each time in a row."""


class Down:
    """Which outputs stand still, and by what error, in the order in which that was found."""

    def __init__(self, outputs: Sequence[str], tell: Callable[[Mapping[str, str]], None]) -> None:
        self.found: dict[str, BaseException] = {}
        self._outputs, self._tell, self._lock = outputs, tell, Lock()
        self._pauses: dict[str, float] = {}

    @property
    def up(self) -> list[str]:
        """The outputs that do not stand still."""
        return [name for name in self._outputs if name not in self.found]

    def add(self, name: str, error: BaseException) -> float | None:
        """An output failed.

        Gives after how many seconds to try it again; None: that would not help. Raises what the run ends with if no
        other is up."""
        log.error("output stands still", output=name, kind=type(error).__name__, what=str(error))
        with self._lock:
            self.found[name] = error
            self._told()
            if not self.up:
                raise cause_of(self.found)
            if for_good(error):
                return None
            pause = self._pauses.get(name, FIRST_PAUSE)
            self._pauses[name] = min(2 * pause, LONGEST_PAUSE)
            return pause

    def mended(self, name: str) -> None:
        """An output is up again."""
        with self._lock:
            if self.found.pop(name, None):
                self._pauses.pop(name, None)
                self._told()
                log.info("output is up again", output=name)

    def wait(self, seconds: float, between_batches: Callable[[], None]) -> None:
        """Let a pause pass. Raises what `between_batches` does."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            between_batches()
            time.sleep(min(seconds, LOOK_SECONDS))

    def _told(self) -> None:
        self._tell({name: first_line(error) for name, error in self.found.items()})
