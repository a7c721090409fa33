"""Changes of a Delta table's rows, as plans (`rewrite.Plan`): replaced windows, upserts, deletes, histories.

A plan names the files that may have rows to change, and writes the rows that replace them. A test compares the upsert
with Spark's MERGE row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, reduce
from operator import and_

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import Delta, Output
from onlyonce.api.sinks import HISTORY
from onlyonce.core.backfill import LAST, OpenSpan, Span
from onlyonce.core.batch import to_time
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import IS_CURRENT, VALID_FROM, VALID_TO, WINDOW_END, WINDOW_START
from onlyonce.core.windows import micros
from onlyonce.engine.session import quoted
from onlyonce.failpoints import passing
from onlyonce.sinks.base.content import Check
from onlyonce.sinks.delta import delta_files, delta_rows
from onlyonce.sources.values import parse
from onlyonce.tables import commit, opening, rewrite, table_files
from onlyonce.tables.rewrite import Change
from onlyonce.tables.table_files import PROPERTIES, Bounds, Held, beside, is_ours

DAY = micros(timedelta(days=1))
START = WINDOW_START


@dataclass(frozen=True)
class Replace:
    """Replaces the rows of the windows in the span. Files with no other rows are removed unread.

    Other files' remaining rows are written again with the new rows.

    date    the column with the window's date, by which the table may be partitioned
    check   gets the content of the rows as written
    """

    rows: DataFrame
    path: Location
    span: Span | OpenSpan
    date: str
    check: Check | None = None

    def files(self, table: DeltaTable) -> list[Held]:
        """See `rewrite.Plan`."""
        delta_rows.refuse_feature_change(table, self.path)
        if isinstance(self.span, OpenSpan):
            first, latest = to_time(self.span.first), to_time(LAST)
            # A window that ends at `closed` has closed, and its row stays.
            asked = {START: Bounds(first, latest), WINDOW_END: Bounds(to_time(self.span.closed + 1), latest)}
            if self.date in table.metadata().partition_columns:
                asked[self.date] = Bounds(first.date(), latest.date())
            return table_files.holding(table, asked)
        first, last = self.span.times[0], to_time(self.span.stop - 1)
        assert last
        asked = {}
        if self.date in table.metadata().partition_columns:
            asked[self.date] = Bounds(first.date(), last.date())
        if not asked or self.span.start % DAY or self.span.stop % DAY:
            asked[START] = Bounds(first, last)
        return table_files.holding(table, asked)

    def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
        """See `rewrite.Plan`."""
        there = delta_rows.schema(table)
        new = delta_rows.as_stored(self.rows, there)
        mixed = [held for held in files if not held.whole]
        if mixed:
            old = delta_rows.read(self.rows.sparkSession, self.path, table, mixed).drop(delta_rows.FILE)
            new = old.filter(~F.coalesce(self._replaced(), F.lit(False))).unionByName(new, allowMissingColumns=True)
        by = table.metadata().partition_columns
        return Change(files, delta_files.write(delta_files.placed(new, by), folder, by, self.check))

    def _replaced(self) -> Column:
        if isinstance(self.span, OpenSpan):
            from_first = F.col(START) >= F.timestamp_micros(F.lit(self.span.first))
            return from_first & (F.col(WINDOW_END) > F.timestamp_micros(F.lit(self.span.closed)))
        first, last = (F.timestamp_micros(F.lit(time)) for time in (self.span.start, self.span.stop - 1))
        return F.col(START).between(first, last)


# An upsert by keys. `t` is a row of the table, `s` an arriving row.
#
# 1. Leave out files that hold none of the keys, by the partition and the statistics of the files.
# 2. Read the keys of the other files, and find the files that do hold one.
# 3. Rewrite these files' rows, with the batch's rows in place of rows with the same keys, and add the new rows.


THERE, ARRIVES = "oo_there", "oo_arrives"


def matched(keys: Iterable[str]) -> Column:
    """Return whether a row of the table has the keys of an arriving row."""
    return reduce(and_, [F.col(f"t.{quoted(key)}").eqNullSafe(F.col(f"s.{quoted(key)}")) for key in keys])


def as_new(sequence_by: Iterable[str]) -> Column:
    """Return whether an arriving row is at least as new as the table's row with its keys."""
    # A null sorts first: a row that was stored before `sequence_by` was declared is replaced.
    there, arriving = (F.struct(*[F.col(f"{side}.{quoted(name)}") for name in sequence_by]) for side in "ts")
    return there <= arriving


def bounds(rows: DataFrame, columns: Sequence[str], each: Sequence[str] = ()) -> dict[str, Bounds]:
    """Return the smallest and the largest value of some columns, by one job over the rows.

    For the columns in `each`, which have few values, return all values.
    """
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

    newer     when an arriving row replaces the one with its keys; None: always
    gone      the column of arriving rows which says that the row with the keys is deleted; it is not stored
    further   columns whose values, with the keys, decide in which files a row can be
    """

    rows: DataFrame
    path: Location
    keys: Sequence[str]
    newer: Column | None = None
    gone: str | None = None
    further: Sequence[str] = ()

    def files(self, table: DeltaTable) -> list[Held]:
        """See `rewrite.Plan`."""
        delta_rows.refuse_feature_change(table, self.path)
        return table_files.holding(table, self._bounds(tuple(table.metadata().partition_columns)))

    def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
        """See `rewrite.Plan`."""
        touched = self._touched(table, files)
        by = table.metadata().partition_columns
        new = delta_files.write(delta_files.placed(self._merged(table, touched), by), folder, by)
        return Change(touched, new)

    def merged(self, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
        """See `delta_files.Merges`."""
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
    # A column that the batch does not have keeps the table's value.
    return (F.when(takes, F.col(f"s.{quoted(name)}")).otherwise(there) if arrives else there).alias(name)


# Hard deletes of a Delta upsert: the keys of deleted rows and their sequence_by are kept in a second table,
# `<path>_deleted`.
#
# A Delta commit is of one table, so a batch has two commits, under one transaction id. First its deletes are committed
# to the second table, then the upsert removes and writes rows. If the driver is killed between the two, the replay
# repeats them. A position in the second table never goes back, and no row is removed from it. So what a batch does to a
# key depends on the newest delete alone, whatever came in between. A batch reads the files of the second table that may
# hold one of its keys. It has one row for each key that was ever deleted, with its keys and its sequence_by alone; for
# a history, one row for each delete, with its valid_from too.


def refuse_as_target(path: Location, output: Output) -> None:
    """Raise Refused if an output's table is the table in which another output keeps its deletes."""
    if is_ours(path):
        raise Refused(
            f"{declared_at(output)}output {output.name}: {path} keeps the keys that another output has deleted",
            data="nothing was written",
            hint="name another path for the output",
        )


@dataclass(frozen=True)
class Deletes:
    """The deletes of one output with the option `delete_when`; `path`: its table."""

    path: Location
    sink: Delta

    @property
    def column(self) -> str:
        """The column which says that a row is deleted."""
        assert self.sink.delete_when is not None
        return self.sink.delete_when

    def prepare(self, session: SparkSession, schema: StructType, output: Output) -> None:
        """Make the table of deleted keys. Raise Refused if another table has its path."""
        path = beside(self.path)
        if commit.exists(path) and not is_ours(path):
            raise Refused(
                f"{declared_at(output)}output {output.name}: there is a table {path}, which is not the platform's",
                data="nothing was written; what is deleted would be remembered there",
                hint="move that table, or name another path for the output",
            )
        kept = StructType([field for name in self._kept for field in schema.fields if field.name == name])
        commit.make(path, kept, session, [], PROPERTIES)
        parse.fit_columns(path, kept, f"output {output.name}, what it deletes")

    def remember(self, rows: DataFrame, commit: commit.Commit, *, replayed: bool) -> None:
        """Commit the deletes of a batch, once. Do nothing if it has none."""
        gone = rows.filter(F.col(quoted(self.column))).select(*map(quoted, self._kept))
        if gone.isEmpty():
            return
        path = beside(self.path)
        passing("delta-before-deletes")
        rewrite.change_rows(path, commit, Upsert(gone, path, self.sink.row_id, self.is_newer()), replayed=replayed)
        passing("delta-after-deletes")

    def standing(self, rows: DataFrame) -> DataFrame:
        """Return the rows that are not older than a delete of their key."""
        path = beside(self.path)
        table = opening.table(path)
        files = table_files.holding(table, bounds(rows, self.sink.keys))
        if not files:
            return rows
        there = delta_rows.read(rows.sparkSession, path, table, files).alias("t")
        return rows.alias("s").join(there, matched(self.sink.keys) & ~self.is_newer(), "left_anti")

    def is_newer(self) -> Column:
        """Return whether an arriving row is at least as new as what the table has for its key."""
        return as_new(self.sink.sequence_by)

    @property
    def _kept(self) -> list[str]:
        return [
            *dict.fromkeys(
                [*self.sink.keys, *self.sink.sequence_by, *([VALID_FROM] if self.sink.write == HISTORY else [])]
            )
        ]


def deletes_of(path: Location, sink: Delta) -> Deletes | None:
    """Return the deletes of an output, or None if the sink has no such option."""
    return Deletes(path, sink) if sink.delete_when else None


# Histories (SCD type 2) in Delta, as in PostgreSQL: each change is a version of its key's row, with the time from which
# and to which it held.
#
# A version ends where the next change of its key begins, by the order of `sequence_by`. A delete is not a version: it
# ends the version before it, and an earlier commit keeps the delete in the second table. The changes of a key in the
# table, in the batch and in the second table are put in order together. New versions, and versions whose end has moved,
# are then upserted by key and position. Rows that were written before are overwritten with themselves. Times need not
# grow: if the source's clock went back, a version ends before it begins.


ENDS = (StructField(VALID_TO, TimestampType()), StructField(IS_CURRENT, BooleanType()))
"""The columns that the platform computes."""
NEW, GONE, UNTIL, NEWEST = "oo_new", "oo_gone", "oo_until", "oo_newest"
"""Columns of a change: whether the batch has it, whether it is a delete, and its computed ends."""


@dataclass(frozen=True, eq=False)
class History:
    """The changes of a batch, deletes among them, for the history at `path`."""

    rows: DataFrame
    path: Location
    sink: Delta

    def files(self, table: DeltaTable) -> list[Held]:
        """See `rewrite.Plan`. The files may have a version of a key of the batch."""
        delta_rows.refuse_feature_change(table, self.path)
        return table_files.holding(table, self._bounds(tuple(table.metadata().partition_columns)))

    def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
        """See `rewrite.Plan`."""
        return self._upsert(table, files).write(table, files, folder)

    def merged(self, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
        """See `delta_files.Merges`."""
        return self._upsert(table, files).merged(table, files)

    def _upsert(self, table: DeltaTable, files: Sequence[Held]) -> Upsert:
        return Upsert(self._moved(self._changes(table, files)), self.path, self.sink.row_id)

    @lru_cache(maxsize=1)  # noqa: B019 - a plan lives as long as its batch
    def _bounds(self, partitions: tuple[str, ...]) -> dict[str, Bounds]:
        return bounds(self.rows, self.sink.keys, partitions)

    def _changes(self, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
        """Return all changes of the batch's keys: changes of the batch and of the table, and the kept deletes."""
        there = delta_rows.schema(table)
        came = (
            self.rows.filter(~F.col(quoted(self.sink.delete_when))).drop(self.sink.delete_when)
            if self.sink.delete_when
            else self.rows
        )
        kept = self._of_keys(delta_rows.read(self.rows.sparkSession, self.path, table, files).drop(delta_rows.FILE))
        came = delta_rows.as_stored(self._with_others(delta_rows.spelled(came, there), kept, there), there)
        kept = kept.join(came.alias("s"), matched(self.sink.row_id), "left_anti")
        found = _marked(came, new=True).unionByName(_marked(kept, new=False), allowMissingColumns=True)
        return (
            found.unionByName(_marked(self._ended(), new=False, gone=True), allowMissingColumns=True)
            if self.sink.delete_when
            else found
        )

    def _with_others(self, came: DataFrame, kept: DataFrame, there: StructType) -> DataFrame:
        """Return the batch's versions with the stored values of columns that the batch does not have.

        A version that comes again keeps them, as in an upsert; in a new version they are null.
        """
        computed = {field.name for field in there if delta_rows.GENERATED in field.metadata}
        lacking = {*there.names} - {*came.columns} - {field.name for field in ENDS} - computed
        others = [name for name in there.names if name in lacking]
        if not others:
            return came
        stored = kept.select(*map(quoted, [*self.sink.row_id, *others])).alias("s")
        both = came.alias("t").join(stored, matched(self.sink.row_id), "left")
        return both.select("t.*", *[F.col(f"s.{quoted(name)}") for name in others])

    def _ended(self) -> DataFrame:
        """Return the deletes of the batch's keys. The commit before has added the batch's own."""
        path = beside(self.path)
        table = opening.table(path)
        files = table_files.holding(table, self._bounds(()))
        return self._of_keys(delta_rows.read(self.rows.sparkSession, path, table, files).drop(delta_rows.FILE))

    def _moved(self, changes: DataFrame) -> DataFrame:
        """Return the versions that are new, or whose end has moved, with their new ends."""
        later = Window.partitionBy(*map(quoted, self.sink.keys)).orderBy(*map(quoted, self.sink.sequence_by), GONE)
        ended = changes.withColumns(
            {UNTIL: F.lead(VALID_FROM).over(later), NEWEST: F.lead(F.lit(True)).over(later).isNull()}
        )
        same = F.col(VALID_TO).eqNullSafe(F.col(UNTIL)) & F.col(IS_CURRENT).eqNullSafe(F.col(NEWEST))
        found = ended.filter(~F.col(GONE) & (F.col(NEW) | ~same))
        return found.withColumns({VALID_TO: F.col(UNTIL), IS_CURRENT: F.col(NEWEST)}).drop(NEW, GONE, UNTIL, NEWEST)

    def _of_keys(self, there: DataFrame) -> DataFrame:
        keys = self.rows.select(*map(quoted, self.sink.keys)).distinct().alias("s")
        return there.alias("t").join(keys, matched(self.sink.keys), "left_semi").alias("t")


def _marked(rows: DataFrame, *, new: bool, gone: bool = False) -> DataFrame:
    ends: dict[str, Column] = {
        field.name: F.lit(None).cast(field.dataType) for field in ENDS if field.name not in rows.columns
    }
    return rows.withColumns({NEW: F.lit(new), GONE: F.lit(gone), **ends})
