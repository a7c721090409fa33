"""Receive without a catalog: for at-least-once mode and for ids by position.

There is no exchange and there are no units.

Nothing is lost: offsets, epoch and Delta's transaction work as in exactly once, so a replayed batch is in `events` only
once. But a re-delivery is not recognised; it is kept again. With ids by position there are no re-deliveries. A record
is identified by its position, a batch has the same positions at each attempt, and no two batches share a position. So
each record is kept exactly once.

Counts and the largest event time are read from the files of the commit, whichever attempt wrote them. So a replay whose
rows are already in `events` ends the same way. The control row follows in a commit of its own, because without an
exchange no task knows the largest event time of all tasks.

No function here needs a JVM, so `onlyonce.run.reset` can end a batch whose checkpoint is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyarrow import parquet

from onlyonce.api.pipeline import Pipeline
from onlyonce.catalog import filters
from onlyonce.catalog.chunks import Chunks, KeptBatch
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.ids import Rebuilds
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core import stored_names
from onlyonce.core.batch import Batch, to_micros, to_time
from onlyonce.core.errors import InvariantBroken, Retryable
from onlyonce.core.frontier import Frontier
from onlyonce.core.gc import horizon_buckets
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import (
    INVALID,
    KEPT,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_HIGH,
    OO_INCARNATION,
    OO_KIND,
    OO_LOW,
    OO_UNKNOWN,
)
from onlyonce.core.units import Counts
from onlyonce.database.connect import Database
from onlyonce.failpoints import passing
from onlyonce.receive import events
from onlyonce.tables import arrow_files, opening, table_files
from onlyonce.tables import commit as tables_commit


def landed(path: Location, incarnation: str, batch_id: int) -> bool:
    """Return whether the rows of a batch are in `events`."""
    there = tables_commit.version(path, stored_names.transaction(incarnation, stored_names.EVENTS_BY))
    return there is not None and there >= batch_id


def end(
    database: Database,
    driver: Driver,
    batch: Batch,
    path: Location,
    must: Callable[[int], int],
    version: int,
    *,
    bounded: bool = False,
) -> dict[str, int]:
    """Count the rows of the batch's commit, add its control row, and end the batch. Return the counts by fate.

    `must` maps the number of judged records to the number that the source had.
    """
    counts = counted(path, version)
    read = must(counts.kept + counts.invalid)
    reached = batch.frontier if bounded else batch.reached(to_micros(counts.largest))
    _add_control(driver, batch, path, reached)
    passing("receive-after-control")
    return Batches(database).end_counted(driver, batch, read, version, counts, bounded=bounded)


def counted(path: Location, version: int) -> Counts:
    """Return the number of records by fate in one commit of `events`, and the largest event time that it keeps."""
    number = {"kept": 0, "invalid": 0}
    unknown, largest = 0, []
    for added in opening.added(path, version):
        with arrow_files.opened(added.path) as file:
            number[added.partition[OO_KIND]] += file.metadata.num_rows
            if added.partition[OO_KIND] == INVALID:
                continue
            unknown += _valid(file.metadata, OO_UNKNOWN)
            largest.append(_largest(file.read([OO_EVENT_TIME])[OO_EVENT_TIME]))
    return Counts(**number, unknown_fields=unknown, largest=to_time(max(largest) if largest else None))


def _valid(footer: parquet.FileMetaData, name: str) -> int:
    """Return how many values of a column are not null, by the file's footer: the values may have any size."""
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    chunks = [
        group.column(at)
        for group in groups
        for at in range(group.num_columns)
        if group.column(at).path_in_schema == name
    ]
    return sum(chunk.num_values - chunk.statistics.null_count for chunk in chunks)


def _largest(times: pa.ChunkedArray) -> int:
    whole = pc.max(times.cast(pa.timestamp("us")).cast(pa.int64())).as_py()
    return int(whole)  # a file has rows, and a kept row has its time


def _add_control(driver: Driver, batch: Batch, path: Location, reached: Frontier) -> None:
    plan = batch.plan
    app_id = stored_names.transaction(plan.incarnation, stored_names.CONTROL_BY)
    commit = tables_commit.Commit(
        app_id, plan.batch_id, stored_names.numbered(app_id, plan.batch_id), driver.epoch, reached.content
    )
    events.add_control(path, commit, plan.incarnation, plan.batch_id, reached, plan.ingestion_time)


# Add the ids of at-least-once batches to the catalog, from `events`, before the first exactly-once batch after them.
#
# In at-least-once mode a pipeline keeps records that the catalog does not know. From the first exactly-once batch on, a
# re-delivery of such a record must be a duplicate. Ids below the gc floor, or older than the dedup horizon, are
# never looked up and are left out.


AT_ONCE = 2_000_000
"""Ids that are read and stored together: 32 MB. A batch with more ids is a group of its own."""

TRIES = 5

log = structlog.get_logger()


def catch_up_catalog(database: Database, driver: Driver, instance: str, events: Location, pipeline: Pipeline) -> int:
    """Add the missing ids to the catalog, and return their number. If none is missing, this costs one query of the log.

    A group of batches is one transaction. If the driver is killed, the next driver adds the groups that are left. Raise
    InvariantBroken if `events` does not have the rows that the log vouches for.
    """
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


def rebuild_again(database: Database, instance: str, events: Location, incarnation: str, bucket: int) -> int:
    """Rebuild an incarnation's chunks in a live bucket from all its committed batches in `events`; return the number of
    ids.

    `onlyonce doctor --fix` calls this for lost chunks. It is one transaction under the collector's lock: a look-up sees
    either all old chunks or all new ones. Raise InvariantBroken if `events` does not have the rows that the log vouches
    for. Raise Retryable if the bucket's batches change at each try.
    """
    for _ in range(TRIES):
        batches = Rebuilds(database).kept(incarnation, bucket)
        ids: dict[int, filters.Ids] = {}
        for group in _groups(batches):
            ids |= _read(events, group)
        if Rebuilds(database).replace(instance, incarnation, bucket, batches, ids):
            return sum(batch.kept for batch in batches)
    raise Retryable(
        f"bucket {bucket} of {incarnation} gets new batches all the time",
        data="the catalog is as it was",
        hint="run the same command again",
    )


def _groups(missing: list[KeptBatch]) -> Iterator[list[KeptBatch]]:
    """Yield batches in groups: each group is of one incarnation, in order, with at most AT_ONCE ids or one batch."""
    group: list[KeptBatch] = []
    for batch in missing:
        full = sum(b.kept for b in group) + batch.kept > AT_ONCE
        if group and (full or group[0].incarnation != batch.incarnation):
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


def _read(events: Location, group: list[KeptBatch]) -> dict[int, filters.Ids]:
    """Return the ids that each batch of a group has kept. Raise InvariantBroken if their number is not the log's."""
    first, last, incarnation = group[0].batch_id, group[-1].batch_id, group[0].incarnation
    wanted = (pc.field(OO_KIND) == KEPT) & (pc.field(OO_INCARNATION) == incarnation)
    wanted &= (pc.field(OO_BATCH) >= first) & (pc.field(OO_BATCH) <= last)
    rows: pa.Table = table_files.dataset_of_events(events).to_table([OO_BATCH, OO_HIGH, OO_LOW], filter=wanted)
    number, high, low = (rows[name].to_numpy() for name in (OO_BATCH, OO_HIGH, OO_LOW))
    found = {}
    for batch in group:
        here = number == batch.batch_id
        found[batch.batch_id] = high[here].view(np.uint64), low[here].view(np.uint64)
        if int(here.sum()) != batch.kept:
            raise InvariantBroken(
                f"batch {incarnation}/{batch.batch_id} has kept {batch.kept} records by the log, but {events} has "
                f"{here.sum()}",
                data="the ids of that batch are not in the catalog, and no batch was begun",
                hint="rows of `events` were removed by hand? Restore the table; or continue with mode='at_least_once'",
            )
    return found
