"""The rows of a span of windows are replaced, as a plan: files with no other rows go as they are, and what else a file
holds is written again with the new rows.

Who calls it: `sink_delta`. Errors: those of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.model.batch import to_time
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import WINDOW_START
from onlyonce.model.windows import micros
from onlyonce.sinks.content_hash import Check
from onlyonce.sinks.delta import delta_features, delta_files, delta_rows
from onlyonce.storage import table_files
from onlyonce.storage.changing import Change
from onlyonce.storage.table_files import Bounds, Held

DAY = micros(timedelta(days=1))
START = WINDOW_START


@dataclass(frozen=True)
class Replace:
    """The rows that come in the place of those whose windows start in the span.

    `date`: the column with the window's date; the table may be partitioned by it. `check`: gets what the rows hold, as
    they were written."""

    rows: DataFrame
    path: Location
    span: Span
    date: str
    check: Check | None = None

    def files(self, table: DeltaTable) -> list[Held]:
        """See `changing.Plan`."""
        delta_features.refuse_change(table, self.path)
        first, last = self.span.times[0], to_time(self.span.stop - 1)
        assert last
        asked = {}
        if self.date in table.metadata().partition_columns:
            asked[self.date] = Bounds(first.date(), last.date())
        if not asked or self.span.start % DAY or self.span.stop % DAY:
            asked[START] = Bounds(first, last)
        return table_files.holding(table, asked)

    def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
        """See `changing.Plan`."""
        there = delta_rows.schema(table)
        new = delta_rows.as_stored(self.rows, there)
        mixed = [held for held in files if not held.whole]
        if mixed:
            old = delta_rows.read(self.rows.sparkSession, self.path, table, mixed).drop(delta_rows.FILE)
            new = old.filter(~F.coalesce(self._replaced(), F.lit(False))).unionByName(new, allowMissingColumns=True)
        by = table.metadata().partition_columns
        return Change(files, delta_files.write(delta_files.placed(new, by), folder, by, self.check))

    def _replaced(self) -> Column:
        first, last = (F.timestamp_micros(F.lit(time)) for time in (self.span.start, self.span.stop - 1))
        return F.col(START).between(first, last)
