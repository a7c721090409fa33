"""End a run by a signal between two batches, and say immediately that it was received."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType

import structlog

from onlyonce.core.runs import Stopped

STOPPING = "stopping"
"""The event of the log line that acknowledges a signal; `after` says what the run finishes first."""

log = structlog.get_logger()


class Interrupts:
    """Call `ask` on the first of some signals inside the block. A second signal ends the process immediately.

    Only the main thread gets signals, so in another thread the block changes nothing.
    """

    def __init__(self, ask: Callable[[], None], *signals: signal.Signals) -> None:
        self._ask, self._signals = ask, signals if threading.current_thread() is threading.main_thread() else ()
        self._before = {which: signal.getsignal(which) for which in self._signals}
        self._starting, self._heard = True, False
        self.by = ""
        """The signal that a person has sent, as they know it; empty: none has come."""
        self._said: threading.Thread | None = None

    def __enter__(self) -> Interrupts:
        """Take the signals."""
        self._set(dict.fromkeys(self._signals, self._hear))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Give the signals back. Raise Stopped if a signal came before Spark had started."""
        self._set(self._before)
        if self._said:
            self._said.join()
        if self._heard and self._starting and isinstance(error, KeyboardInterrupt):
            raise Stopped from None

    def started(self) -> None:
        """Note that Spark has started, and replace its signal handlers by ours: its own would cancel the current batch.

        Before that call a signal ends the block immediately, since nothing is begun.
        """
        self._starting = False
        if not self._heard:
            self.__enter__()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard, self.by = True, "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self._set(self._before)
        after = "Spark's start" if self._starting else "the current batches"
        # On a thread of its own: the signal may have come while this thread was writing a log line.
        self._said = threading.Thread(target=log.info, args=(STOPPING,), kwargs={"after": after})
        self._said.start()
        self._ask()
        if self._starting:
            raise KeyboardInterrupt

    def _set(self, handlers: Mapping[signal.Signals, object]) -> None:
        for which, handler in handlers.items():
            signal.signal(which, handler)  # type: ignore[arg-type]
