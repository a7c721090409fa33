"""Receive: from the source to `events`, in one streaming query for each pipeline.

docs/specification/receive-batch.md has the steps of a batch. Exactly once takes one exchange, one pass and one Delta
commit for each batch. At-least-once mode and ids by position are in `at_least_once`. Between two batches receive merges
the id catalog. If the input has ended or is silent, it writes a watermark marker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from onlyonce import context as onlyonce_context
from onlyonce.api.pipeline import Pipeline
from onlyonce.catalog import chunks as catalog
from onlyonce.catalog.merging import Merging
from onlyonce.commitlog.batches import Batches, WatermarkMarkers
from onlyonce.commitlog.cuts import Compactions
from onlyonce.commitlog.incarnations import Driver, Incarnations, SourceBatches
from onlyonce.context import Query, RunContext, run_query
from onlyonce.core import gc, stored_names
from onlyonce.core.batch import BY_POSITION, EXACTLY_ONCE, Batch, Outcome, Plan, to_micros
from onlyonce.core.diagnosis import RESTORE
from onlyonce.core.errors import CommitStateUnknown, InvariantBroken, Retryable
from onlyonce.core.frontier import Frontier, Progress, closed_until
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import AFTER_BATCH_NO
from onlyonce.core.windows import Micros, micros
from onlyonce.database.connect import Database
from onlyonce.failpoints import passing
from onlyonce.receive import at_least_once, batch_files, events, exchange
from onlyonce.sources import all_sources, folders
from onlyonce.sources.manifest import Vouched
from onlyonce.sources.source_files import NO_BATCH
from onlyonce.tables import checkpoint, own_tables
from onlyonce.tables import commit as tables_commit


def looked_idle(
    database: Database, pipeline: Pipeline, source: all_sources.Source, looked_at: datetime | None
) -> tuple[Frontier, Progress] | None:
    """Return the frontier and progress without idle and retired sources; None if the log needs no watermark marker.

    `looked_at`: when the last search for new input began.

    The watermark advances by a marker, or the marker stores since when a new source is waited for. Without the latter
    a source that never sends is new at each search, and never idle.

    A source that has had nothing for its `idle_after` is idle (`Progress.fallen_idle` decides). The watermark marker
    that follows stores the max event time and the idle sources, so a replay of later batches sees the same.
    docs/specification/watermark-marker.md. A source may be found idle late, and holds back the watermark until it is
    found: the last search for new input must have found nothing from it. A batch that a killed driver has begun is
    finished first: a marker before it would close windows that its records are in time for.
    """
    standing = Batches(database).standing(pipeline.name)
    if not pipeline.sources or standing is None or looked_at is None:
        return None
    now, known, taken_in = standing
    if not known.of:
        return None
    # Not the present time: input since the last search is not known yet.
    clock = to_micros(looked_at)
    idle_after = {name: one.idle_after for name, one in pipeline.inputs.items()}
    progress = known.declared(idle_after, clock).fallen_idle(clock, idle_after, source.behind(taken_in))
    least = progress.least()
    if least is not None and (now.max_event_time is None or least > now.max_event_time):
        return replace(now, max_event_time=least), progress
    return (now, progress) if any(idle_after[name] for name in progress.of.keys() - known.of.keys()) else None


# Merge the catalog as it grows: between two batches, for a bounded number of ids each time.
#
# docs/specification/id-catalog.md. The chunks of a bucket are a log-structured merge tree. So the number of filters
# that a look-up reads grows with the logarithm of the ids, not with the batches. The bucket of the batch is merged by
# levels. With the first batch of a new bucket, the bucket before is closed and its levels become one.


log = structlog.get_logger()


def merge_catalog(database: Database, driver: Driver, instance: str, plan: Plan) -> int:
    """Merge the levels that have too many chunks after this plan's committed batch; return the number of ids rewritten.

    If the database refuses or is too busy, the next batch or the next gc run merges them. While a gc run works,
    nothing is merged. Raise Superseded, or InvariantBroken for chunks that don't add up.
    """
    merged = 0
    try:
        with Merging.once(database) as merging:
            crowds = list(merging.grown(plan.incarnation, plan.batch_id, plan.bucket))
        while crowds and merged < gc.BETWEEN_BATCHES:
            with Incarnations.once(database) as incarnations:
                incarnations.check_epoch(driver.incarnation, driver.epoch)
                parts = Merging(incarnations.scope).merge_if_free(instance, crowds[0])
            if parts:
                passing("merge-after-commit")
            else:
                del crowds[0]
            merged += sum(part.ids for part in parts)
    except (Retryable, CommitStateUnknown) as error:
        log.warning(
            "the catalog is merged later", incarnation=plan.incarnation, batch=plan.batch_id, problem=error.what
        )
    return merged


def run_once(context: RunContext) -> None:
    """Register new input and take it in, batch by batch."""
    begin(context)
    register(context)
    take_in(context)


def begin(context: RunContext) -> None:
    """Create or fit the table `events`, and end an open watermark marker, before anything is registered or read.

    Raise InvariantBroken if the table or a manifest of the source lacks what the log vouches for.
    """
    query = context.open_query("receive")
    table = _events_of_log(context)
    if context.blocks:
        exchange.clear_blocks(context.blocks, query.driver.epoch)
    events.make(context.spark, context.events, context.pipeline, table)
    finish_marker(query.database, query.driver, context.events)


def _events_of_log(context: RunContext) -> DeltaTable | None:
    """Return the table `events`; None if there is none yet.

    Raise InvariantBroken if it or a manifest lacks what committed batches have put there or read: a new table would
    hide it. The log is asked before the tables: what it vouches for then is in them, whatever another driver commits.
    docs/specification/run.md.
    """
    taken_in = Batches(context.database).last_taken_in(context.instance)
    ended = Compactions(context.database).ended(context.instance)
    found = context.appended().table if tables_commit.exists(context.events) else None
    version = -1 if found is None else found.version()
    tables = [Vouched(context.events, "version", ended, version), *context.source().vouched(taken_in)]
    for table in tables:
        if table.there < table.vouched:
            raise InvariantBroken(
                f"the log vouches for {table.unit} {table.vouched} of {table.at}, but there is "
                + (f"{table.unit} {table.there}" if table.there >= 0 else f"no table, or no {table.unit} in it"),
                data=f"committed batches have written or read what is missing in `{table.at.name}`; nothing was read "
                "or written now",
                hint=f"{RESTORE}; without a backup see docs/how-to/start-over.md",
            )
    return found


def register(context: RunContext) -> int:
    """Register the source's new input, and return the number of entries."""
    query = context.open_query("receive")
    context.check_clock()
    now = datetime.now(UTC)
    if context.looked_at is None and not context.pipeline.source.has_inbox:  # a broker may take half a minute to answer
        query.log.info("asks the source")
    known = set(context.skipped)
    added = context.source().register(context.spark, query.driver, now, context.corrected)
    context.looked_at = now
    if new := context.skipped - known:
        query.log.warning("folders skipped", what=folders.told(new))
    if added:
        query.log.info("registered", unit=f"{query.incarnation}/files", entries=added)
    passing("receive-registered")
    return added


def take_in(context: RunContext) -> None:
    """Take in the registered input, batch by batch."""
    query = context.open_query("receive")
    taken_in = Batches(query.database).last_taken_in(context.instance)
    query.log.info("to take in", records=context.source().records_after(taken_in))
    with onlyonce_context.working_copy_of(query.folder) as copy:
        worked = replace(query, copy=copy)

        def on_batch(frame: DataFrame, batch_id: int) -> None:
            with context.receiving:
                ended = _batch(context, worked, frame, batch_id)
                context.receiving.notify_all()
            if ended is not None:  # the outputs work meanwhile
                merge_catalog(query.database, query.driver, context.instance, ended)

        spark = onlyonce_context.working_copy_session(context.spark) if copy else context.spark
        stream = context.source().stream(spark, int(query.start_from.get(stored_names.START_VERSION, 0)))
        run_query(worked, stream, "append", on_batch)


def something_waits(context: RunContext) -> bool:
    """Return whether the manifest has a batch that receive has not committed."""
    taken_in = Batches(context.open_query("receive").database).last_taken_in(context.instance)
    return context.source().last_batch() not in (None, taken_in)


def idle(context: RunContext) -> None:
    """If the pipeline has several sources, advance the watermark without the idle sources.

    This does not happen within a batch; registered batches may wait.
    """
    query, pipeline, source = context.open_query("receive"), context.pipeline, context.source()
    if looked_idle(query.database, pipeline, source, context.looked_at) is None:
        return
    with context.receiving:  # no batch comes between the check and its marker
        after = looked_idle(query.database, pipeline, source, context.looked_at)
        if after is not None:
            _write_marker(context, query, "idle", *after)


def close(context: RunContext, *, ended: bool) -> None:
    """Close the input if it has ended, or if it had been silent for `idle_after` when the last search for new input
    began. Do nothing if no window closes by it.

    A source with registered input that is not read yet is not silent. Only the caller registers, so if nothing waits,
    no batch of receive begins meanwhile.
    """
    query = context.open_query("receive")
    if not ended and (context.pipeline.idle_after is None or something_waits(context)):
        return
    due = due_close(query.database, context.pipeline, context.looked_at, ended=ended)
    if due is not None:
        _write_marker(context, query, "ended" if ended else "silent", *due)


def due_close(
    database: Database, pipeline: Pipeline, looked_at: datetime | None, *, ended: bool
) -> tuple[Frontier, Progress | None] | None:
    """Return the frontier and progress that close the input, since it has ended or is silent; None if no window closes.

    `looked_at`: when the last search for new input began. A source is silent up to then, and not up to the present
    time: input since the last search is not known yet.

    Only if all registered input is committed.
    """
    now = Batches(database).frontier(pipeline.name)
    progress = SourceBatches(database).known(pipeline.name) if pipeline.sources else None
    # If there are several sources, one may be ahead of the pipeline's max_event_time: what it has sent is closed too.
    reached = now.after_batch(progress.furthest()) if progress else now
    after = reached.declared_ended() if ended else _silence(database, pipeline, reached, looked_at)
    if after is None or not _closes_more(pipeline, now, after, reached.max_event_time):
        return None
    return replace(after, max_event_time=now.max_event_time), progress


def _batch(context: RunContext, query: Query, registered: DataFrame, batch_id: int) -> Plan | None:
    """Run one batch. Return its plan if it has added to the catalog, else None."""
    source = context.source()
    listed = source.listed(context.spark, registered)
    plan = _plan(
        context, query, batch_id, listed, context.corrected.of(source.manifest, listed.batch_no, listed.seen_at)
    )
    # Rows of a bounded run get an empty frontier, so none is late; otherwise they get the committed one.
    known = Frontier() if context.bounded else None
    if plan.mode == EXACTLY_ONCE:
        at_least_once.catch_up_catalog(query.database, query.driver, context.instance, context.events, context.pipeline)
    passing("receive-before-begin")

    def landed() -> bool:
        # Asked of a batch that has no units: an overtaken driver must not commit it after the answer.
        own_tables.fence(context.appended(), query.incarnation, query.driver.epoch)
        return at_least_once.landed(context.events, query.incarnation, batch_id)

    batch = Batches(query.database).begin(query.driver, context.instance, plan, known, landed, context.pipeline.sources)
    passing("receive-after-begin")
    if batch.committed:
        return None
    if listed.empty or listed.batch_no <= query.start_from.get(AFTER_BATCH_NO, NO_BATCH):
        _skip(query, batch)
        return None
    query.log.info("batch begun", records=batch.plan.source_to.get(stored_names.LINES, 0))
    lines, expected_reads = listed.lines(batch.plan.facts)
    commit = tables_commit.Commit(
        stored_names.transaction(query.incarnation, stored_names.EVENTS_BY), batch_id,
        stored_names.receive_note(query.incarnation, batch_id), query.driver.epoch,
        batch.plan.offsets_hash,
    )  # fmt: skip
    written = own_tables.append(
        lambda folder: batch_files.write_batch(context, query, batch, lines, folder), context.appended(), commit,
        fenced_of=query.incarnation,
    )  # fmt: skip
    version = own_tables.exactly(context.events, written)
    passing("receive-after-delta")
    _end(context, query, batch, expected_reads, version)
    passing("receive-after-end")
    listed.committed()
    context.committed.add()
    return None if batch.without_catalog else batch.plan


def _skip(query: Query, batch: Batch) -> None:
    """End a batch with no records: an earlier incarnation has committed it (`onlyonce reset`), or it is empty."""
    nothing = Outcome(read=0, kept=0, invalid=0, expired=0, duplicate=0, unknown_fields=0)
    Batches(query.database).end(query.driver, batch, nothing)


def _plan(context: RunContext, query: Query, batch_id: int, listed: all_sources.Cut, arrived: datetime) -> Plan:
    offset, offsets_hash = checkpoint.offsets(query.written, batch_id)
    before = checkpoint.offsets(query.written, batch_id - 1)[0] if batch_id else None
    return Plan(
        incarnation=query.incarnation,
        batch_id=batch_id,
        source_from=before,
        source_to={**offset, **listed.summary()},
        offsets_hash=offsets_hash,
        partitions=context.partitions_of(listed.size()),
        ingestion_time=arrived,
        bucket=int(arrived.timestamp()) // catalog.BUCKET_SECONDS,
        settings=context.settings(),
        mode=BY_POSITION if context.pipeline.by_position else context.mode,
        declaration_hash=context.declaration_hash("receive"),
        facts=listed.unreadable(),
    )


def _end(context: RunContext, query: Query, batch: Batch, expected_reads: Callable[[int], int], version: int) -> None:
    passing("receive-before-end")
    if batch.without_catalog:
        total = at_least_once.end(
            query.database, query.driver, batch, context.events, expected_reads, version, bounded=context.bounded
        )
    else:
        read = expected_reads(Batches(query.database).fated(batch.plan))
        total = Batches(query.database).end_receive(query.driver, batch, read, version, bounded=context.bounded)
    unit = f"{query.incarnation}/{batch.plan.batch_id}"
    query.log.info("batch committed", unit=unit, **total)


def _silence(database: Database, pipeline: Pipeline, now: Frontier, looked_at: datetime | None) -> Frontier | None:
    idle, clock = pipeline.idle_after, to_micros(looked_at)
    last = to_micros(Batches(database).last_arrival(pipeline.name))
    if idle is None or clock is None or last is None or clock - last < micros(idle):
        return None
    return now.fallen_silent(clock, micros(idle))


def _closes_more(pipeline: Pipeline, now: Frontier, after: Frontier, reached: Micros | None) -> bool:
    """Return whether the marker closes a window that may have records. `reached` is the largest event time so far."""
    for output in pipeline.roots():
        if output.window is not None and reached is not None:
            watermark_delay = micros(output.watermark_delay)
            before = closed_until(now, output.window, watermark_delay)
            then = closed_until(after, output.window, watermark_delay)
            limit = output.window.last_end(reached)
            if then is not None and (before is None or before < min(then, limit)):
                return True
    return False


def _write_marker(
    context: RunContext, query: Query, kind: str, after: Frontier, progress: Progress | None = None
) -> None:
    """Commit a watermark marker: begin it, append one control row under a transaction id of its own, end it.

    docs/specification/watermark-marker.md. A watermark marker is never within a batch of receive.
    """
    with context.receiving:
        _commit_marker(query.database, query.driver, context.events, kind, after, progress)
        context.receiving.notify_all()


def finish_marker(database: Database, driver: Driver, path: Location) -> None:
    """Commit the watermark marker that an earlier driver of the incarnation began, if any. Raise Superseded."""
    if WatermarkMarkers(database).is_open(driver.incarnation):
        _commit_marker(database, driver, path, "silent", Frontier())  # the log has the marker's own frontier


def _commit_marker(
    database: Database, driver: Driver, path: Location, kind: str, after: Frontier, progress: Progress | None = None
) -> None:
    # An open marker of an earlier driver is finished first: its values replace the arguments.
    number, kind, after = WatermarkMarkers(database).begin(driver, kind, after, progress)
    passing("marker-after-begin")
    app_id = stored_names.transaction(driver.incarnation, stored_names.MARKER_BY)
    commit = tables_commit.Commit(app_id, number, stored_names.numbered(app_id, number), driver.epoch, after.content)
    # Control rows of a marker have a negative number, so they differ from the control rows of each batch.
    version = events.add_control(path, commit, driver.incarnation, -number, after, datetime.now(UTC))
    passing("marker-after-delta")
    WatermarkMarkers(database).end(driver, number, version)
    log.info("input closed", incarnation=driver.incarnation, epoch=driver.epoch, unit=commit.unit, kind=kind)
    passing("marker-after-end")
