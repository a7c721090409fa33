"""Erasures: begun, with what is still to be done, and ended, with a receipt that never has the values that were asked
for. docs/specification/erasure.md.

Who calls it: `onlyonce.operate.erase`. Errors: Refused where another condition's erasure has not ended, Retryable where
a removal by age is under way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psycopg2
from psycopg2 import sql as identifiers
from sqlalchemy import Connection

from onlyonce.catalog import bloom, chunks, packed, range_filters
from onlyonce.commitlog.operate import removals
from onlyonce.commitlog.operate.removals import Removal
from onlyonce.commitlog.operate.retention import Settled
from onlyonce.database import locks
from onlyonce.database.connect import ask, do
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.operate.erasing import Condition

Spans = dict[str, list[tuple[int, int]]]
"""By output, the windows that are to be computed again: intervals of their starts, in microseconds."""


@dataclass(frozen=True)
class Erasure:
    """An erasure that has begun.

    spans   the windows that the records were in
    lines   how many lines of input files were found
    ids     the record ids that are to be forgotten too, packed
    without_line  how many of the records had no line that was found
    """

    number: int
    upto: int
    spans: Spans
    lines: int
    ids: bytes | None = None
    without_line: int = 0

    @property
    def removal(self) -> Removal:
        """The removal of rows of `events` that is part of it."""
        return Removal(self.number, 0, self.upto)


def begun(connection: Connection, instance: str, condition: Condition) -> Erasure | None:
    """The erasure that an earlier attempt has left. Raises Refused where that was for another condition."""
    rows = ask(connection, "erasures", "begun", instance=instance)
    if not rows:
        return None
    row = rows[0]
    if condition.fingerprint(row.salt) != row.fingerprint:
        raise Refused(
            f"erasure {row.number} of {instance}, by {row.asked_by} and {', '.join(row.columns)}, has not ended",
            data="nothing of this one was begun",
            hint="run `onlyonce forget` with that one's condition again, which finishes it; then this one",
        )
    spans = {output: [(start, stop) for start, stop in some] for output, some in row.todo["spans"].items()}
    return Erasure(row.number, row.upto, spans, row.todo["lines"], row.ids and bytes(row.ids), row.todo["without_line"])


def begin(
    connection: Connection,
    instance: str,
    condition: Condition,
    by: str,
    salt: str,
    meant: Callable[[Connection], Erasure],
) -> Erasure:
    """Note what is to be done, alone. The one that has begun, if there is one of this condition."""
    ask(connection, "removals", "lock_instance", instance=instance)
    left = begun(connection, instance, condition)
    if left:
        return left
    if removals.begun(connection, instance):
        raise Retryable(
            f"old records of {instance} are being removed (keep_events)",
            data="nothing of this erasure was begun",
            hint=f"onlyonce maintain {instance} finishes that; then run the same command again",
        )
    found = meant(connection)
    number = ask(connection, "erasures", "begin_removal", instance=instance, upto=found.upto)[0].removal_no
    do(
        connection,
        "erasures",
        "begin",
        instance=instance,
        number=number,
        columns=condition.columns,
        salt=salt,
        fingerprint=condition.fingerprint(salt),
        asked_by=by,
        ids_too=found.ids is not None,
        todo=json.dumps({"spans": found.spans, "lines": found.lines, "without_line": found.without_line}),
        ids=found.ids,
    )
    return replace(found, number=number)


def end(connection: Connection, instance: str, erasure: Erasure, version: int, left: list[str]) -> None:
    """End an erasure: its receipt names what is left, and what was to be done is forgotten."""
    windows = sum(len(some) for some in erasure.spans.values())
    do(
        connection,
        "erasures",
        "end",
        instance=instance,
        number=erasure.number,
        lines=erasure.lines,
        windows=windows,
        left=left,
    )
    removals.end(connection, instance, erasure.removal, version)


def at_work(connection: Connection, instance: str) -> list[str]:
    """What reads or may read records again: drivers with a session, batches, backfills and releases that have begun."""
    drivers = [f"a driver of {row.lineage}" for row in ask(connection, "erasures", "at_work", instance=instance)]
    batches = [f"batch {row.unit}" for row in ask(connection, "erasures", "begun_batches", instance=instance)]
    return drivers + batches + removals.under_way(connection, instance)


def bounded_runs(connection: Connection, pipeline: str) -> list[str]:
    """The bounded runs of a pipeline, which have data of their own."""
    return [row.instance for row in ask(connection, "erasures", "other_instances", pipeline=pipeline)]


def windows_at(connection: Connection, instance: str, output: str, times: list[Any]) -> list[Any]:
    """The closed windows of an output that hold some event times."""
    return ask(connection, "erasures", "windows_at", instance=instance, output=output, times=times)


def settled(connection: Connection, instance: str) -> list[Settled]:
    """Up to which batch of each life of an output no staged rows are read again."""
    return [Settled(*tuple(row)) for row in ask(connection, "erasures", "settled", instance=instance)]


def outbox(connection: Connection, instance: str, condition: Condition) -> list[Any]:
    """The rows of the outbox whose payload has these columns with these values."""
    rows = ask(connection, "erasures", "outbox", instance=instance, text=condition.longest)
    return [row for row in rows if condition.fits_line(row.payload, None)]


def forget_outbox(connection: Connection, row_nos: list[int]) -> int:
    """Take rows out of the outbox."""
    return do(connection, "erasures", "forget_outbox", row_nos=row_nos)


def forget_failures(connection: Connection, instance: str) -> int:
    """Delete the errors of receive batches, all of which have ended."""
    return do(connection, "erasures", "forget_failures", instance=instance)


def forget_ids(connection: Connection, instance: str, ids: bytes) -> int:
    """Take record ids out of the catalog, so that a re-delivery is a new record; gives the number."""
    # Else a collection that has read the ids would make a filter of them afterwards.
    locks.wait(connection, stored_names.catalog_lock(instance))
    wanted, forgotten = packed.unpack(ids), 0
    for row in ask(connection, "erasures", "chunks", instance=instance):
        there = packed.unpack(bytes(row.ids))
        gone = packed.member(wanted, there)
        if not gone.any():
            continue
        rest = (there[0][~gone], there[1][~gone])
        forgotten += int(np.count_nonzero(gone))
        key = chunks.ChunkKey(row.bucket, row.lineage, row.batch_id, row.partition)
        chunks.replace_ids(connection, instance, key, packed.pack(rest), bloom.make(rest))
        range_filters.forget(connection, instance, row.bucket)
    return forgotten


OWN_SCHEMAS = (stored_names.PRIVATE_SCHEMA, stored_names.VIEWS_SCHEMA)


def tables(connection: Connection, schema: str) -> list[str]:
    """The tables of a schema; of one that is partitioned not its parts."""
    return [row.name for row in ask(connection, "erasures", "tables", schema=schema)]


def searched_columns(connection: Connection, schema: str, table: str, asked: list[str]) -> list[str]:
    """The columns of a table that may have strings, and those with the names that are asked for; none if there is no
    such table."""
    return [
        row.name for row in ask(connection, "erasures", "searched_columns", schema=schema, table=table, asked=asked)
    ]


def statistics(connection: Connection, schema: str, table: str) -> list[tuple[str, str]]:
    """The columns of a table of which the planner keeps values, each with these values."""
    return [(row.name, row.kept) for row in ask(connection, "erasures", "statistics", schema=schema, table=table)]


def statements(connection: Connection) -> list[str]:
    """The statements of our own role that pg_stat_statements keeps; none where the server has not loaded it."""
    schemas = ask(connection, "erasures", "statements_schema")
    if not schemas:
        return []
    try:
        with connection.begin_nested():
            cursor = connection.connection.cursor()
            cursor.execute(
                identifiers.SQL("SELECT query FROM {}").format(
                    identifiers.Identifier(schemas[0].name, "pg_stat_statements")
                )
            )
            return [query for (query,) in cursor.fetchall() if query is not None]
    except psycopg2.Error:
        return []  # 55000: it must be loaded when the server starts


def wal(connection: Connection) -> Any:
    """How long PostgreSQL keeps its write-ahead log, by its settings."""
    [row] = ask(connection, "erasures", "wal")
    return row


def rewrite(connection: Connection, table: str) -> None:
    """Write a table from which an erasure deletes rows into new files. Not within a transaction."""
    if table == "outbox":
        do(connection, "erasures", "rewrite_outbox")
    else:
        do(connection, "erasures", "rewrite_rejected")
