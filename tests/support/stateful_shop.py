"""Records of some shops, and a processor that tells of each shop's silences: state and timers for each shop, into one
of two kinds of tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres, Stateful
from onlyonce.core.windows import Fixed
from onlyonce.failpoints import passing

ME = "tests.support.stateful_shop"
GAP = timedelta(seconds=20)
WATERMARK_DELAY = timedelta(seconds=10)
MINUTE = Fixed(timedelta(minutes=1))
GAP_MS = GAP // timedelta(milliseconds=1)
COLUMNS = ("shop", "what", "at", "id", "records")


class Silences(StatefulProcessor):
    """A row for each record as it comes, and one for each time after which a shop has had no record for the gap, with
    its records up to then.

    What it gives does not depend on the batches in which records come: a silence is known when no record in time can
    end it.
    """

    def init(self, handle: Any) -> None:
        """How many records there are at each time that may be followed by a silence, and how many before."""
        self.handle = handle
        self.seen = handle.getMapState("seen", "at long", "records long")
        self.before = handle.getValueState("before", "records long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """The records, and a timer for each of their times."""
        passing("processor-rows")
        for frame in rows:
            assert frame["oo_event_time"].is_monotonic_increasing
            times = frame["oo_event_time"].astype("datetime64[ms]")
            for at, count in times.astype("int64").value_counts().items():
                known = self.seen.getValue((int(at),)) if self.seen.containsKey((int(at),)) else (0,)
                self.seen.updateValue((int(at),), (known[0] + int(count),))
                self.handle.registerTimer(int(at) + GAP_MS)
            yield pd.DataFrame({"shop": key[0], "what": "came", "at": times, "id": frame["id"], "records": None})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """A silence, unless a record has ended it."""
        passing("processor-timer")
        at = expiredTimerInfo.getExpiryTimeInMs() - GAP_MS
        seen = {time: count for (time,), (count,) in self.seen.iterator()}
        records = (self.before.get()[0] if self.before.exists() else 0) + sum(
            count for time, count in seen.items() if time <= at
        )
        for time in seen:
            if time <= at:
                self.seen.removeKey((time,))
        self.before.update((records,))
        if not any(at < time <= at + GAP_MS for time in seen):
            when = pd.to_datetime([at], unit="ms")
            yield pd.DataFrame({"shop": [key[0]], "what": ["silent"], "at": when, "id": [None], "records": [records]})

    def close(self) -> None:
        """Nothing is open."""


class LastSilences(Silences):
    """The silences alone."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Nothing."""
        for _ in super().handleInputRows(key, rows, timerValues):
            pass
        yield from ()


SCHEMA = "shop string, what string, at timestamp, id string, records long"


def silences() -> Stateful:
    """The declaration."""
    return Stateful(processor=f"{ME}:Silences", keys="shop", schema=SCHEMA, timers_within=GAP)


def last() -> Stateful:
    """Of an upsert."""
    return Stateful(processor=f"{ME}:LastSilences", keys="shop", schema=SCHEMA, timers_within=GAP)


def pipeline(name: str, sink: Delta | Postgres, stateful: Stateful) -> Pipeline:
    """A pipeline with one output."""
    return Pipeline(
        name=name,
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp",
        record_id="id",
        event_time="at",
        outputs=Output(name="silences", stateful=stateful, window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=sink),
    )


PIPELINES = [
    pipeline("shop", Delta(), silences()),
    pipeline("till", Postgres(table="results.silences", write="append"), silences()),
    pipeline("last", Postgres(table="results.last", write="upsert", keys="shop", sequence_by="at"), last()),
    pipeline("last_in_delta", Delta(write="upsert", keys="shop", sequence_by="at"), last()),
]
