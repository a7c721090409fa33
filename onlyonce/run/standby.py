"""The place of a pipeline's long run, as a lock that its driver's session holds; and a driver that stands by, with
Spark started, until the place is free.

A heartbeat tells that a driver is lost after some beats. The database tells at once that a session has ended, by
whatever end its process came. So the next driver need not wait, and one that stands by has nothing to start. The lock
decides nothing about the data: of two drivers that both believe to be at work the epoch fences the older.

Who calls it: `onlyonce.run.stream`. Errors: those of `run`.
"""

from __future__ import annotations

import time

import structlog

from onlyonce.commitlog.long_runs import LongRuns
from onlyonce.database import locks
from onlyonce.database.connect import Database, Session
from onlyonce.model import stored_names
from onlyonce.model.errors import DatabaseAway
from onlyonce.model.run.long_run import standing_by

log = structlog.get_logger()

LOOK_SECONDS = 0.2


class Place:
    """The lock of one pipeline's long run."""

    def __init__(self, database: Database, instance: str) -> None:
        self._instance = instance
        # Not a lineage's name: a driver that starts ends the sessions of those.
        self._session = Session(Database(database.url, f"onlyonce-place/{instance}"))

    def ours(self) -> bool:
        """Whether this driver holds it, from now on at the latest. Not where the database does not say so."""
        try:
            return self._session.ask(
                lambda connection: locks.hold(connection, stored_names.long_run_lock(self._instance))
            )
        except DatabaseAway:
            return False  # a new session is asked the next time

    def leave(self) -> None:
        """Give it up."""
        self._session.close()


def wait(database: Database, instance: str, place: Place) -> bool:
    """Wait until the place is free; False where the driver that had it was asked to stop, and this one is to end as
    well."""
    seen = LongRuns(database).look(instance)
    told = False
    while True:
        released = place.ours()
        now = LongRuns(database).look(instance)
        what = standing_by(seen, now, released=released)
        if what != "wait":
            log.info("stood by", then=what)
            if what == "leave":
                place.leave()
            return what == "take"
        if not told and now:
            log.info("standing by", driver=now.driver, attempt=now.attempt)
            told = True
        time.sleep(LOOK_SECONDS)
