"""Store the begin and the end of erasures, and search the log for values to erase. docs/specification/erasure.md.

`operate.forget` runs an erasure, and calls this module in this order:

1. `begun` returns the erasure that an earlier attempt has begun and not ended.
2. `at_work`, `windows_at` and `outbox` read what the erasure concerns. Nothing is changed.
3. `begin` stores what to do: the windows to compute again and, if asked for, the ids to forget (`todo`, `ids`).
4. The methods `forget_…` and `rewrite` delete values from the log. `tables`, `searched_columns`, `statistics`,
   `statements` and `wal` search for values that are left.
5. `end` deletes what `begin` stored, and writes the receipt. The log never stores the values that were asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import psycopg2
from psycopg2 import sql as identifiers

from onlyonce.catalog import chunks, filters
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.range_filters import RangeFilters
from onlyonce.commitlog.removals import Rejections, Removal, Removals, Settled
from onlyonce.core import stored_names
from onlyonce.core.erasure import Condition
from onlyonce.core.errors import Refused, Retryable
from onlyonce.database import locks
from onlyonce.database.connect import Scope, Transactions, ask, do, one_transaction

OWN_SCHEMAS = (stored_names.PRIVATE_SCHEMA, stored_names.VIEWS_SCHEMA)
"""The platform's own schemas, all of whose tables `forget` searches for values that are left."""
Spans = dict[str, list[tuple[int, int]]]
"""Windows to compute again, by output: intervals of their starts, in microseconds."""


@dataclass(frozen=True)
class Erasure:
    """An erasure: what to do.

    number        its number among the removals of the instance; 0 before `begin` has stored it
    upto          the version of `events` up to which records are removed
    spans         the windows that the records were in, which are computed again
    lines         how many lines of input files were found
    ids           the record ids to forget too, packed (`catalog.filters.pack`); None: the ids stay in the id catalog
    without_line  how many of the records had no line in the input files
    """

    number: int
    upto: int
    spans: Spans
    lines: int
    ids: bytes | None = None
    without_line: int = 0

    @property
    def removal(self) -> Removal:
        """The removal of rows of `events` that is part of the erasure. It has no age limit, so `before` is 0."""
        return Removal(self.number, 0, self.upto)


@dataclass(frozen=True)
class SentRow:
    """A row of the outbox."""

    row_no: int
    output: str
    state: str
    payload: str


@dataclass(frozen=True)
class Wal:
    """Settings of PostgreSQL's write-ahead log, and its replication slots: how long it keeps erased values."""

    checkpoint_timeout: str
    max_wal_size: str
    recycled: bool
    archived: bool
    slots: list[str]


class Erasures(Transactions):
    """Erasures of records, and the places that they search."""

    @one_transaction
    def begun(self, instance: str, condition: Condition) -> Erasure | None:
        """Return the erasure that an earlier attempt has left behind. Raise Refused if it has another condition."""
        rows = ask(self.connection, "erasures", "begun", instance=instance)
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
        return Erasure(
            row.number, row.upto, spans, row.todo["lines"], row.ids and bytes(row.ids), row.todo["without_line"]
        )

    @one_transaction
    def begin(
        self,
        instance: str,
        condition: Condition,
        by: str,
        salt: str,
        rejected: list[tuple[int, int]],
        meant: Callable[[Scope], Erasure],
    ) -> Erasure:
        """Store what to do, and return the erasure. Return a begun one if it has the same condition.

        by         the person who asks for it
        salt       the random key of the condition's fingerprint, which is stored in place of its values
        rejected   the ids (high, low) of the records. Their rejections are deleted in this transaction: once the
                   records are removed, their ids can't be found any more
        meant      computes what to do, in this transaction, while the instance is locked

        Raise Refused if an erasure with another condition has not ended, or if the records may still be read
        (`at_work`). Raise Retryable if a removal by age (keep_events) has not ended.
        """
        ask(self.connection, "removals", "lock_instance", instance=instance)
        Rejections(self.connection).forget_ids(instance, rejected)
        left = self.begun(instance, condition)
        if left:
            return left
        if Removals(self.connection).begun(instance):
            raise Retryable(
                f"old records of {instance} are being removed (keep_events)",
                data="nothing of this erasure was begun",
                hint=f"onlyonce maintain {instance} finishes that; then run the same command again",
            )
        self.refuse_in_use(instance)
        found = meant(self.connection)
        number = ask(self.connection, "erasures", "begin_removal", instance=instance, upto=found.upto)[0].removal_no
        do(
            self.connection,
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

    @one_transaction
    def end(self, instance: str, erasure: Erasure, version: int, left: list[str]) -> None:
        """End an erasure: write its receipt, and delete what `begin` stored.

        version   the version of `events` after the removal
        left      the places that still have values, or may have them, one line each
        """
        windows = sum(len(some) for some in erasure.spans.values())
        do(
            self.connection,
            "erasures",
            "end",
            instance=instance,
            number=erasure.number,
            lines=erasure.lines,
            windows=windows,
            left=left,
        )
        Removals(self.connection).end(instance, erasure.removal, version)

    @one_transaction
    def at_work(self, instance: str) -> list[str]:
        """Return what may still read the records: drivers with a session, and begun batches, backfills and
        reprocessings.

        An erasure begins only if there are none.
        """
        drivers = [
            f"a driver of {row.incarnation}" for row in ask(self.connection, "erasures", "at_work", instance=instance)
        ]
        batches = [f"batch {row.unit}" for row in ask(self.connection, "erasures", "begun_batches", instance=instance)]
        return drivers + batches + Removals(self.connection).under_way(instance)

    @one_transaction
    def refuse_in_use(self, instance: str) -> None:
        """Raise Refused if a driver is running, or if a batch, backfill or reprocessing has begun and not ended."""
        busy = self.at_work(instance)
        if busy:
            raise Refused(
                f"{instance}: {busy[0]} may read records while they are erased",
                data="nothing was changed",
                hint=f"stop it (onlyonce stop {instance}), or let it end; unfinished work is ended by running the "
                "same command again",
            )

    @one_transaction
    def bounded_runs(self, pipeline: str) -> list[str]:
        """Return the bounded runs of a pipeline, which have data of their own."""
        return [row.instance for row in ask(self.connection, "erasures", "other_instances", pipeline=pipeline)]

    @one_transaction
    def windows_at(self, instance: str, output: str, times: list[datetime]) -> list[tuple[datetime, datetime]]:
        """Return the closed windows of an output that contain any of these event times."""
        rows = ask(self.connection, "erasures", "windows_at", instance=instance, output=output, times=times)
        return [(row.window_start, row.window_end) for row in rows]

    @one_transaction
    def settled(self, instance: str) -> list[Settled]:
        """Return, for each incarnation of an output, its last committed batch.

        Staged rows of batches up to this one are never read again, so they can be deleted.
        """
        return [Settled(*tuple(row)) for row in ask(self.connection, "erasures", "settled", instance=instance)]

    @one_transaction
    def outbox(self, instance: str, condition: Condition) -> list[SentRow]:
        """Return the rows of the outbox whose payload has the condition's values in its columns.

        The query selects payloads with the longest value or with an escape. `fits_line` then parses each of them.
        """
        rows = ask(self.connection, "erasures", "outbox", instance=instance, text=condition.longest)
        return [SentRow(**row._mapping) for row in rows if condition.fits_line(row.payload, None)]

    @one_transaction
    def forget_outbox(self, row_nos: list[int]) -> int:
        """Delete rows of the outbox, and return their number."""
        return do(self.connection, "erasures", "forget_outbox", row_nos=row_nos)

    @one_transaction
    def forget_failures(self, instance: str) -> int:
        """Delete the errors of receive batches, which have all ended. Return their number."""
        return do(self.connection, "erasures", "forget_failures", instance=instance)

    @one_transaction
    def forget_ids(self, instance: str, ids: bytes) -> int:
        """Remove record ids from the id catalog, so that a re-delivery is a new record. Return the number removed."""
        # Without the lock a gc run that has already read the ids would afterwards build a filter of them.
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        wanted, forgotten = filters.unpack(ids), 0
        for row in ask(self.connection, "erasures", "chunks", instance=instance):
            there = filters.unpack(bytes(row.ids))
            gone = filters.member(wanted, there)  # packed ids are sorted, as `member` needs the first ones to be
            if not gone.any():
                continue
            rest = (there[0][~gone], there[1][~gone])
            forgotten += int(np.count_nonzero(gone))
            key = chunks.ChunkKey(row.bucket, row.incarnation, row.batch_id, row.partition)
            Chunks(self.connection).replace_ids(instance, key, filters.pack(rest), filters.make(rest))
            RangeFilters(self.connection).forget(instance, row.bucket)
        return forgotten

    @one_transaction
    def tables(self, schema: str) -> list[str]:
        """Return the tables of a schema. If a table is partitioned, return the parent only."""
        return [row.name for row in ask(self.connection, "erasures", "tables", schema=schema)]

    @one_transaction
    def searched_columns(self, schema: str, table: str, asked: list[str]) -> list[str]:
        """Return the columns of a table that may have strings, and those with the names asked for.

        Return an empty list if there is no such table.
        """
        return [
            row.name
            for row in ask(self.connection, "erasures", "searched_columns", schema=schema, table=table, asked=asked)
        ]

    @one_transaction
    def statistics(self, schema: str, table: str) -> list[tuple[str, str]]:
        """Return the columns whose values the planner keeps in its statistics, each with these values."""
        return [
            (row.name, row.kept) for row in ask(self.connection, "erasures", "statistics", schema=schema, table=table)
        ]

    @one_transaction
    def statements(self) -> list[str]:
        """Return our own role's statements that pg_stat_statements keeps; an empty list if the server has not
        loaded it.
        """
        schemas = ask(self.connection, "erasures", "statements_schema")
        if not schemas:
            return []
        try:
            with self.connection.begin_nested():
                cursor = self.connection.connection.cursor()
                cursor.execute(
                    identifiers.SQL("SELECT query FROM {}").format(
                        identifiers.Identifier(schemas[0].name, "pg_stat_statements")
                    )
                )
                return [query for (query,) in cursor.fetchall() if query is not None]
        except psycopg2.Error:
            return []  # 55000: it must be loaded when the server starts

    @one_transaction
    def wal(self) -> Wal:
        """Return the settings that decide how long PostgreSQL keeps its write-ahead log."""
        [row] = ask(self.connection, "erasures", "wal")
        return Wal(**row._mapping)

    @one_transaction
    def errors(self) -> list[str]:
        """Return the errors that the log keeps of runs, alerts and the doctor's last check. One may quote a record."""
        return [row.error for row in ask(self.connection, "erasures", "errors")]

    @one_transaction
    def forget_errors(self, errors: Sequence[str]) -> None:
        """Replace these errors by a note, wherever the log keeps them. The doctor's last check is deleted."""
        found = list(errors)
        do(self.connection, "erasures", "forget_alerts", errors=found)
        do(self.connection, "erasures", "forget_driver_runs", errors=found)
        do(self.connection, "erasures", "forget_long_runs", errors=found)
        do(self.connection, "erasures", "forget_looks", errors=found)

    @one_transaction
    def rewrite(self) -> None:
        """Write the tables from which an erasure deletes into new files, without what was there (VACUUM FULL).

        VACUUM can't run inside a transaction block, so the scope must be a connection in autocommit mode, as a
        `database.connect.Session` has. Then the decorator opens no transaction.
        """
        do(self.connection, "erasures", "rewrite")
