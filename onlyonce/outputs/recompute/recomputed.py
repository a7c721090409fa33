"""Values that describe the windows which are computed again, and the choice of their rows from a bounded read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog.outputs.backfills import Counts
from onlyonce.model.outputs.backfill import Span


@dataclass(frozen=True)
class Recomputed:
    """The new rows of the windows that start in `span`.

    counts   how many (record, window) pairs in time and late they were made of; None: by the log, as the stream met them
    """

    rows: DataFrame
    span: Span
    counts: Counts | None = None


def between(rows: DataFrame, low: int, high: int) -> DataFrame:
    """The rows with event times in [low, high), in microseconds."""
    time = F.col("oo_event_time")
    return rows.filter((time >= F.timestamp_micros(F.lit(low))) & (time < F.timestamp_micros(F.lit(high))))


def starts_in(column: Any, span: Span) -> Any:
    """Whether a window's start is in the span."""
    return (column >= F.timestamp_micros(F.lit(span.start))) & (column < F.timestamp_micros(F.lit(span.stop)))
