"""An upsert into a Delta table by keys, as a plan: which files may hold the keys, and what comes in their place.

`t` is a row of the table, `s` one that arrives.

1. By the partition and the statistics of files, those are left out that hold none of the keys.
2. A job reads the keys of the others, and finds the files that do hold one.
3. A job writes those files' rows again, with those of the batch in their place, and the new ones.

What a MERGE of Spark would do, row by row: a test holds it beside that. Who calls it: `sink_delta`, `delta_deletes`.
Errors: those of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import and_

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.model.storage.location import Location
from onlyonce.session.names import quoted
from onlyonce.sinks.delta import delta_features, delta_files, delta_rows
from onlyonce.storage import table_files
from onlyonce.storage.changing import Change
from onlyonce.storage.table_files import Bounds, Held

THERE, ARRIVES = "oo_there", "oo_arrives"


def matched(keys: Iterable[str]) -> Column:
    """Whether a row of the table has the keys of one that arrives."""
    return reduce(and_, [F.col(f"t.{quoted(key)}").eqNullSafe(F.col(f"s.{quoted(key)}")) for key in keys])


def as_new(newest_by: Iterable[str]) -> Column:
    """Whether an arriving row is as new as the one of its keys, or newer."""
    # A null is before all else: a row of before there was an order gives way.
    there, arriving = (F.struct(*[F.col(f"{side}.{quoted(name)}") for name in newest_by]) for side in "ts")
    return there <= arriving


def bounds(rows: DataFrame, columns: Sequence[str], each: Sequence[str] = ()) -> dict[str, Bounds]:
    """The values of some columns, by one look at the rows: the least and the largest; of the columns in `each`, which
    have few, all."""
    asked = []
    for name in columns:
        column = quoted(name)
        asked += [
            F.min(column),
            F.max(column),
            F.count_if(F.isnull(column)),
            F.collect_set(column) if name in each else F.lit(None),
        ]
    found = [
        column[0]
        for column in rows.agg(*[one.alias(str(number)) for number, one in enumerate(asked)]).toArrow().columns
    ]
    told = {}
    for number, name in enumerate(columns):
        least, largest, nulls, among = found[4 * number : 4 * number + 4]
        known = least if least.is_valid else None, largest if largest.is_valid else None
        told[name] = Bounds(*known, null=nulls.as_py() > 0, among=tuple(among.values) if among.is_valid else None)
    return told


@dataclass(frozen=True, eq=False)
class Upsert:
    """The rows of a batch for a table at `path`.

    `newer`: when one that arrives replaces the one of its keys (None: always). `gone`: the column of those that arrive
    which says that the row of the keys goes; it is not stored. `further`: columns whose values tell, beside the keys,
    in which files a row can be."""

    rows: DataFrame
    path: Location
    keys: Sequence[str]
    newer: Column | None = None
    gone: str | None = None
    further: Sequence[str] = ()

    def files(self, table: DeltaTable) -> list[Held]:
        """See `changing.Plan`."""
        delta_features.refuse_change(table, self.path)
        return table_files.holding(table, self._bounds(tuple(table.metadata().partition_columns)))

    def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
        """See `changing.Plan`."""
        touched = self._touched(table, files)
        by = table.metadata().partition_columns
        new = delta_files.write(delta_files.placed(self._merged(table, touched), by), folder, by)
        return Change(touched, new)

    def merged(self, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
        """See `delta_fit.Merges`."""
        return self._merged(table, self._touched(table, files))

    @lru_cache(maxsize=1)  # noqa: B019 - a plan lives as long as its batch
    def _bounds(self, partitions: tuple[str, ...]) -> dict[str, Bounds]:
        return bounds(self.rows, [*self.keys, *self.further], partitions)

    def _touched(self, table: DeltaTable, files: Sequence[Held]) -> list[Held]:
        if not files:
            return []
        there = delta_rows.read(self.rows.sparkSession, self.path, table, files).select(
            *map(quoted, self.keys), delta_rows.FILE
        )
        arriving = self.rows.select(*map(quoted, self.keys))
        found = (
            there.alias("t")
            .join(arriving.alias("s"), matched(self.keys), "left_semi")
            .select(delta_rows.FILE)
            .distinct()
            .collect()
        )
        return delta_rows.of_names(self.path, files, [row[0] for row in found])

    def _merged(self, table: DeltaTable, touched: Sequence[Held]) -> DataFrame:
        there = delta_rows.schema(table)
        arriving = delta_rows.spelled(self.rows, there)
        if not touched:
            new = arriving.filter(~F.col(quoted(self.gone))).drop(self.gone) if self.gone else arriving
            return delta_rows.as_stored(new, there)
        old = delta_rows.read(self.rows.sparkSession, self.path, table, touched).withColumn(THERE, F.lit(True))
        both = old.alias("t").join(
            arriving.withColumn(ARRIVES, F.lit(True)).alias("s"), matched(self.keys), "full_outer"
        )
        is_new = F.col(f"t.{THERE}").isNull()
        wins = F.lit(True) if self.newer is None else F.coalesce(self.newer, F.lit(False))
        takes = F.col(f"s.{ARRIVES}").isNotNull() & (is_new | wins)
        if self.gone:
            both = both.filter(~(takes & F.coalesce(F.col(f"s.{quoted(self.gone)}"), F.lit(False))))
        given = {*arriving.columns}
        columns = [_column(field.name, takes, arrives=field.name in given) for field in there]
        return delta_rows.generated(both.select(*columns, takes.alias(ARRIVES)), there, given, F.col(ARRIVES)).drop(
            ARRIVES
        )


def _column(name: str, takes: Column, *, arrives: bool) -> Column:
    there = F.col(f"t.{quoted(name)}")
    # What a batch does not give of a row that is there stays.
    return (F.when(takes, F.col(f"s.{quoted(name)}")).otherwise(there) if arrives else there).alias(name)
