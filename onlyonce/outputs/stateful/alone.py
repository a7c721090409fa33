"""Plays a processor over all records of one key, outside of a stream: first the records, in order of event time, then
its timers, as at the end of an input.

The state is Spark's own in memory, as its `TwsTester` has it.

Who calls it: `applying`, for a bounded run, `onlyonce replay`, and the look for a record at which a processor fails.
Errors: those of the user's class; Refused by a Spark without the tester (before 4.2). Not promised: the rows of a
stream, if the processor gives others when its records come in other batches.
"""

from __future__ import annotations

import copy
from typing import Any

import pandas as pd
import pyspark
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.stateful_processor import TimerValues

from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import OO_EVENT_TIME
from onlyonce.model.windows import Micros
from onlyonce.outputs.stateful.ordered import Ordered, in_order


class Alone:
    """A processor with the names of the columns that it gives, and how far after its newest record a key's timers
    fire."""

    def __init__(self, processor: StatefulProcessor, columns: list[str], within: Micros) -> None:
        self._processor, self._columns, self._within = processor, columns, within

    def rows(self, key: tuple[Any, ...], records: pd.DataFrame) -> pd.DataFrame:
        """What the processor gives for a key with these records."""
        mine = copy.deepcopy(self._processor)
        played = spark_tester()(_OfTester(mine), timeMode="EventTime", eventTimeExtractor=lambda _: 0)
        played.handle.setGroupingKey(key)
        given = list(mine.handleInputRows(key, iter([in_order(iter([records]))]), TimerValues(0, 0)))
        given += played.setWatermark(self._end(records))
        mine.close()
        filled = [frame for frame in given if len(frame)]
        return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=self._columns)

    def _end(self, records: pd.DataFrame) -> int:
        """In milliseconds, rounded up."""
        last = pd.Timestamp(records[OO_EVENT_TIME].max()).value // 1000 + self._within
        return max(-(-last // 1000), 1)


def spark_tester() -> Any:
    """Spark's own tester. Raises Refused where the Spark of this process has none."""
    try:
        from pyspark.sql.streaming import TwsTester
    except ImportError:
        raise Refused(
            "a processor is played over all records of a key by Spark's TwsTester, and pyspark "
            f"{pyspark.__version__} has none",
            data="nothing was written. A stream of this output does not need it",
            hint="a bounded run, `onlyonce replay` and the look for a record at which a processor fails: by "
            "pyspark 4.2 or newer",
        ) from None
    return TwsTester


class _OfTester(Ordered):
    """Spark's tester gives a key in a tuple of its own, and ours is one."""

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return super().handleExpiredTimer(key[0], timerValues, expiredTimerInfo)
