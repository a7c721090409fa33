"""Receive without a catalog, for at-least-once mode and for ids by position.

There is no exchange and there are no units.

Nothing is lost: offsets, epoch and Delta's transaction are those of exactly once, so a replayed batch is in `events`
only once. But a re-delivery is not recognised; it is kept again. With ids by position there are no re-deliveries: a
record is its place, a batch has the same places at each attempt, and no two batches share a place. So each record is
kept exactly once. Counts and the largest event time are read from the files of the commit, whoever wrote it. So a
replay whose rows are already there ends the same way.

The control row follows in a commit of its own, since without an exchange no task knows the largest event time of all.

Who calls it: `receive`, and `onlyonce.run.lineage` for a batch that a lost checkpoint has left behind (without a JVM).
Errors: those of `delta.once` and `batches.end_counted`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.lineages import Driver
from onlyonce.database.connect import Database
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.batch import Batch, to_micros, to_time
from onlyonce.model.frontier import Frontier
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import INVALID, OO_EVENT_TIME, OO_KIND, OO_UNKNOWN
from onlyonce.model.units import Counts
from onlyonce.receive import events
from onlyonce.storage import delta, log_entries
from onlyonce.storage.stores import arrow


def landed(path: Location, lineage: str, batch_id: int) -> bool:
    """Whether the rows of a batch are in `events`."""
    there = delta.version(path, stored_names.transaction(lineage, stored_names.EVENTS_BY))
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
    """Count what the batch's commit holds, add its control row, end it. Gives the counts by fate.

    `must` gives how many records the source had, and is told how many have a fate.
    """
    counts = counted(path, version)
    read = must(counts.kept + counts.invalid)
    reached = batch.frontier if bounded else batch.reached(to_micros(counts.largest))
    _add_control(driver, batch, path, reached)
    passing("receive-after-control")
    return Batches(database).end_counted(driver, batch, read, version, counts, bounded=bounded)


def counted(path: Location, version: int) -> Counts:
    """The fates of the records in one commit of `events`, and the largest event time that it keeps."""
    number = {"kept": 0, "invalid": 0}
    unknown, largest = 0, []
    for added in log_entries.added(path, version):
        with arrow.opened(added.path) as file:
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
    app_id = stored_names.transaction(plan.lineage, stored_names.CONTROL_BY)
    commit = delta.Commit(
        app_id, plan.batch_id, stored_names.numbered(app_id, plan.batch_id), driver.epoch, reached.content
    )
    events.add_control(path, commit, plan.lineage, plan.batch_id, reached, plan.system_time)
