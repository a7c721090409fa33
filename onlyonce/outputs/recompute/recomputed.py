"""Values that describe the windows which are computed again, and the choice of their rows from a bounded read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog.outputs.backfills import Counts
from onlyonce.context.run_context import RunContext
from onlyonce.lookups.seen import Seen
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_WINDOW


@dataclass(frozen=True)
class Part:
    """The windows that start in a span, and the tables that they see."""

    span: Span
    seen: Seen


@dataclass(frozen=True)
class Parts:
    """All windows of a backfill."""

    parts: tuple[Part, ...]

    def over(
        self, context: RunContext, rows: DataFrame, function: Callable[[RunContext, DataFrame], DataFrame]
    ) -> DataFrame:
        """A function over the rows (with `oo_window`) of each part, with the tables of that part, put together."""
        if len(self.parts) == 1:
            return function(replace(context, seen=self.parts[0].seen), rows)
        made = [
            function(replace(context, seen=part.seen), rows.filter(starts_in(F.col(f"{OO_WINDOW}.start"), part.span)))
            for part in self.parts
        ]
        return reduce(DataFrame.unionByName, made)

    def versions_at(self, starts: pa.ChunkedArray) -> pa.Array:
        """What the windows that start at these times see, as the log keeps it: JSON; null without lookups."""
        seen = [json.dumps(part.seen.versions) if part.seen.versions else None for part in self.parts]
        begun = np.searchsorted(
            [part.span.start for part in self.parts], starts.cast(pa.int64()).to_numpy(), side="right"
        )
        return pa.array(seen, pa.string()).take(pa.array(np.maximum(begun - 1, 0)))


@dataclass(frozen=True)
class Recomputed:
    """The new rows of the windows that start in `span`.

    counts   how many (record, window) pairs in time and late they were made of; None: by the log, as the stream met
             them
    parts    what its windows see of the output's lookups
    """

    rows: DataFrame
    span: Span
    counts: Counts | None = None
    parts: Parts = Parts(())


def between(rows: DataFrame, low: int, high: int) -> DataFrame:
    """The rows with event times in [low, high), in microseconds."""
    time = F.col(OO_EVENT_TIME)
    return rows.filter((time >= F.timestamp_micros(F.lit(low))) & (time < F.timestamp_micros(F.lit(high))))


def starts_in(column: Any, span: Span) -> Any:
    """Whether a window's start is in the span."""
    return (column >= F.timestamp_micros(F.lit(span.start))) & (column < F.timestamp_micros(F.lit(span.stop)))
