"""The records that an output rejects in a test, by the product's own rule: in time, or late and taken in by a backfill.

Who calls it: `playing`. No errors of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_WINDOW
from onlyonce.model.windows import Session, micros
from onlyonce.outputs.function import rejecting
from onlyonce.outputs.windows import windowing

Row = dict[str, Any]
END = "oo_end"


@dataclass
class Rejected:
    """What one output has rejected so far."""

    pipeline: Pipeline
    root: Output
    _rows: list[Row] = field(default_factory=list)

    def met(self, came: DataFrame) -> None:
        """Records that a batch has brought."""
        if self.root.reject:
            self._rows += self._of(came, late_too=False)

    def again(self, kept: DataFrame, closed: int, only: set[tuple[Any, ...]] | None) -> None:
        """A backfill of the windows that end up to then, or of these alone, asks anew of all records of theirs."""
        if not self.root.reject:
            return

        def meant(row: Row) -> bool:
            return row[END] <= closed and (only is None or (row["window_start"], row["window_end"]) in only)

        self._rows = [row for row in self._rows if not meant(row)]
        self._rows += [row for row in self._of(kept, late_too=True) if meant(row)]

    def told(self) -> list[Row]:
        """Each record with its window (None of a session) and the reason."""
        return [{name: value for name, value in row.items() if name != END} for row in self._rows]

    def _of(self, rows: DataFrame, *, late_too: bool) -> list[Row]:
        window, why = self.root.window, rejecting.reason(self.pipeline, self.root, rows)
        rejected = rows.withColumn(rejecting.REASON, why).filter(F.col(rejecting.REASON).isNotNull())
        none, never = F.lit(None).cast("timestamp"), F.lit(0).cast("long")
        start, end, closes = none, none, never
        if isinstance(window, Session):
            closes = F.unix_micros(OO_EVENT_TIME) + F.lit(micros(window.gap))
        elif window is not None:
            rejected = windowing.assign(rejected, window)
            start, end, closes = (
                F.col(f"{OO_WINDOW}.start"),
                F.col(f"{OO_WINDOW}.end"),
                F.unix_micros(f"{OO_WINDOW}.end"),
            )
        if window is not None and not late_too:
            rejected = rejected.filter(~windowing.is_late(window, self.root.lateness))
        columns = [F.col(f"`{name}`") for name in self.pipeline.columns()]
        found = rejected.select(
            *columns,
            start.alias("window_start"),
            end.alias("window_end"),
            F.col(rejecting.REASON).alias("reason"),
            closes.alias(END),
        )
        return [{name: _in_utc(value) for name, value in row.items()} for row in found.toArrow().to_pylist()]


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
