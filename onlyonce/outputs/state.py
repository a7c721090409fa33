"""Apply the processor of an output with state of its own: in a stream by Spark's own operator, in a batch key by key.

A processor gets a key's records of a batch in order of event time, and records of one time in the order of their ids.
Spark passes them in the order in which tasks were ready. A processor that depends on their order would then have
another state after a replay. All records of a key in one batch must fit in a worker's memory.
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
from onlyonce.core.stored_names import OO_EVENT_TIME, OO_HIGH, OO_INGESTION_TIME, OO_LOW
from onlyonce.core.windows import Micros, micros
from onlyonce.engine.session import quoted
from onlyonce.engine.state import PROVIDER, PROVIDERS

RECORD_ID = (OO_HIGH, OO_LOW)
"""The columns of a record's id, which orders records of one event time. A processor does not see them."""


def in_order(frames: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """Return records as one frame, in order."""
    records = pd.concat(list(frames), ignore_index=True)
    return records.sort_values([OO_EVENT_TIME, *RECORD_ID], kind="stable", ignore_index=True).drop(
        columns=list(RECORD_ID)
    )


class Ordered(StatefulProcessor):
    """A user's processor that gets its records in order. The names of the parameters are Spark's."""

    def __init__(self, mine: StatefulProcessor) -> None:
        self._mine = mine

    def init(self, handle: Any) -> None:
        """Pass Spark's handle to the user's processor."""
        self._mine.init(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        """Pass all records of the key as one frame."""
        return self._mine.handleInputRows(key, iter([in_order(rows)]), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        """Pass a timer of the user's."""
        return self._mine.handleExpiredTimer(key, timerValues, expiredTimerInfo)

    def close(self) -> None:
        """End a task."""
        self._mine.close()


# Play a processor over all records of one key, outside of a stream. First come the records, in order of event time,
# then its timers, as at the end of an input. The state is Spark's own in memory, by its `TwsTester`. The rows may
# differ from a stream's rows if the processor depends on how its records are split into batches.


class Alone:
    """A processor, the names of its output columns, and how far after a key's newest record the key's timers fire."""

    def __init__(self, processor: StatefulProcessor, columns: list[str], within: Micros) -> None:
        self._processor, self._columns, self._within = processor, columns, within

    def rows(self, key: tuple[Any, ...], records: pd.DataFrame) -> pd.DataFrame:
        """Return the processor's rows for a key with these records."""
        mine = copy.deepcopy(self._processor)
        # The tester calls `init` with its state in memory, and fires the timers. The records are passed without it: it
        # would drop records that it takes for late, row by row.
        tester = spark_tester()(_OfTester(mine), timeMode="EventTime", eventTimeExtractor=lambda _: 0)
        tester.handle.setGroupingKey(key)
        frames = list(mine.handleInputRows(key, iter([in_order(iter([records]))]), TimerValues(0, 0)))
        frames += tester.setWatermark(self._end(records))
        mine.close()
        filled = [frame for frame in frames if len(frame)]
        return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=self._columns)

    def _end(self, records: pd.DataFrame) -> int:
        """Return the end of the input in milliseconds, rounded up."""
        last = pd.Timestamp(records[OO_EVENT_TIME].max()).value // 1000 + self._within
        return max(-(-last // 1000), 1)


def spark_tester() -> Any:
    """Return Spark's own tester. Raise Refused if this process's Spark has none (before 4.2)."""
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
    """Unpack the key: Spark's tester passes it in a tuple of its own, and the key is a tuple already."""

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return super().handleExpiredTimer(key[0], timerValues, expiredTimerInfo)


# Apply the processor. Timers follow Spark's watermark, which the platform decides: Spark takes it from the control rows
# of `events` only (`windows.in_stream`). So no record in time is behind a timer that has fired. Spark gives a repeated
# batch the state and the timers of the batch before. Spark's operator does not fire timers in a batch query, so a
# bounded run plays the processor itself.


NOTHING = "nothing was written"


def applied_processor(pipeline: Pipeline, output: Output, rows: DataFrame) -> DataFrame:
    """Return the rows that the processor makes of these rows of `events`.

    Raise Refused for a missing processor or key, and for a state store that can't hold such a state.
    """
    declared = output.stateful
    assert declared is not None
    processor = functions.made_processor(declared.processor, f"output {output.name}", declarations.transform(output))
    columns = [*pipeline.columns(), OO_EVENT_TIME, OO_INGESTION_TIME]
    keyed = rows.select(*map(quoted, [*columns, *RECORD_ID])).groupBy(*[F.col(quoted(key)) for key in declared.keys])
    if not rows.isStreaming:
        spark_tester()  # refuse here, and not in a task
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
