"""Makes the data files of a receive batch: by Spark's tasks, or for a small batch by the driver.

Records at which the batch fails are left out.

Who calls it: `receive`, which names the files to Delta. Errors: those of the source, and of the tasks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from onlyonce import settings
from onlyonce.catalog import chunks as catalog
from onlyonce.commitlog.failures import FailedAttempts
from onlyonce.commitlog.turns import SOURCE
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.failpoints import passing
from onlyonce.model.batch import Batch, Plan
from onlyonce.model.operate.collecting import edge_buckets
from onlyonce.model.storage.location import Location, location
from onlyonce.receive import in_driver, poison, receive_task, receive_unit, straight
from onlyonce.receive.blocks import block_files, exchange
from onlyonce.receive.event_files import Stamp
from onlyonce.session import schemas
from onlyonce.sources.chosen import Chosen
from onlyonce.sources.lines import Lines
from onlyonce.sources.parse import plain_records


def written(context: RunContext, query: Query, batch: Batch, lines: Lines, folder: Location) -> list[Location]:
    """The files that the tasks of a batch have written. A record at which it fails again and again is refused."""
    plan = batch.plan
    stamp = Stamp(plan.system_time, plan.lineage, plan.batch_id, batch.frontier, batch.turn, lines.places)

    def write(chosen: Chosen) -> list[Location]:
        if batch.without_catalog:
            task, partitions = receive_task.without_catalog(stamp, folder), None
        else:
            work = _work(context, query, batch)
            task = receive_task.exactly_once(work, stamp, folder, bounded=context.bounded)
            partitions = plan.partitions
        return _made(context, query, plan, replace(lines, chosen=chosen), task, partitions)

    def attempt(chosen: Chosen, place: Location) -> list[Location]:
        tried = receive_task.without_catalog(stamp, place)
        return _made(context, query, plan, replace(lines, chosen=chosen), tried, None)

    def trial() -> AbstractContextManager[Location]:
        blocks = context.blocks
        return (
            block_files.folder(blocks, query.driver.epoch)
            if blocks
            else poison.in_store(settings.trials_location(context.instance))
        )

    if batch.replayed and not batch.without_catalog and lines.shrinks():
        # What the broker has compacted away since can't be read again, and its rows are in no commit.
        FailedAttempts(query.database).withdraw(query.driver, context.instance, plan.batch_id)
    places = partial(exchange.places, context.spark, lines)
    return poison.written(query, context.instance, batch, stamp.places, places, write, attempt, trial)


def _made(
    context: RunContext, query: Query, plan: Plan, lines: Lines, task: exchange.Task, partitions: int | None
) -> list[Location]:
    """The files that a task makes of lines: of each partition by itself, or, with None, of the records wherever they
    are."""
    pipeline = context.pipeline.of_source(plan.source_to.get(SOURCE))
    reader = plain_records.reader(pipeline, plan.system_time, partitions or 1)
    small = in_driver.written(lines, reader, task, seeded=partitions is not None)
    if small is not None:
        return small
    with block_files.folder(context.blocks, query.driver.epoch) if context.blocks else nullcontext() as place:
        if partitions is None and reader and place:
            told = straight.written(
                context.spark, lines, pipeline, plan.system_time, reader, place, task, receive_task.GIVES
            )
            return [location(path) for path in told]
        gives = schemas.of(receive_task.GIVES)
        read = exchange.read(context.spark, lines, pipeline, plan.system_time, reader, place)
        passing("receive-lines-read")
        if partitions is not None:
            found = exchange.judged(context.spark, read, partitions, task, gives)
        else:
            found = exchange.mapped(read.rows, task, gives)
        return [location(row.path) for row in found.collect()]


def _work(context: RunContext, query: Query, batch: Batch) -> receive_unit.Work:
    plan = batch.plan
    place = catalog.Place(
        context.instance, plan.bucket, batch.gc_floor, plan.lineage, plan.batch_id, 0, plan.partitions,
        edge=edge_buckets(context.pipeline.dedup_horizon),
    )  # fmt: skip
    return receive_unit.Work(query.database, place, query.driver.epoch)
