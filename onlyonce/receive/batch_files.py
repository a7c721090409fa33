"""Keeps rows on the task's own disk until their fate is decided, since a partition may be larger than its worker's
memory.

Who calls it: `receive_task`. Errors: OSError. The file has no name, so nothing is left of it when the process is
killed.
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
from onlyonce.commitlog.lineages import SOURCE
from onlyonce.commitlog.sources import FailedAttempts
from onlyonce.context import Query, RunContext
from onlyonce.core import bisect, stored_names
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.bisect import Place
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
from onlyonce.receive.unit import INVALID, KEPT, REMNANT, SEED, Columns, Verdict, Work
from onlyonce.sources import line_reader
from onlyonce.sources.lines import Chosen, Lines
from onlyonce.sources.values import fast_json
from onlyonce.sources.values.fast_json import Reader
from onlyonce.tables import arrow_files, own_tables, stores


class Spill:
    """Batches that can be read again, in any order; a context."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=worker.local_folder())  # noqa: SIM115 - closed by the context

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def kept(self, part: Part, records: pa.RecordBatch) -> Part:
        """What gives the records of a part again: a block is where it was, what passes once is written here."""
        if callable(part):
            return part
        start = self._file.seek(0, os.SEEK_END)
        return partial(self._read, start, self._file.write(records.serialize()), records.schema)

    def _read(self, start: int, size: int, schema: pa.Schema) -> pa.RecordBatch:
        self._file.seek(start)
        return pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), schema)


# The work of one task of receive on an executor, as a function over Arrow batches: from records to data files of
# `events`.
#
# It returns the paths of the files that it has written; the driver commits them (`own_tables`). Who calls it:
# `receive`, by `exchange.mapped`. Errors: those of `receive_unit`; OSError.


GIVES = "path string"
BEFORE_HORIZON = "it was first seen before the dedup horizon; the ids of that time are collected"
KINDS = {
    KEPT: stored_names.KEPT, INVALID: stored_names.INVALID, REMNANT: stored_names.REMNANT, SEED: stored_names.CONTROL,
}  # fmt: skip
"""By fate; a duplicate is in no file."""


def exactly_once(work: Work, stamp: Stamp, folder: Location, *, bounded: bool) -> Task:
    """Judge all of a partition, commit its unit, write what is not a duplicate, and the control row.

    A control row tells the frontier after its commit, as far as its task knows; of a bounded run, the one that was
    known.
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
    """Each record is kept or invalid by itself, and written as it comes."""

    def task(parts: Parts) -> Batches:
        context: Any = TaskContext.get()
        with EventFiles(folder, stamp, context.partitionId() if context else 0) as files:
            for records in map(records_of, parts):
                _write(files, records, records.column(CODE).to_numpy())
        yield _paths(files.paths)

    return task


def _share() -> None:
    """A worker shares what it keeps of the catalog with the others of its executor, where Spark spills.

    A driver has it alone.
    """
    look_up.share_below(worker.local_folder() if TaskContext.get() else None)


def _deciding(parts: Parts, spilled: Spill, kept: list[Part]) -> Iterator[Columns]:
    """The columns that decide; the records themselves wait on disk."""
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
            files.add(KINDS[fate], _told(rows) if fate == REMNANT else rows, after if fate == SEED else None)


def _told(remnants: pa.RecordBatch) -> pa.RecordBatch:
    reason = pa.repeat(BEFORE_HORIZON, remnants.num_rows)
    return remnants.set_column(remnants.schema.get_field_index(OO_REASON), OO_REASON, reason)


def _paths(paths: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"path": pa.array(paths, pa.string())})


# Takes in a small batch in the driver: it does the tasks' work, one partition after another, without a Spark job.
#
# A Spark job needs a part of a second before its first task works, which is most of the time of a batch of ten records.
# The functions and units are those of the tasks. So the log and the rows of `events` are the same either way, and a
# replay may go the other way. The files of the partitions become one of each kind of rows.
#
# Who calls it: `receive`. Errors: those of the task, except OSError: after a warning, Spark's tasks do the batch, since
# they try again. Not promised: that a small batch is taken in here. A batch with a line that is not plain, with
# something that could not be read, or with messages of a topic is always Spark's.


log = structlog.get_logger()


def written_in_driver(lines: Lines, reader: Reader | None, task: Task, *, seeded: bool) -> list[Location] | None:
    """The files that a task has written of each partition; None where the batch is for Spark.

    `seeded`: each has its seed.
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
    """One file of each kind of rows: each file that the table names is carried by every reader, however small."""
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
    whole = lines.rows is None and not any(part.packed for part in lines.ranges)
    return whole and sum(part.end - part.start for part in lines.ranges) < settings.in_driver_bytes()


def _blocks(lines: Lines, reader: Reader) -> list[list[Callable[[], pa.Buffer]]] | None:
    """The blocks for each partition; None where a line is left that is not in one."""
    found: list[list[Callable[[], pa.Buffer]]] = [[] for _ in range(reader.partitions)]
    read = chain.from_iterable(line_reader.lines(part) for part in lines.ranges)
    for batch in reader(lines.chosen.of_batches(read)):
        if batch.column("block").null_count:
            return None
        for block, target in zip(batch.column("block"), batch.column("target").to_pylist(), strict=True):
            found[target].append(block.as_buffer)
    return found


# The files of a batch in which each record is kept or invalid by itself: the task that reads plain lines writes them.
#
# Nothing brings records together, so they need not wait for another task. Lines that are not plain are left in files of
# the attempt's own (`block_files`), and a second job has the table's reader read them. A task that is tried again
# writes under other names; the driver is told the names of one attempt of each task, and commits those.
#
# Who calls it: `batch_files`. Errors: those of the source and of the task.


GIVES_FILES = "path string, left string"
"""What a task of the first job tells: a file that it has written, or the file of the lines that it has left."""


def written_straight(
    spark: SparkSession,
    lines: Lines,
    pipeline: Pipeline,
    system_time: datetime,
    reader: Reader,
    folder: Path,
    task: Task,
    gives: str,
) -> list[str]:
    """The paths that a task tells of all records; `folder` is for lines that are left."""
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
        rows = exchange.records(spark, exchange.lines_left(spark, files, lines), pipeline, system_time)
        paths += [row.path for row in exchange.mapped(rows, task, session.schema_of(gives)).collect()]
    return paths


def _records(batches: Batches, reader: Reader, schema: pa.Schema, left: Left) -> Parts:
    for lines in batches:
        others, records = reader.apart(lines)
        if others.num_rows:
            left.add(reader.bounded(others))
        if records.num_rows:
            yield exchange.plain(records, schema)


# Finds a record at which each attempt at a batch fails, by halving the batch, and has it refused from then on.
#
# docs/specification/receive.md.
#
# No such record is known, since a parser makes what it can't read `invalid`. But an unforeseen one would stop its
# pipeline for good: each run would fail at the same batch.
#
# Only an error that the platform does not know counts as a cause. The database, a broker, a vanished file and a newer
# driver have errors of their own. A record is refused only if it fails alone, when it is read and written into a folder
# that nobody reads.
#
# Who calls it: `receive`. Errors: those of the batch. Not promised: anything for a record that ends the whole process.


Done = TypeVar("Done")
Places = Callable[[], pa.Table]
"""The places of all records of a batch, as columns oo_file and oo_position."""
Attempt = Callable[[Chosen, Location], object]
Trial = Callable[[], AbstractContextManager[Location]]
"""Gives a folder that driver and executors see, for one attempt and no longer."""
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
) -> Done:
    """What `write` gives, of a batch without the records at which it fails.

    `attempt` does the same work without a trace, in a folder of `trial`. `named` has the names of the files.
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
            unit, place = f"{query.lineage}/{batch.plan.batch_id}", named.of(*found) or found
            query.log.warning("a record is refused", unit=unit, place=str(place), cause=cause)
            _refuse(query, instance, batch, refused)
            known = sources.Failures(known.times, refused)


def _known(query: Query, batch: Batch) -> sources.Failures:
    if not batch.replayed:
        return sources.Failures()
    return FailedAttempts(query.database).of_batch(query.lineage, batch.plan.batch_id)


def _refuse(query: Query, instance: str, batch: Batch, refused: dict[Place, str]) -> None:
    passing("poison-before-refuse")
    FailedAttempts(query.database).refuse(query.driver, instance, batch.plan.batch_id, refused)
    passing("poison-after-commit")


@contextmanager
def poison_in_store(trials: Location) -> Iterator[Location]:
    """A prefix for one attempt.

    What a killed driver has left beside it goes too; nobody reads any of it, so it is nobody's loss.
    """
    store = stores.of(trials)
    store.clear(trials)
    try:
        yield trials / uuid4().hex
    finally:
        store.clear(trials)


def _found(places: pa.Table, refused: Mapping[Place, str], attempt: Attempt, trial: Trial) -> Place | None:
    """The place of the first record that fails by itself."""
    files, positions = (places.column(name).to_numpy() for name in ("oo_file", "oo_position"))
    order = np.lexsort((positions, files))

    def place(at: int) -> Place:
        return Place(int(files[order[at]]), int(positions[order[at]]))

    def fails(first: int, stop: int) -> bool:
        return _fails(Chosen(refused, place(first), place(stop) if stop < len(order) else None), attempt, trial)

    at = bisect.fails_alone(len(order), fails)
    return None if at is None else place(at)


def _fails(chosen: Chosen, attempt: Attempt, trial: Trial) -> bool:
    # Not by the cause's text: the driver and Spark's tasks tell the same one differently.
    try:
        with trial() as folder:
            attempt(chosen, folder)
    except Exception as error:
        if is_known(error):
            raise
        return True
    return False


# Makes the data files of a receive batch: by Spark's tasks, or for a small batch by the driver.
#
# Records at which the batch fails are left out.
#
# Who calls it: `receive`, which names the files to Delta. Errors: those of the source, and of the tasks.


def write_batch(context: RunContext, query: Query, batch: Batch, lines: Lines, folder: Location) -> list[Location]:
    """The files that the tasks of a batch have written. A record at which it fails again and again is refused."""
    plan = batch.plan
    stamp = Stamp(plan.system_time, plan.lineage, plan.batch_id, batch.frontier, batch.turn, lines.places)

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

    if batch.replayed and not batch.without_catalog and lines.shrinks():
        # What the broker has compacted away since can't be read again, and its rows are in no commit.
        FailedAttempts(query.database).withdraw(query.driver, context.instance, plan.batch_id)
    places = partial(exchange.places, context.spark, lines)
    return written_despite_poison(query, context.instance, batch, stamp.places, places, write, attempt, trial)


def _made(
    context: RunContext, query: Query, plan: Plan, lines: Lines, task: exchange.Task, partitions: int | None
) -> list[Location]:
    """The files that a task makes of lines: of each partition by itself, or, with None, of the records wherever they
    are."""
    pipeline = context.pipeline.of_source(plan.source_to.get(SOURCE))
    reader = fast_json.plain_record_reader(pipeline, plan.system_time, partitions or 1)
    small = written_in_driver(lines, reader, task, seeded=partitions is not None)
    if small is not None:
        return small
    with exchange.block_folder(context.blocks, query.driver.epoch) if context.blocks else nullcontext() as place:
        if partitions is None and reader and place:
            told = written_straight(context.spark, lines, pipeline, plan.system_time, reader, place, task, GIVES)
            return [location(path) for path in told]
        gives = session.schema_of(GIVES)
        read = exchange.read_records(context.spark, lines, pipeline, plan.system_time, reader, place)
        passing("receive-lines-read")
        if partitions is not None:
            found = exchange.judged(context.spark, read, partitions, task, gives)
        else:
            found = exchange.mapped(read.rows, task, gives)
        return [location(row.path) for row in found.collect()]


def _work(context: RunContext, query: Query, batch: Batch) -> unit.Work:
    plan = batch.plan
    place = catalog.Place(
        context.instance, plan.bucket, batch.gc_floor, plan.lineage, plan.batch_id, 0, plan.partitions,
        edge=edge_buckets(context.pipeline.dedup_horizon),
    )  # fmt: skip
    return unit.Work(query.database, place, query.driver.epoch)
