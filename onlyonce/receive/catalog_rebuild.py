"""Puts the ids of at-least-once batches into the catalog, from `events`, before the first exactly-once batch after
them.

In at-least-once mode a pipeline keeps records that the catalog does not know. From the first exactly-once batch on, a
re-delivery of such a record must be a duplicate. Ids below the collection floor, or older than the dedup horizon, are
never asked for and are left out.

Who calls it: receive, before it begins an exactly-once batch. The doctor calls `again`, for lost chunks. A group of
batches is one transaction; after a kill the next driver goes on. Raises InvariantBroken when `events` does not have the
rows that the log vouches for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from sqlalchemy import Connection

from onlyonce.catalog import bloom, packed
from onlyonce.catalog import chunks as catalog
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.collector import Collector
from onlyonce.commitlog.lineages import Driver, Lineages
from onlyonce.database import locks
from onlyonce.database.connect import Database, ask, do, run
from onlyonce.declare.pipeline import Pipeline
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.errors import InvariantBroken, Retryable
from onlyonce.model.operate.collecting import horizon_buckets
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import KEPT, OO_BATCH, OO_HIGH, OO_KIND, OO_LINEAGE, OO_LOW
from onlyonce.storage import event_rows

AT_ONCE = 2_000_000
"""Ids that are read and stored together: 32 MB. A batch of more is a group of its own."""

TRIES = 5

log = structlog.get_logger()


def catch_up(database: Database, driver: Driver, instance: str, events: Location, pipeline: Pipeline) -> int:
    """Add the ids that are missing; gives their number. One look into the log when there are none."""
    if not Chunks(database).without_ids(instance):
        return 0
    Collector(database).raise_floor(instance, horizon_buckets(pipeline.dedup_horizon))
    missing = Chunks(database).without_ids(instance)
    added = 0
    for group in _groups(missing):
        ids = _read(events, group)

        def work(connection: Connection, ids: dict[int, packed.Ids] = ids, group: list[Any] = group) -> None:
            Lineages(connection).check_epoch(driver.lineage, driver.epoch)
            for batch in group:
                _add(connection, instance, batch, ids[batch.batch_id])
            passing("rebuild-before-commit")

        run(database, work)
        passing("rebuild-after-commit")
        added += sum(batch.kept for batch in group)
    log.info("ids of at-least-once batches are in the catalog now", instance=instance, batches=len(missing), ids=added)
    return added


def again(database: Database, instance: str, events: Location, lineage: str, bucket: int) -> int:
    """Make the chunks of a lineage in a live bucket again from `events`, of all its committed batches; gives the ids.

    Called by `onlyonce doctor --fix`. One transaction under the collector's lock: a look-up sees the chunks as they
    were or as they are. Raises InvariantBroken when `events` has not the rows that the log vouches for, Retryable when
    batches of the bucket commit all the time.
    """
    for _ in range(TRIES):
        batches = run(database, lambda conn: _kept(conn, lineage, bucket))
        ids: dict[int, packed.Ids] = {}
        for group in _groups(batches):
            ids |= _read(events, group)
        if run(database, lambda conn, b=batches, i=ids: _replace(conn, instance, lineage, bucket, b, i)):  # type: ignore[misc]
            return sum(batch.kept for batch in batches)
    raise Retryable(
        f"bucket {bucket} of {lineage} gets new batches all the time",
        data="the catalog is as it was",
        hint="run the same command again",
    )


def _kept(connection: Connection, lineage: str, bucket: int) -> list[Any]:
    return ask(connection, "doctor", "kept_in_bucket", lineage=lineage, bucket=bucket)


def _replace(
    connection: Connection, instance: str, lineage: str, bucket: int, batches: list[Any], ids: dict[int, packed.Ids]
) -> bool:
    """Take the chunks of some batches out and put new ones in; False when there are other batches by now."""
    locks.wait(connection, stored_names.catalog_lock(instance))
    if bucket < Chunks(connection).ensure_bucket(instance, bucket):
        return True  # it was collected meanwhile
    if _kept(connection, lineage, bucket) != batches:
        return False
    numbers = [batch.batch_id for batch in batches]
    do(connection, "doctor", "take_chunks", instance=instance, lineage=lineage, bucket=bucket, batch_ids=numbers)
    for batch in batches:
        _store(connection, instance, batch, ids[batch.batch_id], batch.partitions)
    return True


def _groups(missing: list[Any]) -> Iterator[list[Any]]:
    """Batches of one lineage, in order, so many that their ids fit."""
    group: list[Any] = []
    for batch in missing:
        full = sum(b.kept for b in group) + batch.kept > AT_ONCE
        if group and (full or group[0].lineage != batch.lineage):
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


def _read(events: Location, group: list[Any]) -> dict[int, packed.Ids]:
    """The ids that each batch of a group has kept."""
    first, last, lineage = group[0].batch_id, group[-1].batch_id, group[0].lineage
    wanted = (pc.field(OO_KIND) == KEPT) & (pc.field(OO_LINEAGE) == lineage)
    wanted &= (pc.field(OO_BATCH) >= first) & (pc.field(OO_BATCH) <= last)
    rows: pa.Table = event_rows.dataset(events).to_table([OO_BATCH, OO_HIGH, OO_LOW], filter=wanted)
    number, high, low = (rows[name].to_numpy() for name in (OO_BATCH, OO_HIGH, OO_LOW))
    found = {}
    for batch in group:
        here = number == batch.batch_id
        found[batch.batch_id] = high[here].view(np.uint64), low[here].view(np.uint64)
        if int(here.sum()) != batch.kept:
            raise InvariantBroken(
                f"batch {lineage}/{batch.batch_id} has kept {batch.kept} records by the log, but {events} has "
                f"{here.sum()}",
                data="the ids of that batch are not in the catalog, and no batch was begun",
                hint="rows of `events` were removed by hand? Restore the table; or go on with mode='at_least_once'",
            )
    return found


def _add(connection: Connection, instance: str, batch: Any, ids: packed.Ids) -> None:
    if not Chunks(connection).ids_added(batch.lineage, batch.batch_id):
        return  # by another driver, or by this one, when the answer to its COMMIT was lost
    if batch.bucket >= Chunks(connection).ensure_bucket(instance, batch.bucket):
        _store(connection, instance, batch, ids, batch.partitions)


def _store(connection: Connection, instance: str, batch: Any, ids: packed.Ids, partitions: int) -> None:
    target = np.mod(ids[0].view(np.int64), partitions)
    for partition in range(partitions):
        mine = (ids[0][target == partition], ids[1][target == partition])
        once = packed.first_of_each(mine)
        mine = mine[0][once], mine[1][once]
        place = catalog.Place(instance, batch.bucket, 0, batch.lineage, batch.batch_id, partition, partitions)
        Chunks(connection).add(place, packed.pack(mine), bloom.make(mine))
