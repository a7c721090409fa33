"""What the log tells `onlyonce doctor`, which looks for what is stuck. All functions only read, except `mend`.

Who calls it: `onlyonce.operate.doctor`. Errors: none of its own. Not promised: that a driver without a session is dead.
If its session broke while it computes, it connects again at its next statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onlyonce.catalog import bloom, packed
from onlyonce.catalog import chunks as catalog
from onlyonce.catalog.chunks import Chunks
from onlyonce.commitlog.authorities import Authorities
from onlyonce.database.connect import Database, ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.operate.stuck import (
    Begun,
    BegunBackfill,
    BegunBatch,
    BegunClose,
    BegunRelease,
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

AT_ONCE = 32
"""Filters that one query brings."""


class Health(Transactions):
    """What the doctor asks."""

    @one_transaction
    def queries(self) -> list[LiveQuery]:
        """The lives that are not closed, with their last batches and whether a driver is at work."""
        return [LiveQuery(**row._mapping) for row in ask(self.connection, "doctor", "queries")]

    @one_transaction
    def begun(self) -> Begun:
        """What began and did not end. Of batches only the units that the log has."""
        return Begun(
            [BegunBatch(**row._mapping) for row in ask(self.connection, "doctor", "begun_batches")],
            [BegunClose(**row._mapping) for row in ask(self.connection, "doctor", "begun_closes")],
            [BegunBackfill(**row._mapping) for row in ask(self.connection, "doctor", "begun_backfills")],
            [BegunRelease(**row._mapping) for row in ask(self.connection, "doctor", "begun_releases")],
        )

    @one_transaction
    def with_units_elsewhere(self, begun: Sequence[BegunBatch]) -> tuple[list[BegunBatch], list[SinkAway]]:
        """Begun batches with the units that sinks' own databases have, and those for which one can't be asked."""
        found, away = [], []
        for batch in begun:
            try:
                there = Authorities(self.connection).look(batch.lineage, batch.batch_id)
            except OnlyonceError as error:
                away.append(SinkAway(batch, error))
                found.append(batch)
                continue
            epochs = {*filter(None, (batch.epochs or "").split(", ")), *(str(unit.epoch) for unit in there)}
            number, known = len(there), ", ".join(sorted(epochs, key=int)) or None
            found.append(replace(batch, epochs=known, units=batch.units + number, dead=batch.dead + number))
        return found, away

    @one_transaction
    def waits(self) -> Waits:
        """What waits for somebody, whoever that is: lost long runs, files, rows of the outbox, acknowledgements, real
        time."""
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
        """Units of which neither a batch nor a backfill is in the log."""
        return [OrphanUnits(**row._mapping) for row in ask(self.connection, "doctor", "orphan_units")]

    @one_transaction
    def uneven(self) -> list[UnevenBucket]:
        """Live buckets of the catalog that hold more or fewer ids than were kept."""
        return [UnevenBucket(**row._mapping) for row in ask(self.connection, "doctor", "uneven_buckets")]

    @one_transaction
    def vouched(self) -> dict[str, int]:
        """The highest version of `events` that the log vouches for, by instance."""
        return {row.instance: int(row.version) for row in ask(self.connection, "doctor", "read_from_events")}

    @one_transaction
    def live_chunks(self) -> dict[str, dict[catalog.ChunkKey, int]]:
        """By instance the chunks of live buckets, each with its number of ids."""
        found: dict[str, dict[catalog.ChunkKey, int]] = {}
        for row in ask(self.connection, "doctor", "live_chunks"):
            key = catalog.ChunkKey(row.bucket, row.lineage, row.batch_id, row.partition)
            found.setdefault(row.instance, {})[key] = row.id_count
        return found

    @one_transaction
    def mend(self, instance: str, key: catalog.ChunkKey) -> None:
        """Make the filter of a chunk again from its ids."""
        ids = Chunks(self.connection).ids(instance, key)
        if ids is not None:
            Chunks(self.connection).mend(instance, key, bloom.make(packed.unpack(ids)))

    @one_transaction
    def note(self, found: list[dict[str, str]]) -> None:
        """Keep what a look has found for the view `findings`, in the place of the look before."""
        do(self.connection, "doctor", "note_look", found=json.dumps(found))


def damaged_filters(database: Database) -> Iterator[tuple[str, catalog.ChunkKey, int]]:
    """(instance, chunk, number of ids) of each filter that is missing or fails its checksum.

    A transaction for a few each.
    """
    for instance, chunks in Health(database).live_chunks().items():
        keys = list(chunks)
        for start in range(0, len(keys), AT_ONCE):
            stored = Chunks(database).filters(instance, keys[start : start + AT_ONCE])
            # One that is not there any more was merged or collected meanwhile.
            yield from ((instance, key, chunks[key]) for key in stored if bloom.read(stored[key], chunks[key]) is None)
