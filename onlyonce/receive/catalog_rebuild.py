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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from onlyonce.catalog import packed
from onlyonce.catalog.chunks import Chunks, KeptBatch
from onlyonce.catalog.collector import Collector
from onlyonce.commitlog.lineages import Driver
from onlyonce.commitlog.rebuilds import Rebuilds
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Pipeline
from onlyonce.failpoints import passing
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
        Rebuilds(database).add(driver, instance, group, ids)
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
        batches = Rebuilds(database).kept(lineage, bucket)
        ids: dict[int, packed.Ids] = {}
        for group in _groups(batches):
            ids |= _read(events, group)
        if Rebuilds(database).replace(instance, lineage, bucket, batches, ids):
            return sum(batch.kept for batch in batches)
    raise Retryable(
        f"bucket {bucket} of {lineage} gets new batches all the time",
        data="the catalog is as it was",
        hint="run the same command again",
    )


def _groups(missing: list[KeptBatch]) -> Iterator[list[KeptBatch]]:
    """Batches of one lineage, in order, so many that their ids fit."""
    group: list[KeptBatch] = []
    for batch in missing:
        full = sum(b.kept for b in group) + batch.kept > AT_ONCE
        if group and (full or group[0].lineage != batch.lineage):
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


def _read(events: Location, group: list[KeptBatch]) -> dict[int, packed.Ids]:
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
