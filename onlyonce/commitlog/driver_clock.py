"""Compares the clock of a driver with PostgreSQL's, before the driver's clock becomes the ingestion time of new input.

Ingestion time never moves back. So one registration by a driver whose clock is far ahead would stop the gc of ids,
`max_ahead` and the closing of idle sources until the real time has come as far. Errors: Refused; those of the
connection.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from onlyonce.commitlog.driver_runs import DriverRuns
from onlyonce.database.connect import Database
from onlyonce.model.errors import Refused

MOST_SECONDS = 300.0
AGAIN_SECONDS = 600.0
"""Two clocks drift apart slowly: after so long they are compared again."""
STEP_SECONDS = 1.0
"""A clock that was set moves against the steady clock by more than this: it is compared again at once."""


@dataclass
class DriverClock:
    """The clock of this process, for one run."""

    database: Database
    _last: tuple[float, float] | None = field(default=None, init=False)

    def check(self) -> None:
        """Raise Refused if the clock differs from PostgreSQL's by more than five minutes.

        Ask only if it may have changed since the last check.
        """
        steady, offset = time.monotonic(), time.time() - time.monotonic()
        if self._last and steady - self._last[0] < AGAIN_SECONDS and abs(offset - self._last[1]) < STEP_SECONDS:
            return
        before, theirs = DriverRuns(self.database).clock(time.time)
        after = time.time()
        if theirs < before - MOST_SECONDS or theirs > after + MOST_SECONDS:
            apart = timedelta(seconds=round(abs(theirs - after)))
            raise Refused(
                f"the clock of this driver shows {_shown(after)}, and PostgreSQL's {_shown(theirs)}: they differ "
                f"by {apart}",
                data="no new input was registered; its ingestion time would be wrong, and could not be set back",
                hint="set the clocks of both machines (timedatectl and chronyc tracking show the state of NTP), "
                "then run the same command again",
            )
        self._last = steady, offset


def _shown(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
