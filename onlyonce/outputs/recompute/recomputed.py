"""Values that describe the windows which are computed again, and the choice of their rows from a bounded read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog.outputs.backfills import Counts
from onlyonce.context.run_context import RunContext
from onlyonce.lookups.seen import Seen, Versions
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.windows import Micros


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
            function(replace(context, seen=part.seen), rows.filter(starts_in(F.col("oo_window.start"), part.span)))
            for part in self.parts
        ]
        return reduce(DataFrame.unionByName, made)

    def versions_at(self, start: Micros | None) -> Versions | None:
        """What a window that starts then sees, as the log keeps it; None without lookups."""
        found = [part for part in self.parts if start is not None and part.span.start <= start] or self.parts[:1]
        return found[-1].seen.versions or None


@dataclass(frozen=True)
class Recomputed:
    """The new rows of the windows that start in `span`.

    counts   how many (record, window) pairs in time and late they were made of; None: by the log, as the stream met them
    parts    what its windows see of the output's lookups
    """

    rows: DataFrame
    span: Span
    counts: Counts | None = None
    parts: Parts = Parts(())


def between(rows: DataFrame, low: int, high: int) -> DataFrame:
    """The rows with event times in [low, high), in microseconds."""
    time = F.col("oo_event_time")
    return rows.filter((time >= F.timestamp_micros(F.lit(low))) & (time < F.timestamp_micros(F.lit(high))))


def starts_in(column: Any, span: Span) -> Any:
    """Whether a window's start is in the span."""
    return (column >= F.timestamp_micros(F.lit(span.start))) & (column < F.timestamp_micros(F.lit(span.stop)))
