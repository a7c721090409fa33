"""The ids of at-least-once batches, put into the catalog from `events` before the first exactly-once batch after them.

A pipeline that ran at least once has kept records that the catalog does not know; a re-delivery of one must be a
duplicate from the first exactly-once batch on. What is below the collection floor, and older than the dedup horizon, is
not asked for, so it is left out.

Who calls it: receive, before it begins an exactly-once batch. Killed in the middle, the next driver goes on: a group of
batches is one transaction. Raises InvariantBroken when `events` does not have the rows that the log vouches for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from deltalake import DeltaTable
from sqlalchemy import Connection

from jobs.chunks import bloom, packed
from jobs.commitlog import catalog, collector
from jobs.commitlog.connect import Database, run
from jobs.commitlog.lineages import Driver, check_epoch
from jobs.failpoints import passing
from jobs.model.collecting import horizon_buckets
from jobs.model.declare import Pipeline
from jobs.model.errors import InvariantBroken

AT_ONCE = 2_000_000
"""Ids that are read and stored together: 32 MB. A batch of more is a group of its own."""

log = structlog.get_logger()


def catch_up(database: Database, driver: Driver, instance: str, events: Path, pipeline: Pipeline) -> int:
    """Add the ids that are missing; gives their number. One look into the log when there are none."""
    if not run(database, lambda conn: catalog.without_ids(conn, instance)):
        return 0
    run(database, lambda conn: collector.raise_floor(conn, instance, horizon_buckets(pipeline.dedup_horizon)))
    missing = run(database, lambda conn: catalog.without_ids(conn, instance))
    added = 0
    for group in _groups(missing):
        ids = _read(events, group)

        def work(connection: Connection, ids: dict[int, packed.Ids] = ids, group: list[Any] = group) -> None:
            check_epoch(connection, driver.lineage, driver.epoch)
            for batch in group:
                _add(connection, instance, batch, ids[batch.batch_id], pipeline.partitions)
            passing("rebuild-before-commit")

        run(database, work)
        passing("rebuild-after-commit")
        added += sum(batch.kept for batch in group)
    log.info("ids of at-least-once batches are in the catalog now", instance=instance, batches=len(missing), ids=added)
    return added


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


def _read(events: Path, group: list[Any]) -> dict[int, packed.Ids]:
    """The ids that each batch of a group has kept."""
    first, last, lineage = group[0].batch_id, group[-1].batch_id, group[0].lineage
    wanted = (pc.field("oo_kind") == "kept") & (pc.field("oo_lineage") == lineage)
    wanted &= (pc.field("oo_batch") >= first) & (pc.field("oo_batch") <= last)
    rows: pa.Table = (
        DeltaTable(str(events)).to_pyarrow_dataset().to_table(["oo_batch", "oo_high", "oo_low"], filter=wanted)
    )
    number, high, low = (rows[name].to_numpy() for name in ("oo_batch", "oo_high", "oo_low"))
    found = {}
    for batch in group:
        here = number == batch.batch_id
        found[batch.batch_id] = high[here].view(np.uint64), low[here].view(np.uint64)
        if int(here.sum()) != batch.kept:
            raise InvariantBroken(
                f"batch {lineage}/{batch.batch_id} has kept {batch.kept} records by the log, but {events} has {here.sum()}",
                data="the ids of that batch are not in the catalog, and no batch was begun",
                hint="rows of `events` were removed by hand? Restore the table; or go on with mode='at_least_once'",
            )
    return found


def _add(connection: Connection, instance: str, batch: Any, ids: packed.Ids, partitions: int) -> None:
    if not catalog.ids_added(connection, batch.lineage, batch.batch_id):
        return  # by another driver, or by this one, when the answer to its COMMIT was lost
    if batch.bucket < catalog.ensure_bucket(connection, instance, batch.bucket):
        return
    target = np.mod(ids[0].view(np.int64), partitions)
    for partition in range(partitions):
        mine = (ids[0][target == partition], ids[1][target == partition])
        once = packed.first_of_each(mine)
        mine = mine[0][once], mine[1][once]
        place = catalog.Place(instance, batch.bucket, 0, batch.lineage, batch.batch_id, partition, partitions)
        catalog.add(connection, place, packed.pack(mine), bloom.make(mine))
