"""Receive: from the source to `events`. Each pipeline has one streaming query for it.

docs/specification/receive-batch.md has its steps. Exactly once takes one exchange, one pass and one Delta commit for
each batch. At-least-once mode and ids by position are in `at_least_once`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame

from onlyonce.catalog import chunks as catalog
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.closes import Closes
from onlyonce.commitlog.turns import Turns
from onlyonce.context import working_copy
from onlyonce.context.query import Query, drain_query
from onlyonce.context.run_context import RunContext
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.batch import BY_POSITION, EXACTLY_ONCE, Batch, Outcome, Plan
from onlyonce.model.frontier import Frontier, closed_until
from onlyonce.model.sources.tides import Tides
from onlyonce.model.stored_names import AFTER_BATCH_NO
from onlyonce.model.windows import Micros, micros
from onlyonce.receive import at_least_once, batch_files, catalog_rebuild, events, idling, merge_as_it_grows
from onlyonce.receive.blocks import block_files
from onlyonce.sources import sources
from onlyonce.sources.files import folders
from onlyonce.sources.files.source_files import NO_BATCH
from onlyonce.storage import checkpoint, delta, own_tables


def drain(context: RunContext) -> None:
    """Take in what is there, batch by batch. Called by `onlyonce.run.drain`."""
    begin(context)
    register(context)
    take_in(context)


def begin(context: RunContext) -> None:
    """Before anything is registered or read: the table `events`, and the end of a close that was left open."""
    query = context.open_query("receive")
    if context.blocks:
        block_files.clear(context.blocks, query.driver.epoch)
    events.make(context.spark, context.events, context.pipeline)
    if _close_is_open(context, query):
        _close(context, query, "silent", Frontier())  # what it says is in the log already


def register(context: RunContext) -> int:
    """Put what is new in the source into the registry; gives how many entries."""
    query = context.open_query("receive")
    context.check_clock()
    now = datetime.now(UTC)
    known = set(context.skipped)
    added = context.source().register(context.spark, query.driver, now, context.corrected)
    context.looked_at = now
    if new := context.skipped - known:
        query.log.warning("folders skipped", what=folders.told(new))
    if added:
        query.log.info("registered", unit=f"{query.lineage}/files", entries=added)
    passing("receive-registered")
    return added


def take_in(context: RunContext) -> None:
    """Take in what is registered, batch by batch."""
    query = context.open_query("receive")
    taken_in = Batches(query.database).last_taken_in(context.instance)
    query.log.info("to take in", records=context.source().records_after(taken_in))
    with working_copy.of(query.folder) as copy:
        worked = replace(query, copy=copy)

        def on_batch(frame: DataFrame, batch_id: int) -> None:
            with context.receiving:
                ended = _batch(context, worked, frame, batch_id)
                context.receiving.notify_all()
            if ended is not None:  # the outputs go on meanwhile
                merge_as_it_grows.merge(query.database, query.driver, context.instance, ended)

        spark = working_copy.session(context.spark) if copy else context.spark
        stream = context.source().stream(spark, int(query.start_from.get(stored_names.START_VERSION, 0)))
        drain_query(worked, stream, "append", on_batch)


def something_waits(context: RunContext) -> bool:
    """Whether the registry has a batch that receive has not committed."""
    taken_in = Batches(context.open_query("receive").database).last_taken_in(context.instance)
    return context.source().last_batch() not in (None, taken_in)


def idle(context: RunContext) -> None:
    """Of several sources: see which are idle, and let the watermark go on without them.

    Not within a batch; others may wait.
    """
    query = context.open_query("receive")
    if not context.pipeline.sources or idling.looked(context, query.database) is None:
        return
    with context.receiving:  # no batch comes between the look and its close
        after = idling.looked(context, query.database)
        if after is not None:
            _close(context, query, "idle", *after)


def close(context: RunContext, *, ended: bool) -> None:
    """Declare the input ended, or close by silence if it has been silent long enough; when it changes anything.

    A source of which something registered waits to be read is not silent. Only the caller registers, so where nothing
    waits no batch of receive comes meanwhile.
    """
    query = context.open_query("receive")
    if not ended and (context.pipeline.idle_after is None or something_waits(context)):
        return
    now = Batches(query.database).frontier(context.instance)
    tides = Turns(query.database).known(context.instance) if context.pipeline.sources else None
    # Of several sources some may be ahead of the pipeline: what they have sent is to close too.
    reached = now.after_batch(tides.furthest()) if tides else now
    after = reached.declared_ended() if ended else _silence(context, reached)
    if after is not None and _closes_more(context, now, after, reached.tide):
        _close(context, query, "ended" if ended else "silent", replace(after, tide=now.tide), tides)


def _batch(context: RunContext, query: Query, registered: DataFrame, batch_id: int) -> Plan | None:
    """Gives the plan of a batch that has added to the catalog."""
    source = context.source()
    listed = source.listed(context.spark, registered)
    plan = _plan(
        context, query, batch_id, listed, context.corrected.of(source.registry, listed.batch_no, listed.seen_at)
    )
    known = Frontier() if context.bounded else None
    if plan.mode == EXACTLY_ONCE:
        catalog_rebuild.catch_up(query.database, query.driver, context.instance, context.events, context.pipeline)
    passing("receive-before-begin")

    def landed() -> bool:
        return at_least_once.landed(context.events, query.lineage, batch_id)

    batch = Batches(query.database).begin(query.driver, context.instance, plan, known, landed, context.pipeline.sources)
    passing("receive-after-begin")
    if batch.committed:
        return None
    if listed.empty or listed.batch_no <= query.start_from.get(AFTER_BATCH_NO, NO_BATCH):
        _skip(query, batch)
        return None
    lines, must = listed.lines(batch.plan.facts)
    commit = delta.Commit(
        stored_names.transaction(query.lineage, stored_names.EVENTS_BY), batch_id,
        stored_names.receive_note(query.lineage, batch_id), query.driver.epoch,
        batch.plan.offsets_hash,
    )  # fmt: skip
    written = own_tables.append(
        lambda folder: batch_files.written(context, query, batch, lines, folder), context.appended(), commit
    )
    version = own_tables.exactly(context.events, written)
    passing("receive-after-delta")
    _end(context, query, batch, must, version)
    passing("receive-after-end")
    return None if batch.without_catalog else batch.plan


def _skip(query: Query, batch: Batch) -> None:
    """A batch that an earlier life has committed (`onlyonce lineage new`), or of nothing: ended with nothing in it."""
    nothing = Outcome(read=0, kept=0, invalid=0, remnant=0, duplicate=0, unknown_fields=0)
    Batches(query.database).end(query.driver, batch, nothing)


def _plan(context: RunContext, query: Query, batch_id: int, listed: sources.Cut, arrived: datetime) -> Plan:
    offset, offsets_hash = checkpoint.offsets(query.written, batch_id)
    before = checkpoint.offsets(query.written, batch_id - 1)[0] if batch_id else None
    return Plan(
        lineage=query.lineage,
        batch_id=batch_id,
        source_from=before,
        source_to={**offset, **listed.summary()},
        offsets_hash=offsets_hash,
        partitions=context.partitions_of(listed.size()),
        system_time=arrived,
        bucket=int(arrived.timestamp()) // catalog.BUCKET_SECONDS,
        settings=context.settings(),
        mode=BY_POSITION if context.pipeline.by_position else context.mode,
        declaration_hash=context.declaration_hash("receive"),
        facts=listed.unreadable(),
    )


def _end(context: RunContext, query: Query, batch: Batch, must: Callable[[int], int], version: int) -> None:
    passing("receive-before-end")
    if batch.without_catalog:
        total = at_least_once.end(
            query.database, query.driver, batch, context.events, must, version, bounded=context.bounded
        )
    else:
        read = must(Batches(query.database).fated(batch.plan))
        total = Batches(query.database).end_receive(query.driver, batch, read, version, bounded=context.bounded)
    unit = f"{query.lineage}/{batch.plan.batch_id}"
    query.log.info("batch committed", unit=unit, **total)


def _silence(context: RunContext, now: Frontier) -> Frontier | None:
    idle = context.pipeline.idle_after
    last = Batches(context.database).last_arrival(context.instance)
    clock = datetime.now(UTC)
    if idle is None or last is None or clock - last < idle:
        return None
    return now.fallen_silent(int(clock.timestamp() * 1_000_000), micros(idle))


def _closes_more(context: RunContext, now: Frontier, after: Frontier, reached: Micros | None) -> bool:
    for output in context.pipeline.roots():
        if output.window is not None and reached is not None:
            lateness = micros(output.lateness)
            before = closed_until(now, output.window, lateness)
            then = closed_until(after, output.window, lateness)
            limit = output.window.last_end(reached)
            if then is not None and (before is None or before < min(then, limit)):
                return True
    return False


def _close_is_open(context: RunContext, query: Query) -> bool:
    return Closes(query.database).is_open(query.driver)


def _close(context: RunContext, query: Query, kind: str, after: Frontier, tides: Tides | None = None) -> None:
    """docs/specification/watermark-marker.md: begin, one control row under a transaction id of its own, end.

    Never within a batch of receive.
    """
    with context.receiving:
        number, kind, after = Closes(query.database).begin(query.driver, kind, after, tides)
        passing("close-after-begin")
        app_id = stored_names.transaction(query.lineage, stored_names.MARKER_BY)
        commit = delta.Commit(app_id, number, stored_names.numbered(app_id, number), query.driver.epoch, after.content)
        version = events.add_control(context.events, commit, query.lineage, -number, after, datetime.now(UTC))
        passing("close-after-delta")
        Closes(query.database).end(query.driver, number, version)
        query.log.info("input closed", unit=commit.unit, kind=kind)
        passing("close-after-end")
        context.receiving.notify_all()
