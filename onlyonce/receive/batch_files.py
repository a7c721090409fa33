"""Make the data files of a receive batch: in Spark's tasks, or in the driver if the batch is small.

A record at which each attempt fails is found by halving the batch, and is refused from then on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import SparkSession

from onlyonce import settings
from onlyonce.api.pipeline import Pipeline
from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import look_up
from onlyonce.commitlog import sources
from onlyonce.commitlog.incarnations import SOURCE, Driver
from onlyonce.commitlog.sources import FailedAttempts
from onlyonce.context import Query, RunContext
from onlyonce.core import bisect, stored_names
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.bisect import Place
from onlyonce.core.errors import Retryable
from onlyonce.core.frontier import Frontier
from onlyonce.core.gc import edge_buckets
from onlyonce.core.locations import Location, location
from onlyonce.core.records import RecordPlaces
from onlyonce.core.stored_names import OO_EVENT_TIME, OO_HIGH, OO_LOW, OO_REASON, OO_UNKNOWN
from onlyonce.engine import session, worker
from onlyonce.engine.failures import known_failure as is_known
from onlyonce.engine.worker import Batches
from onlyonce.failpoints import passing
from onlyonce.receive import events, exchange, unit
from onlyonce.receive.events import EventFiles, Stamp
from onlyonce.receive.exchange import CODE, Left, Part, Parts, Task, records_of
from onlyonce.receive.unit import EXPIRED, INVALID, KEPT, SEED, Columns, Verdict, Work
from onlyonce.sources import line_reader
from onlyonce.sources.lines import Chosen, Lines
from onlyonce.sources.values import fast_json
from onlyonce.sources.values.fast_json import Reader
from onlyonce.tables import arrow_files, own_tables, stores
from onlyonce.tables.commit import Own


class Spill:
    """Context that keeps Arrow batches on the task's own disk and reads them back in any order.

    A partition may be larger than its worker's memory, so its records wait here until their fate is decided. The file
    has no name, so it disappears with the process.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=worker.local_folder())  # noqa: SIM115 - closed by the context

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def kept(self, part: Part, records: pa.RecordBatch) -> Part:
        """Return what reads a part's records again.

        Records in memory are written here; a block stays in its own file.
        """
        if callable(part):
            return part
        start = self._file.seek(0, os.SEEK_END)
        return partial(self._read, start, self._file.write(records.serialize()), records.schema)

    def _read(self, start: int, size: int, schema: pa.Schema) -> pa.RecordBatch:
        self._file.seek(start)
        return pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), schema)


# The tasks of receive: from records to data files of `events`. A task yields the paths of the files that it has
# written, and the driver commits them (`own_tables`).


GIVES = "path string"
BEFORE_HORIZON = "it was first seen before the dedup horizon; the ids of that time are collected"
KINDS = {
    KEPT: stored_names.KEPT, INVALID: stored_names.INVALID, EXPIRED: stored_names.EXPIRED, SEED: stored_names.CONTROL,
}  # fmt: skip
"""The kind of rows for each fate. A duplicate is not written."""


def exactly_once(work: Work, stamp: Stamp, folder: Location, *, bounded: bool) -> Task:
    """Return the task that judges a partition, commits its unit, and writes the control row and all rows except
    duplicates.

    The control row has the frontier after the batch, as far as this task knows. In a bounded run it has the frontier
    that was known before the batch.
    """

    def task(parts: Parts) -> Batches:
        _share()
        with Spill() as spilled:
            kept: list[Part] = []
            verdicts = list(unit.judge(work)(_deciding(parts, spilled, kept)))
            if verdicts:
                yield _paths(written(kept, verdicts))

    def written(kept: list[Part], verdicts: list[Verdict]) -> list[str]:
        after = stamp.frontier if bounded else stamp.after(verdicts[0].largest)
        with EventFiles(folder, stamp, verdicts[0].partition) as files:
            for part, verdict in zip(kept, verdicts, strict=True):
                _write(files, records_of(part), verdict.fates, after)
        return files.paths

    return task


def without_catalog(stamp: Stamp, folder: Location) -> Task:
    """Return the task that writes each record as it arrives: without a catalog each is kept or invalid on its own."""

    def task(parts: Parts) -> Batches:
        context: Any = TaskContext.get()
        with EventFiles(folder, stamp, context.partitionId() if context else 0) as files:
            for records in map(records_of, parts):
                _write(files, records, records.column(CODE).to_numpy())
        yield _paths(files.paths)

    return task


def _share() -> None:
    """Let the workers of an executor share their cached catalog entries, in the folder to which Spark spills.

    A driver keeps its entries to itself.
    """
    look_up.share_below(worker.local_folder() if TaskContext.get() else None)


def _deciding(parts: Parts, spilled: Spill, kept: list[Part]) -> Iterator[Columns]:
    """Yield the columns that decide a record's fate, while the records themselves are spilled to disk."""
    for part in parts:
        records = records_of(part)
        kept.append(spilled.kept(part, records))
        time = records.column(OO_EVENT_TIME).cast(pa.int64())
        yield (
            records.column(CODE), records.column(OO_HIGH), _whole(records.column(OO_LOW)),
            _whole(time), _whole(records.column("oo_payload")), records.column(OO_UNKNOWN).is_valid(),
        )  # fmt: skip


def _whole(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, 0) if column.null_count else column


def _write(files: EventFiles, records: pa.RecordBatch, fates: NDArray[np.int8], after: Frontier | None = None) -> None:
    for fate in np.unique(fates):
        if fate in KINDS:
            here = fates == fate
            rows = records if here.all() else records.filter(pa.array(here))
            files.add(KINDS[fate], _told(rows) if fate == EXPIRED else rows, after if fate == SEED else None)


def _told(expired: pa.RecordBatch) -> pa.RecordBatch:
    reason = pa.repeat(BEFORE_HORIZON, expired.num_rows)
    return expired.set_column(expired.schema.get_field_index(OO_REASON), OO_REASON, reason)


def _paths(paths: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"path": pa.array(paths, pa.string())})


# A small batch in the driver: the driver runs the tasks' functions, one partition after the other, without a Spark job.
#
# A Spark job needs a part of a second before its first task starts. This is most of the time of a batch of ten records.
# The functions and units are the tasks' own. So the log and the rows of `events` are the same either way, and a replay
# may take the other way. The partitions' files are merged into one file for each kind of rows.


log = structlog.get_logger()


def written_in_driver(lines: Lines, reader: Reader | None, task: Task, *, seeded: bool) -> list[Location] | None:
    """Return the files that a task has written for each partition; None if the batch is for Spark's tasks.

    Spark's tasks get a batch that is large, that has a line which is not plain, or whose lines are rows of Spark. They
    also get a batch after an OSError, because Spark repeats a failed task. If `seeded`, each partition has its seed.
    """
    if reader is None or not _is_small(lines):
        return None
    try:
        blocks = _blocks(lines, reader)
        if blocks is None:
            return None
        schema = exchange.record_schema(reader)
        found = (task(exchange.share(mine, schema, at if seeded else None)) for at, mine in enumerate(blocks))
        return _one_of_each(
            [location(path) for batch in chain.from_iterable(found) for path in batch.column("path").to_pylist()]
        )
    except OSError as error:
        log.warning("a small batch could not be taken in by the driver; Spark's tasks try", problem=str(error))
        return None


def _one_of_each(files: list[Location]) -> list[Location]:
    """Merge the files into one for each kind of rows: every reader of the table carries each file, however small."""
    found = []
    for _, some in groupby(sorted(files, key=str), key=lambda file: file.parent):
        parts = list(some)
        if len(parts) > 1:
            rows = pa.concat_tables([arrow_files.rows(part) for part in parts], promote_options="default")
            parts.append(parts[0].with_name(f"all-{parts[0].name}"))
            form = {"use_dictionary": own_tables.worth_it(rows), "compression": "zstd", "store_schema": False}
            with arrow_files.writer(parts[-1], rows.schema, rows, **form) as file:
                file.write_table(rows)
                events.note_bytes(file, rows.nbytes)
            for part in parts[:-1]:
                stores.of(part).delete(part)
        found.append(parts[-1])
    return found


def _is_small(lines: Lines) -> bool:
    whole = lines.rows is None and not any(part.compressed for part in lines.ranges)
    return whole and sum(part.end - part.start for part in lines.ranges) < settings.in_driver_bytes()


def _blocks(lines: Lines, reader: Reader) -> list[list[Callable[[], pa.Buffer]]] | None:
    """Return the blocks of each partition; None if a line is not in a block."""
    found: list[list[Callable[[], pa.Buffer]]] = [[] for _ in range(reader.partitions)]
    read = chain.from_iterable(line_reader.lines(part) for part in lines.ranges)
    for batch in reader(lines.chosen.of_batches(read)):
        if batch.column("block").null_count:
            return None
        for block, target in zip(batch.column("block"), batch.column("target").to_pylist(), strict=True):
            found[target].append(block.as_buffer)
    return found


# The files of a batch in which a record's fate does not depend on other records. The task of the fast JSON path writes
# them, without an exchange. Its other lines are left in files of the attempt's own (`exchange.Left`), and a
# second job parses them with the table's reader. A repeated task writes under other names. The driver receives the
# names of one attempt of each task, and commits these files.


GIVES_FILES = "path string, left string"
"""Columns that a task of the first job returns: a file that it has written, or the file of the lines that it left."""


def written_straight(
    spark: SparkSession,
    lines: Lines,
    pipeline: Pipeline,
    ingestion_time: datetime,
    reader: Reader,
    folder: Path,
    task: Task,
    gives: str,
) -> list[str]:
    """Return the paths of the files that the tasks wrote for all records. `folder` takes the lines that are left."""
    schema = exchange.record_schema(reader)

    def of_lines(batches: Batches) -> Batches:
        with Left(folder) as left:
            for paths in task(_records(batches, reader, schema, left)):
                yield paths.append_column("left", pa.nulls(paths.num_rows, pa.string()))
        if left.any:
            yield pa.RecordBatch.from_pydict({"path": pa.nulls(1, pa.string()), "left": [str(left.name)]})

    told = exchange.told_by_tasks(spark, lines, of_lines, GIVES_FILES)
    passing("receive-lines-read")
    paths = [row.path for row in told if row.left is None]
    files = [row.left for row in told if row.left is not None]
    if files:
        rows = exchange.records(spark, exchange.lines_left(spark, files, lines), pipeline, ingestion_time)
        paths += [row.path for row in exchange.mapped(rows, task, session.schema_of(gives)).collect()]
    return paths


def _records(batches: Batches, reader: Reader, schema: pa.Schema, left: Left) -> Parts:
    for lines in batches:
        others, records = reader.apart(lines)
        if others.num_rows:
            left.add(reader.bounded(others))
        if records.num_rows:
            yield exchange.plain(records, schema)


# Find a record at which each attempt at a batch fails, by halving the batch, and refuse it from then on.
# docs/specification/receive.md.
#
# A parser makes a record that it can't read `invalid`, so such a record is not expected. But one would stop its
# pipeline for good: each run would fail at the same batch. The search can't find a record that ends the whole process.
#
# Only an error that the platform does not know counts as a cause. The database, a broker, a vanished file and a newer
# driver have errors of their own. A record is refused only if it fails alone when it is read and written to a folder
# that is not part of any table.


Done = TypeVar("Done")
Places = Callable[[], pa.Table]
"""Return the places of all records of a batch, as columns oo_file and oo_position."""
Attempt = Callable[[Chosen, Location], object]
Trial = Callable[[], AbstractContextManager[Location]]
"""Open a folder that driver and executors can reach, for one attempt only."""
REASON = "receive fails at this record by itself: {cause}. Kept is how it begins"


def written_despite_poison(
    query: Query,
    instance: str,
    batch: Batch,
    named: RecordPlaces,
    places: Places,
    write: Callable[[Chosen], Done],
    attempt: Attempt,
    trial: Trial,
    fence: Callable[[], None],
) -> Done:
    """Return the result of `write` for a batch without the records at which it fails.

    `attempt` does the same work in a folder of `trial`, and leaves no trace. `named` has the names of the files.
    `fence` keeps an overtaken driver from committing the batch with a record that is to be refused (`fence_batch`).
    """
    known = _known(query, batch)
    looking = False
    while True:
        try:
            return write(Chosen(known.refused))
        except Exception as error:
            if is_known(error):
                raise
            cause = bisect.cause_of(error)
            known = FailedAttempts(query.database).add(query.driver, batch.plan.batch_id, cause)
            passing("poison-after-count")
            looking = looking or bisect.is_search_due(known.times)
            found = _found(places(), known.refused, attempt, trial) if looking else None
            if found is None or found in known.refused:
                raise
            refused = {**known.refused, found: REASON.format(cause=bisect.told_of_record(error))}
            unit, place = f"{query.incarnation}/{batch.plan.batch_id}", named.of(*found) or found
            query.log.warning("a record is refused", unit=unit, place=str(place), cause=cause)
            fence()
            _refuse(query, instance, batch, refused)
            known = sources.Failures(known.times, refused)


def fence_batch(events: Own, driver: Driver, batch_id: int) -> None:
    """Keep a driver that was overtaken from committing a batch to `events` as it has read it.

    Call it before units are withdrawn: that driver has committed the units, and may be stopped just before its commit.
    Raise Retryable if `events` has the batch by now: the next attempt ends it.
    """
    own_tables.fence(events, driver.incarnation, driver.epoch)
    there = events.transaction_version(stored_names.transaction(driver.incarnation, stored_names.EVENTS_BY))
    if there is not None and there >= batch_id:
        raise Retryable(
            f"a driver that was overtaken has committed batch {batch_id} of {driver.incarnation} meanwhile",
            data="its rows are in `events` once; nothing was withdrawn",
            hint="run the same command again: it ends this batch",
        )


def _known(query: Query, batch: Batch) -> sources.Failures:
    if not batch.replayed:
        return sources.Failures()
    return FailedAttempts(query.database).of_batch(query.incarnation, batch.plan.batch_id)


def _refuse(query: Query, instance: str, batch: Batch, refused: dict[Place, str]) -> None:
    passing("poison-before-refuse")
    FailedAttempts(query.database).refuse(query.driver, instance, batch.plan.batch_id, refused)
    passing("poison-after-commit")


@contextmanager
def poison_in_store(trials: Location) -> Iterator[Location]:
    """Yield a prefix for one attempt.

    Delete everything below `trials` before and after, including what a killed driver has left behind: no table contains
    it.
    """
    store = stores.of(trials)
    store.clear(trials)
    try:
        yield trials / uuid4().hex
    finally:
        store.clear(trials)


def _found(places: pa.Table, refused: Mapping[Place, str], attempt: Attempt, trial: Trial) -> Place | None:
    """Return the place of the first record that fails on its own; None if no single record does."""
    files, positions = (places.column(name).to_numpy() for name in ("oo_file", "oo_position"))
    order = np.lexsort((positions, files))

    def place(at: int) -> Place:
        return Place(int(files[order[at]]), int(positions[order[at]]))

    def fails(first: int, stop: int) -> bool:
        return _fails(Chosen(refused, place(first), place(stop) if stop < len(order) else None), attempt, trial)

    at = bisect.fails_alone(len(order), fails)
    return None if at is None else place(at)


def _fails(chosen: Chosen, attempt: Attempt, trial: Trial) -> bool:
    # Any unknown error counts, without comparing messages: the driver and Spark's tasks word the same cause
    # differently.
    try:
        with trial() as folder:
            attempt(chosen, folder)
    except Exception as error:
        if is_known(error):
            raise
        return True
    return False


def write_batch(context: RunContext, query: Query, batch: Batch, lines: Lines, folder: Location) -> list[Location]:
    """Write the data files of a batch and return them. Refuse a record at which the batch fails repeatedly."""
    plan = batch.plan
    stamp = Stamp(
        plan.ingestion_time, plan.incarnation, plan.batch_id, batch.frontier, batch.source_batch, lines.places
    )

    def write(chosen: Chosen) -> list[Location]:
        if batch.without_catalog:
            task, partitions = without_catalog(stamp, folder), None
        else:
            work = _work(context, query, batch)
            task = exactly_once(work, stamp, folder, bounded=context.bounded)
            partitions = plan.partitions
        return _made(context, query, plan, replace(lines, chosen=chosen), task, partitions)

    def attempt(chosen: Chosen, place: Location) -> list[Location]:
        tried = without_catalog(stamp, place)
        return _made(context, query, plan, replace(lines, chosen=chosen), tried, None)

    def trial() -> AbstractContextManager[Location]:
        blocks = context.blocks
        return (
            exchange.block_folder(blocks, query.driver.epoch)
            if blocks
            else poison_in_store(settings.trials_location(context.instance))
        )

    def fence() -> None:
        fence_batch(context.appended(), query.driver, plan.batch_id)

    if batch.replayed and not batch.without_catalog and lines.shrinks():
        fence()
        # Messages that the broker has compacted away since can't be read again, and no commit has their rows.
        FailedAttempts(query.database).withdraw(query.driver, context.instance, plan.batch_id)
    places = partial(exchange.places, context.spark, lines)
    return written_despite_poison(query, context.instance, batch, stamp.places, places, write, attempt, trial, fence)


def _made(
    context: RunContext, query: Query, plan: Plan, lines: Lines, task: exchange.Task, partitions: int | None
) -> list[Location]:
    """Return the files that a task makes of lines.

    With `partitions` the task gets all records of a partition together; with None it gets the records where they are
    read.
    """
    pipeline = context.pipeline.of_source(plan.source_to.get(SOURCE))
    reader = fast_json.plain_record_reader(pipeline, plan.ingestion_time, partitions or 1)
    small = written_in_driver(lines, reader, task, seeded=partitions is not None)
    if small is not None:
        return small
    with exchange.block_folder(context.blocks, query.driver.epoch) if context.blocks else nullcontext() as place:
        if partitions is None and reader and place:
            told = written_straight(context.spark, lines, pipeline, plan.ingestion_time, reader, place, task, GIVES)
            return [location(path) for path in told]
        gives = session.schema_of(GIVES)
        read = exchange.read_records(context.spark, lines, pipeline, plan.ingestion_time, reader, place)
        passing("receive-lines-read")
        if partitions is not None:
            found = exchange.judged(context.spark, read, partitions, task, gives)
        else:
            found = exchange.mapped(read.rows, task, gives)
        return [location(row.path) for row in found.collect()]


def _work(context: RunContext, query: Query, batch: Batch) -> unit.Work:
    plan = batch.plan
    place = catalog.Place(
        context.instance, plan.bucket, batch.gc_floor, plan.incarnation, plan.batch_id, 0, plan.partitions,
        edge=edge_buckets(context.pipeline.dedup_horizon),
    )  # fmt: skip
    return unit.Work(query.database, place, query.driver.epoch)
