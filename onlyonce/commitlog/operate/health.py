"""What the log tells `onlyonce doctor`, which looks for what is stuck. All functions only read, except `mend`.

Who calls it: `onlyonce.operate.doctor`. Errors: none of its own. Not promised: that a driver without a session is dead.
If its session broke while it computes, it connects again at its next statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from onlyonce.catalog import bloom, packed
from onlyonce.catalog import chunks as catalog
from onlyonce.catalog.chunks import Chunks
from onlyonce.commitlog.authorities import Authorities
from onlyonce.database.connect import Database, ask, do, run
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.errors import OnlyonceError

Row = dict[str, Any]
AT_ONCE = 32
"""Filters that one query brings."""


class Health(Transactions):
    """What the doctor asks."""

    @one_transaction
    def queries(self) -> list[Row]:
        """The lives that are not closed, with their last batches and whether a driver is at work."""
        return _rows(ask(self.connection, "doctor", "queries"))

    @one_transaction
    def begun(self) -> dict[str, list[Row]]:
        """What began and did not end: batches, closes, backfills, releases."""
        return {
            "batches": _rows(ask(self.connection, "doctor", "begun_batches")),
            "closes": _rows(ask(self.connection, "doctor", "begun_closes")),
            "backfills": _rows(ask(self.connection, "doctor", "begun_backfills")),
            "releases": _rows(ask(self.connection, "doctor", "begun_releases")),
        }

    @one_transaction
    def units_elsewhere(self, begun: list[Row]) -> list[Row]:
        """Add to begun batches the units that sinks' own databases have; gives those for which one can't be asked, and
        why."""
        away = []
        for batch in begun:
            try:
                there = Authorities(self.connection).look(batch["lineage"], batch["batch_id"])
            except OnlyonceError as error:
                away.append(batch | {"error": error})
                continue
            epochs = {*filter(None, (batch["epochs"] or "").split(", ")), *(str(row.epoch) for row in there)}
            batch["epochs"] = ", ".join(sorted(epochs, key=int)) or None
            batch["units"], batch["dead"] = batch["units"] + len(there), batch["dead"] + len(there)
        return away

    @one_transaction
    def waits(self) -> dict[str, list[Row]]:
        """What waits for somebody, whoever that is: lost long runs, files, rows of the outbox, acknowledgements, real
        time."""
        return {
            "long_runs": _rows(ask(self.connection, "doctor", "lost_long_runs")),
            "down": _rows(ask(self.connection, "doctor", "outputs_down")),
            "files": _rows(ask(self.connection, "doctor", "waiting_files")),
            "given_up": _rows(ask(self.connection, "doctor", "given_up_rows")),
            "undelivered": _rows(ask(self.connection, "doctor", "undelivered_rows")),
            "subscriptions": _rows(ask(self.connection, "doctor", "open_subscriptions")),
            "ahead": _rows(ask(self.connection, "doctor", "ahead")),
        }

    @one_transaction
    def orphans(self) -> list[Row]:
        """Units of which neither a batch nor a backfill is in the log."""
        return _rows(ask(self.connection, "doctor", "orphan_units"))

    @one_transaction
    def uneven(self) -> list[Row]:
        """Live buckets of the catalog that hold more or fewer ids than were kept."""
        return _rows(ask(self.connection, "doctor", "uneven_buckets"))

    @one_transaction
    def vouched(self) -> dict[str, int]:
        """The highest version of `events` that the log vouches for, by instance."""
        return {row.instance: int(row.version) for row in ask(self.connection, "doctor", "read_from_events")}

    @one_transaction
    def mend(self, instance: str, key: catalog.ChunkKey) -> None:
        """Make the filter of a chunk again from its ids."""
        ids = Chunks(self.connection).ids(instance, key)
        if ids is not None:
            Chunks(self.connection).mend(instance, key, bloom.make(packed.unpack(ids)))

    @one_transaction
    def note(self, found: list[Row]) -> None:
        """Keep what a look has found for the view `findings`, in the place of the look before."""
        do(self.connection, "doctor", "note_look", found=json.dumps(found))


def damaged_filters(database: Database) -> Iterator[tuple[str, catalog.ChunkKey, int]]:
    """(instance, chunk, number of ids) of each filter that is missing or fails its checksum.

    A transaction for a few each.
    """
    chunks = run(database, lambda conn: ask(conn, "doctor", "live_chunks"))
    for instance in dict.fromkeys(row.instance for row in chunks):
        mine = [row for row in chunks if row.instance == instance]
        for start in range(0, len(mine), AT_ONCE):
            some = {
                catalog.ChunkKey(row.bucket, row.lineage, row.batch_id, row.partition): row.id_count
                for row in mine[start : start + AT_ONCE]
            }
            stored = Chunks(database).filters(instance, list(some))  # type: ignore[misc]
            # One that is not there any more was merged or collected meanwhile.
            yield from ((instance, key, some[key]) for key in stored if bloom.read(stored[key], some[key]) is None)


def _rows(found: list[Any]) -> list[Row]:
    return [dict(row._mapping) for row in found]
