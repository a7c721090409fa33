"""The units of a Postgres sink: claim the unit, check the epoch, COPY the rows, store the content, commit.

The rows are in the unit's own transaction. So a unit that is already committed is skipped, after its content was
compared. Rows stream from Arrow to COPY; a partition is never in memory as a whole.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg2
import pyarrow as pa
from psycopg2 import sql
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from sqlalchemy import Connection

from onlyonce.api import sinks
from onlyonce.api.sinks import later_window_wins
from onlyonce.commitlog import units
from onlyonce.commitlog.units import Units
from onlyonce.core import stored_names
from onlyonce.core.batch import Batch
from onlyonce.core.errors import CommitStateUnknown, Refused, Retryable
from onlyonce.core.stored_names import WINDOW_END, WINDOW_START
from onlyonce.core.units import Content, UnitId, compare
from onlyonce.database import connect
from onlyonce.database.connect import Database, Scope, transaction
from onlyonce.engine import worker
from onlyonce.engine.session import planned_once
from onlyonce.engine.worker import attempt_name, session_of
from onlyonce.failpoints import passing
from onlyonce.sinks.base import content, pinned
from onlyonce.sinks.base.content import HASH, Tally
from onlyonce.sinks.base.pinned import PARTITION, RecordBatches, counted
from onlyonce.sinks.postgres import postgres_rows

RESULT = "partition int, rows long"
AT_A_TIME = 1 << 20
"""Bytes that COPY requests at a time; the default of 8,192 holds about thirty rows."""

UPDATES = {
    "upsert": "{column} = excluded.{column}",
    "increment": postgres_rows.ADD_UP,
}

LATER_WINDOW = (
    " WHERE target.window_end IS NULL"
    " OR (target.window_end, target.window_start) <= (excluded.window_end, excluded.window_start)"
)
"""If an upsert's keys don't name the window, a row of an earlier window, say by a backfill, replaces nothing."""


COPY = "COPY {table} ({columns}) FROM STDIN (FORMAT csv)"

REPLACED = {
    "replace": "window_start >= {} AND window_start < {}",
    "replace open": "window_start >= {} AND window_end > {}",
}
"""Which rows are deleted first: of the windows that start in a span, or of open windows."""

COUNT_KEYS = "SELECT count(*) FROM (SELECT FROM arriving GROUP BY {keys}) AS one_a_key"


@dataclass(frozen=True)
class Work:
    """The parameters of a task that writes rows.

    schema, table   the target
    write           the sink's `write`, or a way to replace windows (`REPLACED`)
    floats          the columns of floats: a unit has their sums, which a replay compares with a tolerance
    windows         the times in the condition on the rows to delete first (`REPLACED`)
    by_window       whether the sums of an increment are also kept by window, in a table next to the target
    keys, sequence_by, delete_when   as the sink declares them
    """

    database: Database
    unit: UnitId
    epoch: int
    schema: str
    table: str
    write: str
    keys: tuple[str, ...]
    floats: tuple[str, ...]
    windows: tuple[str, ...] | None = None
    by_window: bool = False
    beside: tuple[tuple[str, str], ...] = ()
    """Columns that are counted and not written, with the name under which they are counted."""
    sequence_by: tuple[str, ...] = ()
    delete_when: str | None = None


Put = Callable[[Connection, Work, RecordBatches], None]
"""Writes the rows of a unit, in the transaction of its claim."""


def write_unit(work: Work, put: Put | None = None) -> Callable[[RecordBatches], RecordBatches]:
    """Return the Arrow function of a batch: the rows of one partition → (partition, rows).

    `put` writes the rows in another database's SQL.
    """
    write = put or put_rows

    def run_task(batches: RecordBatches) -> RecordBatches:
        context: Any = TaskContext.get()
        # In the driver, which writes the one partition of a small batch, there is no task.
        here = replace(work, unit=replace(work.unit, partition=context.partitionId())) if context else work
        tally = Tally(HASH, dict(zip(work.floats, work.floats, strict=True)) | dict(work.beside))
        not_stored = [HASH, PARTITION, *(column for column, _ in work.beside)]
        rows = (batch.drop_columns(not_stored) for batch in counted(here.unit, batches, tally))
        with session_of(work.database, here.unit) as database:
            here = replace(here, database=database)
            try:
                _commit(here, rows, tally, write)
            except CommitStateUnknown:
                _settle(here, tally)
        passing("postgres-unit-after-commit")
        yield pa.RecordBatch.from_pydict(
            {"partition": pa.array([here.unit.partition], pa.int32()), "rows": [tally.content().rows]}
        )

    return run_task


def _commit(work: Work, batches: RecordBatches, tally: Tally, write: Put) -> None:
    passing("postgres-unit-before-claim")
    with transaction(work.database) as connection:
        there = Units(connection).claim(units.Claim(work.unit, work.epoch, attempt_name(), "data"))
        passing("postgres-unit-after-claim")
        if there is not None:
            for _ in batches:
                pass
            compare(work.unit, there, tally.content())
            return
        write(connection, work, batches)
        Units(connection).fill(work.unit, tally.content())
        passing("postgres-unit-before-commit")


def _settle(work: Work, tally: Tally) -> None:
    """Read the log after the answer to COMMIT was lost, then decide. docs/specification/unit.md."""
    there = Units(work.database).find(work.unit)
    if there is None:
        raise Retryable(f"unit {work.unit}: the COMMIT did not arrive", data="none of its rows are in the table")
    compare(work.unit, there, tally.content())


def put_rows(connection: Connection, work: Work, batches: RecordBatches) -> None:
    """Write rows as the sink declares it, in the caller's transaction, with or without a unit.

    Raise Refused for rows that the table can't hold, and InvariantBroken for two rows of the same keys.
    """
    try:
        _write(connection, work, batches)
    except psycopg2.Error as error:
        if not connect.is_answer(error):
            raise
        raise Refused(
            f"unit {work.unit}: {work.schema}.{work.table} can't hold its rows: {connect.first_line(error)}",
            data="nothing of this unit was written",
            hint="make the transform's rows fit the table (a null key, a number out of range, a NUL character in a "
            "string, a key too long), "
            "or change the table, its constraints or its triggers; the committed units of this batch wait for the rest",
        ) from error


def _write(connection: Connection, work: Work, batches: RecordBatches) -> None:
    """Write rows by the sink's `write`.

    | write                     | how                                              | rows that may be left out  |
    |---------------------------|--------------------------------------------------|----------------------------|
    | append                    | COPY into the target                             | none                       |
    | replace, replace open     | DELETE of the windows' rows, then COPY           | none                       |
    | history                   | COPY into `arriving`, then `write_history`       | see there                  |
    | upsert                    | COPY into `arriving`, then INSERT … ON CONFLICT  | those of an earlier window |
    | upsert with `sequence_by` | the same; `delete_when`: `delete_older` first    | older ones                 |
    | upsert of only keys       | the same, with DO NOTHING                        | those of an existing key   |
    | increment                 | the same, with the sums of each key's rows       | none: one row for each key |
    | increment, by window      | `write_sums`                                     | see there                  |

    If another row is left out, a trigger of the table has dropped it: raise Refused.
    """
    cursor = connection.connection.cursor()
    first = next(batches, None)
    if work.by_window:
        table = (work.schema, work.table)
        dropped = postgres_rows.write_sums(
            cursor, table, work.keys, work.windows, lambda to: _fill(cursor, work, to, first, batches)
        )
        _refuse_dropped(work, dropped)
        return
    if work.write in REPLACED:
        _delete(cursor, work)
    if first is None:
        return
    types = first.schema
    columns = [name for name in types.names if name != work.delete_when]
    names = {
        "target": sql.Identifier(work.schema, work.table),
        "columns": sql.SQL(", ").join(map(sql.Identifier, columns)),
        "keys": sql.SQL(", ").join(map(sql.Identifier, work.keys)),
    }
    if work.write == "append" or work.write in REPLACED:
        _fill(cursor, work, names["target"], first, batches)
        passing("postgres-unit-after-rows")
        return
    is_history = work.write == sinks.HISTORY
    needed = (*work.keys, stored_names.VALID_FROM) if is_history else ()
    postgres_rows.stage_newest(cursor, names["target"], columns, work.keys, work.sequence_by, work.delete_when, *needed)
    arrived = _fill(cursor, work, sql.Identifier("arriving"), first, batches)
    if is_history:
        with postgres_rows.one_a_place(work.unit, (*work.keys, *work.sequence_by)):
            dropped = postgres_rows.write_history(
                cursor, (work.schema, work.table), columns, work.keys, work.sequence_by, work.delete_when, types
            )
        _refuse_dropped(work, dropped)
        passing("postgres-unit-after-rows")
        return
    updates = [sql.SQL(UPDATES[work.write]).format(column=sql.Identifier(c)) for c in columns if c not in work.keys]
    names["action"] = sql.SQL("UPDATE SET ") + sql.SQL(", ").join(updates) if updates else sql.SQL("NOTHING")
    # Several windows may add to one key in one batch; an upsert has one row for a key, or it is refused below.
    sums = [sql.Identifier(c) if c in work.keys else sql.SQL("sum({})").format(sql.Identifier(c)) for c in columns]
    names["select"] = sql.SQL(", ").join(sums) if work.write == "increment" else names["columns"]
    names["where_or_group"] = (
        sql.SQL("GROUP BY ") + names["keys"]
        if work.write == "increment"
        else postgres_rows.left_newest(work.delete_when)
    )
    merge = sql.SQL(
        "INSERT INTO {target} AS target ({columns}) SELECT {select} FROM arriving {where_or_group} "
        "ON CONFLICT ({keys}) DO {action}"
    ).format(**names)
    later = bool(updates) and later_window_wins(work.write, work.keys, columns)
    if work.sequence_by:
        merge += postgres_rows.newer_rows(work.sequence_by, types)
    elif later:
        merge += sql.SQL(LATER_WINDOW)
    with postgres_rows.one_a_place(work.unit, work.keys):
        if work.delete_when:
            _refuse_dropped(
                work,
                postgres_rows.delete_older(
                    cursor, (work.schema, work.table), work.keys, work.sequence_by, work.delete_when, types
                ),
            )
        cursor.execute(merge)
    # PostgreSQL reports how many rows it has written. It may be fewer than arrived: see the table above. For an upsert,
    # count the rows that are neither in the target nor replaced by a newer one. For an increment, compare with the
    # number of keys.
    if (written := cursor.rowcount) != arrived:
        order = work.sequence_by or ((WINDOW_END, WINDOW_START) if later else ())
        if order or not updates:  # an older or existing row is left out
            _refuse_dropped(
                work, postgres_rows.unwritten_keys(cursor, names["target"], work.keys, order, work.delete_when, types)
            )
        else:
            cursor.execute(sql.SQL(COUNT_KEYS).format(**names))
            [(keys,)] = cursor.fetchall()
            _refuse_dropped(work, keys - written)
    passing("postgres-unit-after-rows")


def _fill(cursor: Any, work: Work, table: sql.Composable, first: pa.RecordBatch | None, rest: RecordBatches) -> int:
    """Copy rows into a table, if there are any; return how many.

    Raise Refused if PostgreSQL reports fewer rows than were sent.
    """
    if first is None:
        return 0
    names = {"table": table, "columns": sql.SQL(", ").join(map(sql.Identifier, first.schema.names))}
    rows = _Csv(first, rest)
    _copy(cursor, _text(COPY, names, cursor), rows)
    _refuse_dropped(work, rows.count - cursor.rowcount)
    return rows.count


def _refuse_dropped(work: Work, dropped: int) -> None:
    """Raise Refused if a trigger of the table has dropped rows.

    The unit would note rows that the table does not have.
    """
    if dropped:
        raise Refused(
            f"unit {work.unit}: a trigger of {work.schema}.{work.table} drops {dropped:,} of its rows, or keeps "
            "rows that it must change or delete",
            data="nothing of this unit was written",
            hint="let the trigger keep every row, and filter the rows in the output's function",
        )


def _delete(cursor: Any, work: Work) -> None:
    """Delete the rows of the windows that are written again, in the same transaction."""
    # The times are literals: in a statement with parameters, psycopg2 takes a % in a table's name for one.
    replaced = sql.SQL(REPLACED[work.write]).format(*map(sql.Literal, work.windows or ()))
    names = {"table": sql.Identifier(work.schema, work.table), "replaced": replaced}
    cursor.execute(sql.SQL("DELETE FROM {table} WHERE {replaced}").format(**names))
    cursor.execute(sql.SQL("SELECT count(*) FROM {table} WHERE {replaced}").format(**names))
    _refuse_dropped(work, int(cursor.fetchall()[0][0]))
    passing("postgres-unit-after-delete")


def _copy(cursor: Any, statement: str, rows: _Csv) -> None:
    try:
        cursor.copy_expert(statement, rows, AT_A_TIME)
    except psycopg2.Error as error:
        # If its source fails, psycopg2 cancels the COPY and raises only the cancel, as if the database had been
        # unreachable.
        if rows.error is None:
            raise
        raise rows.error from error


def _text(template: str, names: dict[str, Any], cursor: Any) -> str:
    return str(sql.SQL(template).format(**names).as_string(cursor))


class _Csv(io.RawIOBase):
    """Arrow batches as the CSV that COPY reads."""

    def __init__(self, first: pa.RecordBatch, rest: RecordBatches) -> None:
        self._pieces = self._encode(first, rest)
        self._left = memoryview(b"")
        self.error: BaseException | None = None
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`. An error of the batches is kept in `error`."""
        try:
            while not self._left:
                self._left = memoryview(next(self._pieces))
        except StopIteration:
            return b""
        except BaseException as error:
            self.error = error
            raise
        end = len(self._left) if size < 0 else size
        taken, self._left = bytes(self._left[:end]), self._left[end:]
        return taken

    def _encode(self, first: pa.RecordBatch, rest: RecordBatches) -> Iterator[bytes]:
        batch: pa.RecordBatch | None = first
        while batch is not None:
            sink = io.BytesIO()
            with content.csv_writer(sink, batch.schema, header=False) as writer:
                writer.write_batch(batch)
            self.count += batch.num_rows
            yield sink.getvalue()
            batch = next(rest, None)


# The data units of a batch: rows in the recorded number of partitions, one task and one transaction for each. Used by
# the sinks whose rows are in the unit's transaction: tables (`sink_postgres`, `sink_mysql`) and the outbox
# (`sink_outbox`).


@dataclass(frozen=True)
class PinnedUnits:
    """Commits the units of one sink for one driver."""

    database: Database
    sink: str
    epoch: int

    def pinned(self, batch: Batch, rows: DataFrame, key: Column) -> DataFrame:
        """Return the rows with their hash, in the partitions that the hash `key` selects.

        Raise InvariantBroken for a replay with other data.
        """
        plan, schema = batch.plan, rows.schema
        found = pinned.pin(rows, schema, F.pmod(key, F.lit(plan.partitions)).cast("int"), plan.partitions)
        if batch.replayed:
            pinned.check_replay(self.database, plan, self.sink, found, schema)
        return found

    def commit(self, exported: DataFrame | pa.Table, work: Work, put: Put | None = None) -> None:
        """Commit pinned rows, in the form that the table takes. `put` writes them in another database's SQL."""
        passing("postgres-before-units")
        rows = exported if isinstance(exported, pa.Table) else planned_once(exported)
        worker.ran(rows, write_unit(work, put), RESULT)
        passing("postgres-after-units")

    def commit_nothing(self, batch: Batch, nothing: Content) -> None:
        """Commit all units of a batch without rows."""
        passing("postgres-before-units")
        pinned.commit_nothing(self.database, self.epoch, batch, self.sink, nothing)
        passing("postgres-after-units")

    def end(self, scope: Scope, batch: Batch, authority: str) -> None:
        """Copy the units of a sink's own database to the platform's log, and check that no partition is missing."""
        plan = batch.plan
        if authority != "platform":
            for unit in Units(self.database).of_batch(plan.incarnation, plan.batch_id):
                Units(scope).copy(plan.incarnation, plan.batch_id, unit, authority)
        if batch.at_least_once:
            return  # its units are plain: rows are counted there, and a unit may be missing
        logged = Units(scope).of_batch(plan.incarnation, plan.batch_id)
        units.expect(logged, self.sink, plan.partitions, plan.incarnation, plan.batch_id)
