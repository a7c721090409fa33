"""The Delta sink: one reference unit and one Delta commit for each batch.

The unit says what the commit must hold (rows, content hash) before it is written. A replay with other data stops there.
By the commit's transaction id Delta skips a second commit (docs/specification/delta-commit.md).

Tasks or the driver write the data files (`delta_files`), then the driver names them in one commit by delta-rs. Spark's
own writer reads the state of the whole table before each commit, and computes statistics that the files' footers have.
For a small batch this takes most of the time. And on an object store it loses commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField, StructType

from onlyonce import settings
from onlyonce.api import sinks
from onlyonce.api.declaration import declared_at
from onlyonce.api.outputs import check_rows
from onlyonce.api.pipeline import Delta, Output, Pipeline, target
from onlyonce.api.sinks import later_window_wins
from onlyonce.context import Query, RunContext
from onlyonce.core import ownership, stored_names
from onlyonce.core.backfill import OpenSpan, Span
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.column_types import Types, refuse_required
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.core.ownership import Place
from onlyonce.core.stored_names import WINDOW_DATE, WINDOW_END, WINDOW_START
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import Database, Scope
from onlyonce.engine import session
from onlyonce.engine.session import quoted
from onlyonce.failpoints import passing
from onlyonce.sinks.base import content as base_content
from onlyonce.sinks.base import frames, pinned
from onlyonce.sinks.base.content import Check
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.base.stored import File, Mentioned, Stored, below, file_at
from onlyonce.sinks.delta import delta_files, delta_rows, delta_upsert
from onlyonce.sources.values import parse
from onlyonce.tables import commit, opening, own_tables, rewrite, statistics, stores
from onlyonce.tables.commit import Appended
from onlyonce.tables.own_tables import Files
from onlyonce.tables.table_files import beside

if TYPE_CHECKING:
    import pandas as pd


def append_rows(
    rows: DataFrame | pa.Table,
    to: Location | Appended,
    commit: commit.Commit,
    *,
    replayed: bool = False,
    form: opening.Form | None = None,
    check: Check | None = None,
) -> int | None:
    """Append rows once; return the table's version like `own_tables.append`.

    `rows`: a frame, or rows in memory as `stored_batch` returns them. For `form` see `own_tables.append`, for `check`
    see `delta_files.write`. Raise Refused for a table with unsupported features.
    """
    there = to if isinstance(to, Appended) else Appended(to)

    def write(folder: Location) -> Files:
        return delta_files.write(
            rows if isinstance(rows, pa.Table) else stored_batch(rows, there.table),
            folder,
            there.table.metadata().partition_columns,
            check,
        )

    delta_rows.refuse_features(there.table, there.at, changes=False)
    checked = opening.form(there.table) if form is None else form
    return own_tables.append(write, there, commit, replayed=replayed, form=checked)


def stored_batch(rows: DataFrame, table: DeltaTable) -> DataFrame:
    """Return rows as the writer gets them: with the table's columns and names, and their PARTITION."""
    return delta_files.placed(delta_rows.as_stored(rows, delta_rows.schema(table)), table.metadata().partition_columns)


# Check a team's Delta table before anything is written to it: by `onlyonce check`, and at the start of a run.


FORGETS = "delta.setTransactionRetentionDuration"
"""After this time a table forgets which batches it has. A killed run may wait longer for its next start."""


def check_table(table: DeltaTable, path: Location, output: Output) -> None:
    """Raise Refused for a table with unsupported features, or one that forgets its transactions."""
    assert isinstance(output.sink, Delta)
    delta_rows.refuse_features(table, path, changes=output.sink.write != "append" or output.late_trigger is not None)
    kept = table.metadata().configuration.get(FORGETS)
    if kept is not None:
        raise Refused(
            f"{path} forgets its transactions after {kept} ({FORGETS})",
            data="nothing was written; a batch that is tried again after that time would be in the table twice",
            hint=f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('{FORGETS}'), and set no default of it "
            "(spark.databricks.delta.properties.defaults.setTransactionRetentionDuration)",
        )


def check_one_row_a_key(spark: SparkSession, path: Location, output: str, keys: tuple[str, ...], date: str) -> None:
    """Raise Refused for a table partitioned by dates that has the same key on two dates.

    Older versions made such tables for these keys, too.
    """
    if date not in opening.table(path).metadata().partition_columns:
        return
    rows = spark.read.format("delta").load(str(path))
    if twice := rows.groupBy(*map(quoted, keys)).count().filter("count > 1").limit(1).collect():
        raise Refused(
            f"output {output}: {path} has {twice[0]['count']} rows with the keys "
            f"{dict(zip(keys, twice[0][: len(keys)], strict=True))}, one for each date, as an older version wrote them",
            data="nothing was written; an upsert would change all of them, and never make them one",
            hint="leave one row of each key (DELETE the others, by window_start the older ones), or name another path",
        )


# The name that a sink's Delta table has in one of Spark's catalogs.
#
# The platform works with the path, and its log names the path. The name is for readers: each run checks that the
# catalog has this table under the name, and enters it if the catalog has none. A catalog stores a name and a location;
# entering a table makes no commit to it.


def enter_name(spark: SparkSession, output: Output, name: str, path: Location) -> None:
    """Enter the table under its name.

    Raise Refused if the name is another table's, or if the catalog or schema is missing.
    """
    whose = f"{declared_at(output)}output {output.name}: "
    there = _there(spark, name, whose)
    if there is None:
        try:
            spark.catalog.createTable(session.full_table_name(name), path=str(path), source="delta")
        except AnalysisException as error:
            raise Refused(
                f"{whose}Spark's catalog does not take the table {name!r} ({str(error).splitlines()[0][:200]})",
                data="nothing was written; the table is at its path",
                hint="make the schema, or correct the name; spark.sql.catalog.… in spark-defaults.conf, or the "
                "conf of the task, configures a catalog",
            ) from error
    elif there != path:
        raise Refused(
            f"{whose}{name!r} is a table at {there} in Spark's catalog, and the output's is at {path}",
            data="nothing was written",
            hint=f"if it is the one that is meant: Delta(path={str(there)!r}, table={name!r}); else give the "
            "output another name there",
        )


def _there(spark: SparkSession, name: str, whose: str) -> Location | None:
    """Return the location of the table with that name; None if there is none."""
    try:
        kind, where = session.described_table(spark, name)
    except AnalysisException as error:
        if error.getCondition() in (
            "TABLE_OR_VIEW_NOT_FOUND",
            "DELTA_TABLE_NOT_FOUND",
            "SCHEMA_NOT_FOUND",
            "DELTA_MISSING_DELTA_TABLE",
        ):
            return None
        raise
    if kind != "delta":
        raise Refused(
            f"{whose}{name!r} is a table of {kind} in Spark's catalog",
            data="nothing was written",
            hint="give the output another name there",
        )
    return session.place_of_table(where, f"{whose}the table {name!r}")


DATE = WINDOW_DATE
"""The partition column of a windowed table. Upserts and backfills select files by it, so that they don't conflict."""

LATER_WINDOW = (
    "t.window_end IS NULL OR t.window_end < s.window_end OR "
    "(t.window_end = s.window_end AND t.window_start <= s.window_start)"
)
"""If an upsert's keys don't name the window, a row of an earlier window, say by a backfill, replaces nothing."""


class DeltaWriter:
    """Writes one output to its Delta table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, Delta)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        self.path = settings.table_location(
            Place(target(context.pipeline, output)).of_run(context.target_suffix()).where
        )
        self._deletes = delta_upsert.deletes_of(self.path, self._sink)
        self._read_on: Appended | None = None
        self._schema = StructType()
        self._form: opening.Form | None = None

    def prepare(self, schema: StructType) -> None:
        """Make the table, partitioned by the window's date, or add new columns. Raise Refused if a type differs."""
        missing = [key for key in self._sink.keys if key not in schema.names]
        if missing:
            raise Refused(f"output {self._output.name}: keys {missing} are not in {schema.names}")
        check_rows(self._output, {field.name: field.dataType.simpleString() for field in schema.fields})
        ends = delta_upsert.ENDS if self._sink.write == sinks.HISTORY else ()
        full = _with_date(
            StructType([*(field for field in schema.fields if field.name != self._sink.delete_when), *ends])
        )
        session = self._context.spark
        # If the keys of an upsert don't name the window, a row moves from date to date, so that no file is closed.
        settled = self._sink.write == "append" or {*self._sink.keys} & {WINDOW_START, WINDOW_END}
        delta_upsert.refuse_as_target(self.path, self._output)
        if self._deletes:
            self._deletes.prepare(session, schema, self._output)
        commit.make(
            self.path,
            full,
            session,
            [DATE] if DATE in full.names and settled else [],
            {ownership.PROPERTY: ownership.owner_note(self._context.platform)},
        )
        self._schema, self._form = full, None
        self._check_table(opening.table(self.path))
        if self._sink.table and not self._context.target_suffix():
            enter_name(session, self._output, self._sink.table, self.path)
        if DATE in full.names and not settled:
            check_one_row_a_key(session, self.path, self._output.name, self._sink.keys, DATE)

    def _check_table(self, table: DeltaTable) -> None:
        """Check the table and add missing columns, unless its form is unchanged since the last check.

        Its owner may alter the table between two batches, but not replace it.
        """
        found = opening.form(table)
        if found == self._form:
            return
        if self._form:
            ownership.refuse_replaced(str(self.path), self._form.table_id, found.table_id)
        check_table(table, self.path, self._output)
        parse.fit_columns(self.path, self._schema, f"output {self._output.name}")
        self._form = opening.form(opening.table(self.path))

    def lengths(self) -> Lengths:
        """See `SinkWriter`."""
        return delta_rows.lengths(delta_rows.schema(self._now().table))

    def write(self, batch: Batch, rows: DataFrame | pa.Table, content: Content) -> int:
        """Write the reference unit, then the rows, and compare both. Return 0.

        An at-least-once batch has no reference unit, but Delta's transaction still prevents a second commit.
        """
        check = None if batch.at_least_once else partial(pinned.check, self._unit(batch), content)
        if isinstance(rows, pa.Table) or not content.rows:
            self._append(batch, rows, content, check)
            return 0
        hashed = _dated(rows if batch.at_least_once else base_content.hashed(rows))
        self._check_table(self._now().table)
        if self._sink.write == "append":
            delta_files.check_fit(self._output, self.path, _dated(rows), _dated(rows))
            self._append(batch, hashed, content, check)
            return 0
        folder = self.path / own_tables.folder(self._commit(batch, content))
        with delta_files.settled(hashed, folder, check) if check else nullcontext(hashed) as settled:
            delta_files.check_fit(
                self._output, self.path, settled, self._stored(settled), lambda: self._upsert(settled)
            )
            self._referenced(batch, content, lambda commit: self._change(settled, commit, replayed=batch.replayed))
        return 0

    def _append(self, batch: Batch, rows: DataFrame | pa.Table, content: Content, check: Check | None) -> None:
        self._referenced(
            batch,
            content,
            lambda commit: append_rows(
                rows, self._now(), commit, replayed=batch.replayed, form=self._form, check=check
            ),
        )

    def _change(self, rows: DataFrame, commit: commit.Commit, *, replayed: bool) -> None:
        if self._deletes:
            self._deletes.remember(rows, commit, replayed=replayed)
        rewrite.change_rows(self.path, commit, self._upsert(rows), replayed=replayed, form=self._form)

    def _referenced(self, batch: Batch, content: Content, put: Callable[[commit.Commit], object]) -> None:
        """Write the reference unit, then call `put` to commit. Skip `put` if the batch has no rows."""
        if not batch.at_least_once:
            self._reference(self._unit(batch), content)
        if content.rows == 0:
            return
        passing("delta-before-write")
        put(self._commit(batch, content))
        passing("delta-after-write")

    def exported(self, batch: Batch, rows: DataFrame) -> DataFrame | None:
        """Return the rows to store if the output appends and its table has no condition that a row must meet; else
        None."""
        if self._sink.write != "append":
            return None
        self._check_table(self._now().table)
        table = self._now().table
        stored = stored_batch(_dated(base_content.hashed(rows)), table)
        if delta_files.fit_conditions(table, delta_rows.schema(table), stored, rows.columns) or {*rows.columns} - {
            *stored.columns
        }:
            return None
        return stored

    def landed(self, plan: Plan) -> bool:
        """Return whether the table has the transaction of this batch."""
        there = commit.version(self.path, self._app_id(plan))
        return there is not None and there >= plan.batch_id

    def replace(self, batch: Batch, rows: DataFrame, content: Content, span: Span) -> None:
        """Replace the rows of the windows in one commit."""
        self._replace(batch, rows, content, span)

    def replace_open(self, batch: Batch, rows: DataFrame, content: Content, span: OpenSpan) -> None:
        """Replace the rows of the open windows in one commit."""
        self._replace(batch, rows, content, span)

    def _replace(self, batch: Batch, rows: DataFrame, content: Content, span: Span | OpenSpan) -> None:
        self._check_table(opening.table(self.path))
        delta_rows.refuse_feature_change(opening.table(self.path), self.path)
        dated, hashed = (one.withColumn(DATE, F.to_date(WINDOW_START)) for one in (rows, base_content.hashed(rows)))
        delta_files.check_fit(self._output, self.path, dated, dated)
        self._reference(self._unit(batch), content)
        commit = self._commit(batch, content)
        passing("delta-before-replace")
        check = partial(pinned.check, self._unit(batch), content)
        rewrite.change_rows(
            self.path,
            commit,
            delta_upsert.Replace(hashed, self.path, span, DATE, check),
            replayed=batch.replayed,
            form=self._form,
        )
        passing("delta-after-replace")

    def clear(self, has_begun: Callable[[], bool]) -> None:
        """Remove the rows that the table has now, in one commit, unless the calling incarnation has begun a batch.

        Rows that are added meanwhile stay.
        """
        table = opening.table(self.path)
        if not has_begun():
            table.delete(
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": f"cleared by: {self._query.incarnation}"}
                )
            )

    def end(self, scope: Scope, batch: Batch) -> None:
        """See `SinkWriter`. The unit is in the platform's log from the start."""
        pinned.end(scope, batch, self._output.name)

    def _now(self) -> Appended:
        """Return the present table, without reading log entries again that earlier batches of the run have read."""
        self._read_on = self._read_on.look() if self._read_on else Appended(self.path)
        return self._read_on

    def _unit(self, batch: Batch) -> UnitId:
        return UnitId(batch.plan.incarnation, batch.plan.batch_id, self._output.name, 0)

    def _commit(self, batch: Batch, content: Content) -> commit.Commit:
        # With at least once the rows of the first attempt stay: changed code may return different rows in a replay.
        meant = batch.plan.offsets_hash if batch.at_least_once else content.exact
        return commit.Commit(
            self._app_id(batch.plan), batch.plan.batch_id, str(self._unit(batch)), self._query.driver.epoch, meant
        )

    def _app_id(self, plan: Plan) -> str:
        return stored_names.result_transaction(self._context.platform, plan.incarnation, self._output.name)

    def _reference(self, unit: UnitId, content: Content) -> None:
        pinned.reference(self._query.database, unit, self._query.driver.epoch, content, "delta")

    def _upsert(self, rows: DataFrame) -> delta_upsert.History | delta_upsert.Upsert:
        if self._sink.write == sinks.HISTORY:
            return delta_upsert.History(rows, self.path, self._sink)
        keys, newer = self._sink.keys, self._newer(rows.columns)
        if self._deletes:
            return delta_upsert.Upsert(self._deletes.standing(rows), self.path, keys, newer, self._deletes.column)
        # Rows of the same keys have the same date then, so files of other dates are not read.
        return delta_upsert.Upsert(rows, self.path, keys, newer, further=[DATE] if WINDOW_START in keys else [])

    def _stored(self, rows: DataFrame) -> DataFrame:
        """Return the rows that will be in the table, without the rows that stand for a delete."""
        return rows.filter(~F.col(quoted(self._deletes.column))).drop(self._deletes.column) if self._deletes else rows

    def _newer(self, columns: list[str]) -> Column | None:
        """Return when an arriving row replaces the row with its keys; None: always."""
        if later_window_wins(self._sink.write, self._sink.keys, columns):
            return F.expr(LATER_WINDOW)
        if not self._sink.sequence_by:
            return None
        return delta_upsert.as_new(self._sink.sequence_by)


def _dated(rows: DataFrame) -> DataFrame:
    return rows.withColumn(DATE, F.to_date(WINDOW_START)) if WINDOW_START in rows.columns else rows


def _with_date(schema: StructType) -> StructType:
    if WINDOW_START not in schema.names:
        return schema
    return StructType([*schema.fields, StructField(DATE, DateType())])


# What an output's Delta table stores: its files, its log with the bounds of columns, and the table of deleted keys.


GOES = "delete these rows in your table (with deletion vectors: REORG TABLE … APPLY (PURGE)), then VACUUM it"


@dataclass(frozen=True)
class StoredInDelta(Stored):
    """A Delta table and its table of deleted keys."""

    path: Location

    def files(self) -> Iterator[File]:
        """Yield the files of both tables, of old versions and of the change data feed too."""
        for table in (self.path, beside(self.path)):
            yield from below(table, GOES)

    def root(self) -> str:
        """Return the folder of the table."""
        return str(self.path)

    def clean(self, mentions: Mentions, mentioned: Mentioned) -> None:
        """Vacuum old versions, even if a reader uses one, and remove the bounds of columns from the log.

        A table with features that only Spark can vacuum stays as it is: the receipt names its files.
        """
        for table in (self.path, beside(self.path)):
            if opening.any_in(table) and any(mentioned(file) for file in below(table, GOES)):
                found = opening.table(table)
                if opening.only_for_spark(found):
                    continue
                found.vacuum(0, dry_run=False, enforce_retention_duration=False)
                _remove_changes(
                    table,
                    lambda file: mentioned(file) or mentions.in_string(file.at.removeprefix(str(table))),  # noqa: B023
                )
                statistics.remove_statistics(table, lambda at: mentioned(file_at(at, GOES)))
            _remove_empty_folders(table)


def _remove_changes(table: Location, mentioned: Mentioned) -> None:
    """Delete files of the change data feed, which delta-rs does not vacuum.

    A file that no commit names may belong to a running commit, and stays.
    """
    store = stores.of(table)
    entries = [name.removesuffix(".json") for name in store.names(table / opening.LOG) if name.endswith(".json")]
    actions = (action for entry in entries if entry.isdecimal() for action in opening.actions(table, int(entry)))
    for path in (table / unquote(action["cdc"]["path"]) for action in actions if "cdc" in action):
        if mentioned(file_at(path, GOES)):
            store.delete(path)


def _remove_empty_folders(table: Location) -> None:
    """Remove the folders of partitions without rows: their names have values."""
    for at in stores.of(table).unfinished(table):
        with suppress(OSError):  # another writer has put a file into it
            if isinstance(at, Path) and at != table:
                at.rmdir()


# What `targets` asks of each kind.


writer = DeltaWriter


def stored(database: Database, sink: Delta, where: str) -> Stored:
    """Return what the table stores."""
    return StoredInDelta(settings.table_location(where.partition(":")[2]))


def types_there(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    """Return the types that the sink stores for the columns, and the types of the existing table; None if there is
    none.

    Raise Refused if the rows can't be written to it.
    """
    path = settings.table_location(target(pipeline, output).split(":", 1)[1])
    if isinstance(path, Path) and path.is_file():
        raise Refused(
            f"{path} is a file, and no Delta table",
            data="nothing was written to it",
            hint="move the file away, or name another path",
        )
    if not opening.any_in(path):
        return None
    try:
        table = opening.table(path)
    except DeltaError as error:
        raise Refused(
            f"{path} can't be read as a Delta table: {(str(error).splitlines() or [''])[0][:300]}",
            data="nothing was written to it",
            hint="restore the table's log from a backup, or name another path",
        ) from error
    check_table(table, path, output)
    there = StructType.fromJson(json.loads(table.schema().to_json()))
    wanted = {one.name: one.dataType.simpleString() for one in schema if one.name != output.sink.delete_when}
    if output.sink.write == "append":  # an upsert may change only rows that have a value there
        required = [one.name for one in there if not one.nullable and delta_rows.GENERATED not in one.metadata]
        refuse_required(f"output {output.name}", path, wanted, required)
    found = {one.name: one.dataType.simpleString() for one in there}
    if WINDOW_DATE not in wanted:
        found.pop(WINDOW_DATE, None)  # the sink gives it
    return wanted, found, str(path)


def frame(pipeline: Pipeline, output: Output, instance: str) -> pd.DataFrame:
    """Return the table's rows in memory. Raise Refused."""
    path = settings.table_location(frames.place_of(pipeline, output, instance).where)
    if not opening.any_in(path):
        raise frames.not_yet(pipeline, output, instance, str(path))
    table = opening.table(path)
    if on := opening.unreadable(table):
        raise Refused(
            f"{path} has {', '.join(on)}, which only Spark reads", data=frames.NO_ROWS, hint="read it by Spark"
        )
    found: pd.DataFrame = table.to_pandas()
    return found
