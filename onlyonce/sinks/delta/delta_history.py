"""Histories (SCD type 2) in Delta, as `postgres_history` has them: each change is a version of its key's row, with the
time from which and to which it held.

A version ends where the next change of its key begins, by the order of `newest_by`. A delete is no version: it ends the
one before it, and is kept in the table beside, by a commit before. What a key has in the table, what the batch brings
and what is beside are put in order together. The versions that are new, and those that end elsewhere than they did, are
then upserted by key and position. What was written before is written over itself.

Who calls it: `sink_delta`. Errors: those of Spark. Not promised: that times grow. Where the source's clock went back, a
version ends before it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, TimestampType

from onlyonce.declare.outputs.sinks import Delta
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import IS_CURRENT, VALID_FROM, VALID_TO
from onlyonce.session.names import quoted
from onlyonce.sinks.delta import delta_features, delta_rows, delta_upsert
from onlyonce.storage import opening, table_files
from onlyonce.storage.beside import beside
from onlyonce.storage.changing import Change
from onlyonce.storage.table_files import Bounds, Held

ENDS = (StructField(VALID_TO, TimestampType()), StructField(IS_CURRENT, BooleanType()))
"""The columns that the platform computes."""
NEW, GONE, UNTIL, NEWEST = "oo_new", "oo_gone", "oo_until", "oo_newest"
"""Of a change: whether the batch brings it, whether it is a delete, and the ends that are found for it."""


@dataclass(frozen=True, eq=False)
class History:
    """The changes of a batch, deletes among them, for the history at `path`."""

    rows: DataFrame
    path: Location
    sink: Delta

    def files(self, table: DeltaTable) -> list[Held]:
        """See `changing.Plan`: those with any version of a key of the batch."""
        delta_features.refuse_change(table, self.path)
        return table_files.holding(table, self._bounds(tuple(table.metadata().partition_columns)))

    def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
        """See `changing.Plan`."""
        return self._upsert(table, files).write(table, files, folder)

    def merged(self, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
        """See `delta_fit.Merges`."""
        return self._upsert(table, files).merged(table, files)

    def _upsert(self, table: DeltaTable, files: Sequence[Held]) -> delta_upsert.Upsert:
        return delta_upsert.Upsert(self._moved(self._changes(table, files)), self.path, self._identity)

    @property
    def _identity(self) -> tuple[str, ...]:
        return (*self.sink.keys, *self.sink.newest_by)

    @lru_cache(maxsize=1)  # noqa: B019 - a plan lives as long as its batch
    def _bounds(self, partitions: tuple[str, ...]) -> dict[str, Bounds]:
        return delta_upsert.bounds(self.rows, self.sink.keys, partitions)

    def _changes(self, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
        """All changes of the keys of the batch: those of the batch, of the table, and the deletes beside."""
        there = delta_rows.schema(table)
        came = (
            self.rows.filter(~F.col(quoted(self.sink.deletes))).drop(self.sink.deletes)
            if self.sink.deletes
            else self.rows
        )
        came = delta_rows.as_stored(came, there)
        kept = self._of_keys(delta_rows.read(self.rows.sparkSession, self.path, table, files).drop(delta_rows.FILE))
        kept = kept.join(came.alias("s"), delta_upsert.matched(self._identity), "left_anti")
        found = _marked(came, new=True).unionByName(_marked(kept, new=False), allowMissingColumns=True)
        return (
            found.unionByName(_marked(self._ended(), new=False, gone=True), allowMissingColumns=True)
            if self.sink.deletes
            else found
        )

    def _ended(self) -> DataFrame:
        """The deletes of the keys of the batch, its own too: they are there by the commit before."""
        path = beside(self.path)
        table = opening.table(path)
        files = table_files.holding(table, self._bounds(()))
        return self._of_keys(delta_rows.read(self.rows.sparkSession, path, table, files).drop(delta_rows.FILE))

    def _moved(self, changes: DataFrame) -> DataFrame:
        """The versions that are new or end elsewhere than they did, as they are to be."""
        later = Window.partitionBy(*map(quoted, self.sink.keys)).orderBy(*map(quoted, self.sink.newest_by))
        ended = changes.withColumns(
            {UNTIL: F.lead(VALID_FROM).over(later), NEWEST: F.lead(F.lit(True)).over(later).isNull()}
        )
        same = F.col(VALID_TO).eqNullSafe(F.col(UNTIL)) & F.col(IS_CURRENT).eqNullSafe(F.col(NEWEST))
        found = ended.filter(~F.col(GONE) & (F.col(NEW) | ~same))
        return found.withColumns({VALID_TO: F.col(UNTIL), IS_CURRENT: F.col(NEWEST)}).drop(NEW, GONE, UNTIL, NEWEST)

    def _of_keys(self, there: DataFrame) -> DataFrame:
        keys = self.rows.select(*map(quoted, self.sink.keys)).distinct().alias("s")
        return there.alias("t").join(keys, delta_upsert.matched(self.sink.keys), "left_semi").alias("t")


def _marked(rows: DataFrame, *, new: bool, gone: bool = False) -> DataFrame:
    ends: dict[str, Column] = {
        field.name: F.lit(None).cast(field.dataType) for field in ENDS if field.name not in rows.columns
    }
    return rows.withColumns({NEW: F.lit(new), GONE: F.lit(gone), **ends})
