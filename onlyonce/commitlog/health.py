"""Raised alerts, the questions of `onlyonce doctor`, and the views as dictionaries.

The log keeps the causes of alerts, so that each is reported once until it clears.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import filters
from onlyonce.catalog.chunks import Chunks
from onlyonce.commitlog.units import Authorities
from onlyonce.core.alerting import Cause
from onlyonce.core.errors import OnlyonceError
from onlyonce.core.stuck import (
    Begun,
    BegunBackfill,
    BegunBatch,
    BegunMarker,
    BegunReprocessing,
    GivenUpRows,
    InputAhead,
    LiveQuery,
    LostLongRun,
    OpenSubscription,
    OrphanUnits,
    OutputDown,
    SinkAway,
    UndeliveredRows,
    UnevenBucket,
    WaitingFiles,
    Waits,
)
from onlyonce.database.connect import Database, Transactions, ask, do, do_many, one_transaction, snapshot


class Alerts(Transactions):
    """Causes of alerts."""

    @one_transaction
    def keep(self, seen: list[Cause]) -> list[Cause]:
        """Raise new causes, and clear causes that are no longer seen; return the cleared ones."""
        do_many(self.connection, "alerts", "raise", [vars(cause) for cause in seen])
        kinds, subjects = [cause.kind for cause in seen], [cause.subject for cause in seen]
        return [Cause(*tuple(row)) for row in ask(self.connection, "alerts", "clear", kinds=kinds, subjects=subjects)]

    @one_transaction
    def raised(self) -> list[dict[str, Any]]:
        """Return all causes that are raised."""
        return [dict(row._mapping) for row in ask(self.connection, "alerts", "raised")]

    @one_transaction
    def untold(self, after: tuple[str, str]) -> Cause | None:
        """Return the next cause that was not reported, locked until the transaction ends."""
        rows = ask(self.connection, "alerts", "untold", kind=after[0], subject=after[1])
        return Cause(*tuple(rows[0])) if rows else None

    @one_transaction
    def told(self, cause: Cause) -> None:
        """Note that the hook has accepted a cause."""
        do(self.connection, "alerts", "told", kind=cause.kind, subject=cause.subject)


# What `onlyonce doctor` asks to find what is stuck. All methods of `Health` only read, except two: one makes a filter
# again, one stores findings.
#
# A driver without a session need not be dead: if its session broke while it computes, it connects again at its next
# statement.


AT_ONCE = 32
"""Filters that one query fetches."""


class Health(Transactions):
    """The doctor's questions."""

    @one_transaction
    def queries(self) -> list[LiveQuery]:
        """Return the incarnations that are not closed, with their last batches and whether a driver is running."""
        return [LiveQuery(**row._mapping) for row in ask(self.connection, "doctor", "queries")]

    @one_transaction
    def begun(self) -> Begun:
        """Return what began and did not end. It includes only units that are still in the log."""
        return Begun(
            [BegunBatch(**row._mapping) for row in ask(self.connection, "doctor", "begun_batches")],
            [BegunMarker(**row._mapping) for row in ask(self.connection, "doctor", "begun_markers")],
            [BegunBackfill(**row._mapping) for row in ask(self.connection, "doctor", "begun_backfills")],
            [BegunReprocessing(**row._mapping) for row in ask(self.connection, "doctor", "begun_reprocessings")],
        )

    @one_transaction
    def with_units_elsewhere(self, begun: Sequence[BegunBatch]) -> tuple[list[BegunBatch], list[SinkAway]]:
        """Add the units in sinks' own databases to begun batches; return these, and the batches with an unreachable
        database.
        """
        found, away = [], []
        for batch in begun:
            try:
                there = Authorities(self.connection).look(batch.incarnation, batch.batch_id)
            except OnlyonceError as error:
                away.append(SinkAway(batch, error))
                found.append(batch)
                continue
            epochs = {*filter(None, (batch.epochs or "").split(", ")), *(str(unit.epoch) for unit in there)}
            number, known = len(there), ", ".join(sorted(epochs, key=int)) or None
            # Units in a sink's database don't say whether their driver lives: they count as units of ended drivers.
            found.append(replace(batch, epochs=known, units=batch.units + number, dead=batch.dead + number))
        return found, away

    @one_transaction
    def waits(self) -> Waits:
        """Return what waits: lost long runs, outputs that are down, files, rows of the outbox, open subscriptions, and
        input that a clock ahead of the time has registered.
        """
        return Waits(
            [LostLongRun(**row._mapping) for row in ask(self.connection, "doctor", "lost_long_runs")],
            [OutputDown(**row._mapping) for row in ask(self.connection, "doctor", "outputs_down")],
            [WaitingFiles(**row._mapping) for row in ask(self.connection, "doctor", "waiting_files")],
            [GivenUpRows(**row._mapping) for row in ask(self.connection, "doctor", "given_up_rows")],
            [UndeliveredRows(**row._mapping) for row in ask(self.connection, "doctor", "undelivered_rows")],
            [OpenSubscription(**row._mapping) for row in ask(self.connection, "doctor", "open_subscriptions")],
            [InputAhead(**row._mapping) for row in ask(self.connection, "doctor", "ahead")],
        )

    @one_transaction
    def orphans(self) -> list[OrphanUnits]:
        """Return the units for which the log has neither a batch nor a backfill."""
        return [OrphanUnits(**row._mapping) for row in ask(self.connection, "doctor", "orphan_units")]

    @one_transaction
    def uneven(self) -> list[UnevenBucket]:
        """Return the live buckets of the id catalog that hold more or fewer ids than were kept."""
        return [UnevenBucket(**row._mapping) for row in ask(self.connection, "doctor", "uneven_buckets")]

    @one_transaction
    def vouched(self) -> dict[str, int]:
        """Return, by instance, the highest version of `events` that the log refers to."""
        return {row.instance: int(row.version) for row in ask(self.connection, "doctor", "read_from_events")}

    @one_transaction
    def live_chunks(self) -> dict[str, dict[catalog.ChunkKey, int]]:
        """Return, by instance, the chunks of live buckets, each with its number of ids."""
        found: dict[str, dict[catalog.ChunkKey, int]] = {}
        for row in ask(self.connection, "doctor", "live_chunks"):
            key = catalog.ChunkKey(row.bucket, row.incarnation, row.batch_id, row.partition)
            found.setdefault(row.instance, {})[key] = row.id_count
        return found

    @one_transaction
    def repair_filter(self, instance: str, key: catalog.ChunkKey) -> None:
        """Make the filter of a chunk again from its ids."""
        ids = Chunks(self.connection).ids(instance, key)
        if ids is not None:
            Chunks(self.connection).repair_filter(instance, key, filters.make(filters.unpack(ids)))

    @one_transaction
    def note(self, found: list[dict[str, str]]) -> None:
        """Store the doctor's findings for the view `findings`, in place of the previous ones."""
        do(self.connection, "doctor", "note_look", found=json.dumps(found))


def damaged_filters(database: Database) -> Iterator[tuple[str, catalog.ChunkKey, int]]:
    """Yield (instance, chunk, number of ids) of each filter that is missing or fails its checksum.

    Read `AT_ONCE` filters in each transaction.
    """
    for instance, chunks in Health(database).live_chunks().items():
        keys = list(chunks)
        for start in range(0, len(keys), AT_ONCE):
            stored = Chunks(database).filters(instance, keys[start : start + AT_ONCE])
            # A chunk that is missing now was merged or removed meanwhile.
            yield from (
                (instance, key, chunks[key]) for key in stored if filters.read(stored[key], chunks[key]) is None
            )


# Reads the views as plain dictionaries, for reports and tables.


class Views(Transactions):
    """The views, read as dictionaries."""

    @one_transaction
    def rows(self, query: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a named query of `sql/statements/views.sql`."""
        return [dict(row._mapping) for row in ask(self.connection, "views", query, **parameters)]

    @one_transaction
    def at_once(self, queries: Iterable[str]) -> list[list[dict[str, Any]]]:
        """Return the rows of several queries, all in one snapshot.

        Without a snapshot, a batch that commits in between would look like a disagreement.
        """
        snapshot(self.connection)
        return [self.rows(query) for query in queries]

    @one_transaction
    def free(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a user's own statement. The role that runs it decides what it may see."""
        result = self.connection.execution_options(no_parameters=True).exec_driver_sql(statement)
        if not result.returns_rows:
            return []
        names = _told_apart(list(result.keys()))
        return [dict(zip(names, row, strict=True)) for row in result]


def _told_apart(names: list[str]) -> list[str]:
    """Return the names of columns, each once: `sum`, `sum_2`. A statement may use a name twice, and both are shown."""
    found: list[str] = []
    for name in names:
        number, own = 1, name
        while own in found or (number > 1 and own in names):
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found
