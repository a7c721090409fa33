"""What the log tells `onlyonce doctor`, which looks for what is stuck. All functions only read, except `mend`.

Who calls it: `onlyonce.operate.doctor`. Errors: none of its own. Not promised: that a driver without a session is dead.
If its session broke while it computes, it connects again at its next statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection

from onlyonce.catalog import bloom, packed
from onlyonce.catalog import chunks as catalog
from onlyonce.commitlog import authorities
from onlyonce.database.connect import Database, ask, do, run
from onlyonce.model.errors import OnlyonceError

Row = dict[str, Any]
AT_ONCE = 32
"""Filters that one query brings."""


def queries(connection: Connection) -> list[Row]:
    """The lives that are not closed, with their last batches and whether a driver is at work."""
    return _rows(ask(connection, "doctor", "queries"))


def begun(connection: Connection) -> dict[str, list[Row]]:
    """What began and did not end: batches, closes, backfills, releases."""
    return {
        "batches": _rows(ask(connection, "doctor", "begun_batches")),
        "closes": _rows(ask(connection, "doctor", "begun_closes")),
        "backfills": _rows(ask(connection, "doctor", "begun_backfills")),
        "releases": _rows(ask(connection, "doctor", "begun_releases")),
    }


def units_elsewhere(connection: Connection, begun: list[Row]) -> list[Row]:
    """Add to begun batches the units that sinks' own databases have; gives those for which one can't be asked, and
    why."""
    away = []
    for batch in begun:
        try:
            there = authorities.look(connection, batch["lineage"], batch["batch_id"])
        except OnlyonceError as error:
            away.append(batch | {"error": error})
            continue
        epochs = {*filter(None, (batch["epochs"] or "").split(", ")), *(str(row.epoch) for row in there)}
        batch["epochs"] = ", ".join(sorted(epochs, key=int)) or None
        batch["units"], batch["dead"] = batch["units"] + len(there), batch["dead"] + len(there)
    return away


def waits(connection: Connection) -> dict[str, list[Row]]:
    """What waits for somebody, whoever that is: lost long runs, files, rows of the outbox, acknowledgements, real
    time."""
    return {
        "long_runs": _rows(ask(connection, "doctor", "lost_long_runs")),
        "down": _rows(ask(connection, "doctor", "outputs_down")),
        "files": _rows(ask(connection, "doctor", "waiting_files")),
        "given_up": _rows(ask(connection, "doctor", "given_up_rows")),
        "undelivered": _rows(ask(connection, "doctor", "undelivered_rows")),
        "subscriptions": _rows(ask(connection, "doctor", "open_subscriptions")),
        "ahead": _rows(ask(connection, "doctor", "ahead")),
    }


def orphans(connection: Connection) -> list[Row]:
    """Units of which neither a batch nor a backfill is in the log."""
    return _rows(ask(connection, "doctor", "orphan_units"))


def uneven(connection: Connection) -> list[Row]:
    """Live buckets of the catalog that hold more or fewer ids than were kept."""
    return _rows(ask(connection, "doctor", "uneven_buckets"))


def vouched(connection: Connection) -> dict[str, int]:
    """The highest version of `events` that the log vouches for, by instance."""
    return {row.instance: int(row.version) for row in ask(connection, "doctor", "read_from_events")}


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
            stored = run(database, lambda conn, i=instance, s=some: catalog.filters(conn, i, list(s)))  # type: ignore[misc]
            # One that is not there any more was merged or collected meanwhile.
            yield from ((instance, key, some[key]) for key in stored if bloom.read(stored[key], some[key]) is None)


def mend(connection: Connection, instance: str, key: catalog.ChunkKey) -> None:
    """Make the filter of a chunk again from its ids."""
    ids = catalog.ids(connection, instance, key)
    if ids is not None:
        catalog.mend(connection, instance, key, bloom.make(packed.unpack(ids)))


def note(connection: Connection, found: list[Row]) -> None:
    """Keep what a look has found for the view `findings`, in the place of the look before."""
    do(connection, "doctor", "note_look", found=json.dumps(found))


def _rows(found: list[Any]) -> list[Row]:
    return [dict(row._mapping) for row in found]
