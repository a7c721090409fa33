"""A long run: one driver that takes in what comes until it is asked to stop. This module keeps its row in the log; its
queries are in `onlyonce.run.continuous`.

It looks for new input at an interval. A turn is a look after which each query has made progress, or had nothing to do.
docs/specification/long-run.md. Who calls it: `onlyonce.run.stream`.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from uuid import uuid4

import structlog

from onlyonce import log_rotation, settings
from onlyonce.commitlog import long_runs
from onlyonce.commitlog.long_runs import LongRuns
from onlyonce.database.connect import Database
from onlyonce.model.errors import OnlyonceError, Superseded
from onlyonce.model.run.isolation import first_line
from onlyonce.model.run.long_run import Stopped
from onlyonce.run.standby import Place

log = structlog.get_logger()


class LongRun:
    """A driver's place in the log, kept by a heartbeat of its own thread: a batch may take longer than a beat.

    Not promised: that a driver which hangs is found by its heartbeat; `onlyonce.long_runs.turn_at` tells that.
    """

    def __init__(self, database: Database, taken: long_runs.Taken, place: Place) -> None:
        self.taken, self._place = taken, place
        # Not a lineage's name: a driver that starts ends the sessions of those.
        self._database = Database(database.url, f"onlyonce-long-run/{taken.instance}")
        self._turns = 0
        self._down: Mapping[str, str] = {}
        self._asked = threading.Event()
        self._overtaken: Superseded | None = None
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._done = threading.Event()

    def between_batches(self) -> None:
        """Called where the next batch would begin. Raises Stopped, or Superseded when another took this one's place."""
        if self._overtaken:
            raise self._overtaken
        if self._asked.is_set():
            raise Stopped

    def stop(self) -> None:
        """Ask this driver to stop, from inside its process."""
        self._asked.set()

    def tell_down(self, down: Mapping[str, str]) -> None:
        """Which outputs stand still, and why: the next heartbeat has it."""
        self._down = down

    def turns(self, look: Callable[[], bool], every: timedelta) -> None:
        """Look after look, one for each interval, until `between_batches` raises.

        `look` gives whether a turn is done by it.
        """
        while True:
            self.between_batches()
            self._turns += look()
            self._asked.wait(every.total_seconds())

    def start(self) -> None:
        """Let the heart beat."""
        self._thread.start()

    def end(self, exit_code: int, why: str | None) -> None:
        """The heart stops, and the log says how."""
        self._done.set()
        self._thread.join()
        LongRuns(self._database).end(self.taken, self._turns, exit_code, why)

    def _beat(self) -> None:
        while not self._done.wait(settings.heartbeat_seconds()):
            try:
                log_rotation.rotate()
                self._place.ours()  # a session that broke has left it
                if LongRuns(self._database).beat(self.taken, self._turns, self._down):
                    self._asked.set()
            except Superseded as error:
                self._overtaken = error
                self._asked.set()  # ends a wait between two looks
                return
            except Exception as error:  # a heart that stopped by itself would look like a dead driver
                log.warning("no heartbeat", problem=first_line(error))


@contextmanager
def held(
    database: Database, instance: str, run_id: str, every: timedelta, place: Place | None = None
) -> Iterator[LongRun]:
    """Hold the pipeline's place for a long run; a stop, by the log or by a signal, ends the block without an error.

    However the block ends, its heart stops.

    Raises Superseded when another long run is alive, and what the block raises: the log then has it as its end.
    """
    name = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
    beat = timedelta(seconds=settings.heartbeat_seconds())
    place = place or Place(database, instance)
    released = place.ours()
    taken = LongRuns(database).take(instance, run_id, name, every=every, beat=beat, released=released)
    mine = LongRun(database, taken, place)
    mine.start()
    log.info("long run begun", attempt=taken.attempt, driver=name)
    try:
        with _stopped_by_signals(mine), suppress(Stopped):
            yield mine
    except BaseException as error:
        with suppress(OnlyonceError):  # where the log is away its heartbeat tells the same
            mine.end(error.exit_code if isinstance(error, OnlyonceError) else 1, first_line(error))
        raise
    else:
        mine.end(0, None)
        log.info("long run stopped", attempt=taken.attempt)
    finally:
        place.leave()


@contextmanager
def _stopped_by_signals(mine: LongRun) -> Iterator[None]:
    before = {which: signal.getsignal(which) for which in (signal.SIGTERM, signal.SIGINT)}

    def put_back() -> None:
        for which, handler in before.items():
            signal.signal(which, handler)

    def ask(_: int, __: FrameType | None) -> None:
        mine.stop()
        put_back()  # a second one ends the driver at once

    for which in before:
        signal.signal(which, ask)
    try:
        yield
    finally:
        put_back()
