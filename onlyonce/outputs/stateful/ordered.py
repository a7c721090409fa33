"""The user's processor as Spark calls it: it gets a key's records of a batch in order of event time, those of one time
in an order that stays.

Spark gives them in the order in which tasks were ready. A processor that looks at their order would then have another
state after a replay.

Who calls it: `applying`, and Spark's Python workers. Errors: those of the user's class. Not promised: memory for a key
with more records in one batch than fit in a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

from onlyonce.model.stored_names import OO_EVENT_TIME, OO_HIGH, OO_LOW

PLACE = (OO_HIGH, OO_LOW)
"""The id of a record, by which those of one event time are ordered. A processor does not see it."""


def in_order(frames: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """Some records as one frame."""
    records = pd.concat(list(frames), ignore_index=True)
    return records.sort_values([OO_EVENT_TIME, *PLACE], kind="stable", ignore_index=True).drop(columns=list(PLACE))


class Ordered(StatefulProcessor):
    """A processor of the user's, given its records in order. The names of the parameters are Spark's."""

    def __init__(self, mine: StatefulProcessor) -> None:
        self._mine = mine

    def init(self, handle: Any) -> None:
        """Spark's own handle goes on to the user's processor."""
        self._mine.init(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        """One frame with all records of the key."""
        return self._mine.handleInputRows(key, iter([in_order(rows)]), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        """A timer of the user's."""
        return self._mine.handleExpiredTimer(key, timerValues, expiredTimerInfo)

    def close(self) -> None:
        """The end of a task."""
        self._mine.close()
