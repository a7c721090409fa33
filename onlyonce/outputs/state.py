"""The user's processor as Spark calls it: it gets a key's records of a batch in order of event time, those of one time
in an order that stays.

Spark gives them in the order in which tasks were ready. A processor that looks at their order would then have another
state after a replay.

Who calls it: `applying`, and Spark's Python workers. Errors: those of the user's class. Not promised: memory for a key
with more records in one batch than fit in a worker.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.stateful_processor import TimerValues

from onlyonce.api import functions
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import OO_EVENT_TIME, OO_HIGH, OO_LOW, OO_SYSTEM_TIME
from onlyonce.core.windows import Micros, micros
from onlyonce.engine.session import quoted
from onlyonce.engine.state import PROVIDER, PROVIDERS

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


# Plays a processor over all records of one key, outside of a stream: first the records, in order of event time, then
# its timers, as at the end of an input.
#
# The state is Spark's own in memory, as its `TwsTester` has it.
#
# Who calls it: `applying`, for a bounded run, `onlyonce replay`, and the look for a record at which a processor fails.
# Errors: those of the user's class; Refused by a Spark without the tester (before 4.2). Not promised: the rows of a
# stream, if the processor gives others when its records come in other batches.


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


# Applies the processor of an output with state of its own.
#
# As a stream it is Spark's own operator, as a batch each key is played by itself.
#
# Timers go by Spark's watermark, and that is the platform's (`windowing`): control rows alone carry it. So no record in
# time is behind a timer that has fired. Spark gives a batch that is tried again the state and the timers of the batch
# before. Its own batch does not fire timers, so a batch is not Spark's.
#
# Who calls it: `results`. Errors: Refused for a processor or a key that is not there, and for a state store that can't
# hold such a state.


NOTHING = "nothing was written"


def applied_processor(pipeline: Pipeline, output: Output, rows: DataFrame) -> DataFrame:
    """The rows that the processor gives for these rows of `events`. Raises Refused."""
    declared = output.stateful
    assert declared is not None
    processor = functions.made_processor(declared.processor, f"output {output.name}", declarations.transform(output))
    columns = [*pipeline.columns(), OO_EVENT_TIME, OO_SYSTEM_TIME]
    keyed = rows.select(*map(quoted, [*columns, *PLACE])).groupBy(*[F.col(quoted(key)) for key in declared.keys])
    if not rows.isStreaming:
        spark_tester()  # refused here, and not in a task
        alone = Alone(processor, declared.columns(), micros(declared.timers_within))
        return keyed.applyInPandas(lambda key, records: alone.rows(key, records), declared.schema)
    _refuse_other_store(output, rows)
    return keyed.transformWithStateInPandas(Ordered(processor), declared.schema, "append", "eventTime")


def _refuse_other_store(output: Output, rows: DataFrame) -> None:
    if rows.sparkSession.conf.get(PROVIDER, "") == PROVIDERS["rocksdb"]:
        return
    raise Refused(
        f"output {output.name}: Spark keeps the state of a processor in RocksDB only, and the state store is set "
        "to another",
        data=NOTHING,
        hint="ONLYONCE_STATE=rocksdb, which is the default",
    )
