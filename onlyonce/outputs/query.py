"""Outputs: from `events` to the sinks, in one streaming query for each output that reads `events` itself.

docs/specification/output-batch.md has the steps of a batch. A batch is always consumed, even if all of it is already
written: a stateful query whose plan is skipped fails at its next start. Measuring the rows of the root consumes the
batch. If nothing is measured, or only rows that an earlier attempt has staged, a count consumes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, cast

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from onlyonce import context as onlyonce_context
from onlyonce.api.declaration import declared_at
from onlyonce.api.joins_and_state import FROM_START
from onlyonce.api.outputs import check_from_start
from onlyonce.api.pipeline import Output
from onlyonce.commitlog.batches import WRITTEN, Batches, State, States
from onlyonce.commitlog.ends import Counted, OutputEnds
from onlyonce.commitlog.incarnations import Declarations, Incarnations
from onlyonce.context import Query, RunContext, run_query
from onlyonce.core import batch, changes, stored_names
from onlyonce.core.batch import Batch, Outcome, Plan, check_output, read_upto
from onlyonce.core.errors import FunctionFails, InvariantBroken, Refused, Retryable
from onlyonce.core.frontier import Frontier
from onlyonce.core.runs import first_line
from onlyonce.core.stored_names import (
    COUNTED_UPTO,
    KEPT,
    OO_EVENT_TIME,
    OO_KIND,
    OO_WINDOW,
    RESERVOIR_VERSION,
    ROWS_FROM,
)
from onlyonce.core.units import Content
from onlyonce.database.connect import Database
from onlyonce.engine import driver_rows, session, state
from onlyonce.failpoints import passing
from onlyonce.outputs import at_close, culprit, lookups, open_sessions, results, stateless, window_log, windows
from onlyonce.outputs import events as outputs_events
from onlyonce.outputs.events import Part
from onlyonce.outputs.results import Step, Versions
from onlyonce.outputs.window_log import Fired
from onlyonce.receive import events
from onlyonce.sinks.base import content, held_values
from onlyonce.sinks.targets import ReplacesOpen, WritesInDriver, WritesPanes

MOST = 10_000
"""The most rows that the driver takes from a function that may return more rows than it has records."""


@dataclass(frozen=True)
class Written:
    """The number of rows written, and how many of them are in each window (`WRITTEN`)."""

    rows: int
    windows: pa.Table


def written_in_driver(
    context: RunContext,
    query: Query,
    steps: list[results.Step],
    batch: Batch,
    versions: Versions,
    frame: DataFrame,
    held: ExitStack,
    fired: Fired | None,
) -> Written | None:
    """Write a small batch in the driver; return None if Spark's tasks must write it.

    In Spark's tasks a batch takes two jobs: one measures its rows, and one writes them. Each takes a part of a second,
    and a task in Python opens a session in the database. Here one job returns the rows, and the driver writes them as a
    task would. The unit and its content are the tasks' own, so a replay may go the other way.

    The driver writes only few records, of an output alone, to a sink that takes rows so. If the function may return
    more rows than it has records, the driver asks for at most MOST rows. If there are more, or a row takes more bytes
    than its share of what the driver holds (`driver_rows`), tasks write them. `frame` is read once, or is held from
    then on, since rows that come from a state can be read only once. After an OSError or Retryable, Spark's tasks try
    again.
    """
    step = steps[0]
    if len(steps) > 1 or not isinstance(step.writer, WritesInDriver):
        return None
    records = None if results.is_staged(batch, step.output) else _records(context, query, batch, versions)
    if records is None or not driver_rows.are_few(records):
        return None
    bounded = not step.adds_no_rows
    if bounded and not batch.plan.facts.get(stored_names.STATELESS):
        frame = results.hold(held, frame)
    plain = results.flat(results.rows_of(step.output, frame, context.seen.frames))
    wanted = None if results.newer(step.output.sink, plain.columns) else step.writer.exported(batch, plain)
    if wanted is None or {*results.WINDOW} & {*plain.columns} - {*wanted.columns}:
        return None
    if held_values.hidden(plain.schema, wanted.schema):
        return None
    most = MOST + 1 if bounded else records
    rows = driver_rows.fetched(session.frame_of_local_rows(wanted.limit(most)) if bounded else wanted, most)
    if rows is None or (bounded and rows.num_rows > MOST):
        return None
    passing("output-consumed")
    found = _windows(rows)
    results.refuse_without_window(step.output, found)
    if fired:
        fired.refuse_emptied(step.output, found)
    content = _content(plain, rows)
    try:
        lengths = step.writer.lengths()
        with held_values.named(step.output, plain, lengths, outside=held_values.any_outside(rows, lengths)):
            step.writer.write(batch, rows, content)
    except (OSError, Retryable) as error:
        query.log.warning("a small batch could not be written by the driver; Spark's tasks try", problem=str(error))
        return None
    return Written(content.rows, found)


def _content(plain: DataFrame, rows: pa.Table) -> Content:
    tally = content.tally_of(rows.column_names, [*content.floats(plain.schema)])
    for part in rows.to_batches():
        tally.add(part)
    return tally.content()


def _records(context: RunContext, query: Query, batch: Batch, versions: Versions) -> int | None:
    """Return how many records a batch has.

    Return None if the log does not count them by batch, or if the batch's rows are not for the driver.
    """
    if context.bounded:
        return None
    if batch.plan.source_from is None and query.start_from:
        return None  # a new incarnation reads again what an earlier one has counted
    received = Batches(query.database).received(context.instance, versions.after, versions.upto)
    return sum(one.kept for one in received)


def _windows(rows: pa.Table) -> pa.Table:
    if results.WINDOW[0] not in rows.column_names:
        return WRITTEN.empty_table()
    groups = rows.select(results.WINDOW).group_by(results.WINDOW).aggregate([([], "count_all")])
    return groups.rename_columns({"count_all": "rows"}).select(WRITTEN.names).cast(WRITTEN)


# Remove the rows of earlier incarnations from the target of an output with state of its own, if a new incarnation
# begins from the start.
#
# Such an incarnation reads `events` from the beginning with no state, and its rows replace all earlier ones. The
# earlier rows are removed before its first batch begins. Until one has begun, each start of the incarnation removes
# them again.
#
# | a driver ends             | then                                                            |
# |---------------------------|-----------------------------------------------------------------|
# | before the rows are out   | the next start removes them                                     |
# | after that                | the next start removes nothing                                  |
# | once a batch has begun    | the batch is in the log, and the rows are its own: they stay    |
#
# An overtaken driver of this incarnation can't remove newer rows. In PostgreSQL the transaction that removes rows finds
# that the driver's epoch is old. In Delta it removes the files that existed before it asked for its epoch: files of
# earlier incarnations.


class Clearing(Protocol):
    """A sink whose rows can be removed."""

    def clear(self, has_begun: Callable[[], bool]) -> None:
        """Remove all rows that the target has now, unless the calling incarnation has begun a batch."""


def clear_target(query: Query, root: Output, steps: list[Step]) -> None:
    """Remove the rows if the query's incarnation begins from the start and has begun no batch. Raise Superseded or
    Refused.
    """
    if not (root.stateful and query.start_from.get(FROM_START)) or _has_begun(query):
        return
    for step in steps:
        check_from_start(f"output {step.output.name}", step.output)
        passing("from-start-before-clear")
        cast(Clearing, step.writer).clear(partial(_has_begun, query))
        passing("from-start-after-clear")
        query.log.info("rows of earlier incarnations are taken out", output=step.output.name)


def _has_begun(query: Query) -> bool:
    return Incarnations(query.database).has_begun(query.driver)


class Dropped:
    """Watch a query's progress: note how large its state is, and detect rows that Spark has dropped as late.

    Spark must never drop rows as late. It counts such rows only afterwards, so a drop can be detected but not
    prevented. The progress is checked before each next batch, and an incarnation that has lost rows writes nothing
    more. Spark keeps only the latest progress, so a query that stays up is checked often.
    """

    def __init__(self, database: Database, incarnation: str) -> None:
        self._database, self._incarnation = database, incarnation
        self._seen = ""

    def look(self, running: StreamingQuery) -> None:
        """Check the progress since the last check.

        If Spark has dropped rows, mark the incarnation as damaged and raise InvariantBroken.
        """
        new = self._new(running)
        self._note(new)
        dropped = sum(state.numRowsDroppedByWatermark() for one in new for state in one.stateOperators())
        if not dropped:
            return
        Incarnations(self._database).set_state(self._incarnation, "damaged")
        raise InvariantBroken(
            f"incarnation {self._incarnation}: Spark dropped {dropped} rows as late that the platform had judged in "
            "time",
            data="windows written by this run may lack rows; the incarnation is marked damaged and won't run again",
            hint=f"does the transform change {OO_EVENT_TIME} or {OO_WINDOW}? Correct it, then: onlyonce reset "
            + self._incarnation.rsplit("/", 1)[0],
        )

    def _note(self, new: list[Any]) -> None:
        for progress in reversed(new):
            told = [_state(number, one) for number, one in enumerate(progress.stateOperators())]
            if told:
                States(self._database).note(self._incarnation, progress.batchId(), told)

    def _new(self, running: StreamingQuery) -> list[Any]:
        # Read from the JVM, and only what is new: Python's form of all that Spark keeps costs thousands of calls.
        found: list[Any] = []
        for progress in reversed(running._jsq.recentProgress()):
            if progress.timestamp() <= self._seen:
                break
            found.append(progress)
        if found:
            self._seen = found[0].timestamp()
        return found


def _state(number: int, told: Any) -> State:
    more = told.customMetrics()

    def metric(name: str) -> int | None:
        return int(more.get(name)) if more.containsKey(name) else None

    return State(
        number,
        told.operatorName(),
        told.numRowsUpdated(),
        told.numRowsRemoved(),
        metric("numRegisteredTimers"),
        metric("numDeletedTimers"),
        metric("rocksdbSstFileSize"),
        told.memoryUsedBytes(),
    )


@dataclass(frozen=True)
class Beside:
    """The steps of an output around each batch while receive runs at the same time. If receive has ended, `before` and
    `after` do nothing.

    before   waits until the log vouches for the rows of these versions
    after    runs once the batch is ended
    """

    before: Callable[[Query, Versions], None] = lambda _, __: None
    after: Callable[[], None] = lambda: None


def run_once(context: RunContext, root: Output, beside: Beside = Beside()) -> None:
    """Write the rows that an output, and the outputs made from it, lack for the present `events`."""
    query = context.open_query(root.name)
    context = lookups.versions_of_next_batch(context, query, root)
    start = int(query.start_from.get(stored_names.START_VERSION, 0))
    result = outputs_events.event_stream(context, query, root, start)
    plain = root.gets_whole_windows or stateless.is_stateless(result)
    if plain and ROWS_FROM in query.start_from:
        start = int(query.start_from[ROWS_FROM])
        result = outputs_events.event_stream(context, query, root, start)
    if not plain:
        _refuse_unsaid(context, query, root)
    raw = at_close.are_of(context.pipeline, root, stateless=plain)
    if (raw or not plain) and Declarations(context.database).came_as_records(context.instance, root.name):
        raise changes.collects_now(declared_at(root), context.pipeline.name, root.name)
    shape = window_log.trigger_shape(context, root) if root.gets_whole_windows else result
    open_sessions.check_function(root, shape)
    steps = results.steps_of(context, query, root, shape)
    clear_target(query, root, steps)
    mode = "update" if root.gives_changed_rows else "append"
    met: list[Versions] = []

    def on_batch(context: RunContext, query: Query, part: Part | None, frame: DataFrame, batch_id: int) -> None:
        versions, plan = _plan(context, query, root, batch_id, part)
        met[:] = [versions]
        beside.before(query, versions)
        if raw:  # the stream keeps no state, so its own frame need not be read
            frame = outputs_events.closing_stream(context, query, root, versions, batch_id)
        facts = {stored_names.STATELESS: plain} | results.facts_of(steps)
        _batch(context, query, steps, frame, replace(plan, facts=facts), versions)
        beside.after()

    def turn(query: Query, files: int, part: Part | None) -> None:
        if part:  # its rows equal whole batches in the log
            beside.before(query, part.versions)
        now = lookups.versions_of_next_batch(context, query, root)
        with onlyonce_context.working_copy_of(query.folder) if plain else nullcontext() as copy:
            query = replace(query, copy=copy)
            same = now is context and files == events.UNSPLIT and part is None and copy is None
            reads = replace(now, spark=onlyonce_context.working_copy_session(now.spark)) if copy else now
            rows = result if same else outputs_events.event_stream(reads, query, root, start, files, part)
            work = outputs_events.watch_backlog(
                now, query, lookups.watched_lookups(now, root, partial(on_batch, now, query, part))
            )
            run_query(query, rows, mode, work, Dropped(context.database, query.incarnation).look)

    try:
        outputs_events.in_parts(context, query, start, turn)
    except AnalysisException as error:
        raise refusal(root, error) from error
    except FunctionFails as error:
        raise culprit.named(context, root, error, met) from error


def _refuse_unsaid(context: RunContext, query: Query, root: Output) -> None:
    """Raise before the first batch of a stateful query if the number of its state's partitions is not set."""
    spark = context.spark
    unsaid = state.is_unsaid(spark.sparkContext.master, spark.conf.get(state.PARTITIONS, None))
    if unsaid and Incarnations(query.database).last_batches(query.incarnation)[0] is None:
        raise state.unsaid(f"{context.pipeline.name}/{root.name}")


def begun_upto(context: RunContext, root: Output) -> int | None:
    """Return up to which version of `events` an output of a bounded run has begun its batch; None if it has not."""
    incarnation = Incarnations(context.database).live(context.instance, root.name)
    begun = Batches(context.database).logged(incarnation.incarnation, 0) if incarnation else None
    return read_upto(begun.plan.source_to) if begun else None


def run_bounded(context: RunContext, root: Output, upto: int) -> None:
    """Write an output in a bounded run: one batch over all of `events` up to a version, where nothing is late."""
    query = context.open_query(root.name)
    context = lookups.versions_of_next_batch(context, query, root)
    rows = events.rows_as_of(context, upto)
    result = results.applied(context, root, windows.in_batch(rows, root))
    steps = results.steps_of(context, query, root, result)
    with culprit.searched(context, root, lambda: rows.filter(f"{OO_KIND} = '{KEPT}'")):
        versions = Versions(-1, upto)
        plan = _plan_of(context, query, root, 0, versions, None, {RESERVOIR_VERSION: upto}, f"events@{upto}")
        _batch(context, query, steps, result, replace(plan, facts=results.facts_of(steps)), versions)


def _plan(context: RunContext, query: Query, root: Output, batch_id: int, part: Part | None) -> tuple[Versions, Plan]:
    before, offset, offsets_hash = outputs_events.backlog_positions(context, query, batch_id, part)
    # A new incarnation meets rows again that an earlier incarnation has counted.
    counted = int(query.start_from.get(COUNTED_UPTO, -1))
    versions = Versions(read_upto(before) if before else counted, read_upto(offset))
    return versions, _plan_of(context, query, root, batch_id, versions, before, offset, offsets_hash)


def _plan_of(
    context: RunContext,
    query: Query,
    root: Output,
    batch_id: int,
    versions: Versions,
    before: Any,
    offset: dict[str, Any],
    offsets_hash: str,
) -> Plan:
    received = Batches(query.database).received(context.instance, versions.after, versions.upto)
    size = batch.A_RECORD * sum(one.kept for one in received)
    return Plan(
        incarnation=query.incarnation,
        batch_id=batch_id,
        source_from=before,
        source_to=offset,
        offsets_hash=offsets_hash,
        # One transaction replaces all open sessions.
        partitions=1 if root.has_early_sessions and not root.sink.writes_files else context.partitions_of(size),
        ingestion_time=datetime.now(UTC),
        bucket=0,
        settings=context.settings(),
        mode=context.mode,
        declaration_hash=context.declaration_hash(root.name),
        lookups=context.seen.versions,
    )


def _batch(
    context: RunContext, query: Query, steps: list[results.Step], frame: DataFrame, plan: Plan, versions: Versions
) -> None:
    passing("output-before-begin")
    known = Frontier() if context.bounded else None

    def landed() -> bool:
        return any(step.writer.landed(plan) for step in steps)

    batch = Batches(query.database).begin(query.driver, context.instance, plan, known, landed)
    passing("output-after-begin")
    with ExitStack() as held:
        if batch.committed:
            results.hold(held, frame).count()
            passing("output-consumed")
            return
        fired = window_log.fired_panes(context, query, steps[0].output, batch, versions, held)
        commit(context, query, steps, batch, versions, fired.rows if fired else frame, held, fired)
    passing("output-after-end")


def commit(
    context: RunContext,
    query: Query,
    steps: list[results.Step],
    batch: Batch,
    versions: Versions,
    rows: DataFrame,
    held: ExitStack,
    fired: Fired | None = None,
) -> None:
    """Write the rows of a begun batch to all its sinks, and end the batch.

    `fired`: the panes that the rows are of, if the output has a trigger.
    """
    replaces = fired is not None and fired.replaced is not None
    if not replaces and (few := written_in_driver(context, query, steps, batch, versions, rows, held, fired)):
        _tell(query, batch, steps[0].output, few.rows, 0)
        _end(context, query, steps, batch, versions, {steps[0].output.name: few.windows}, 0, fired)
        return
    windows: dict[str, pa.Table] = {}
    again = 0

    def of_output(output: Output, of_root: DataFrame) -> DataFrame:
        return results.rows_held(held, output, of_root, context.seen.frames)

    for step, made in results.rows_of_steps(context, query, batch, steps, rows, held, of_output):
        windows[step.output.name], more_again = _write(query, steps, step, batch, made, fired)
        again += more_again
    _end(context, query, steps, batch, versions, windows, again, fired)


def _write(
    query: Query, steps: list[results.Step], step: results.Step, batch: Batch, rows: DataFrame, fired: Fired | None
) -> tuple[pa.Table, int]:
    """Write one output's rows.

    Return the number of rows of each window, and how many rows were written more than once.
    """
    lengths = step.writer.lengths()
    found = results.measured(rows, step.output.sink, lengths)
    results.refuse_without_window(step.output, found.windows)
    passing("output-consumed")
    if fired:
        fired.refuse_emptied(step.output, found.windows)
    if step is steps[0]:
        starts, ends = (found.windows.column(name).cast(pa.int64()).to_pylist() for name in results.WINDOW)
        for writer in [one.writer for one in steps[1:] if isinstance(one.writer, WritesPanes)]:
            writer.check_panes(list(zip(starts, ends, strict=True)))
    with held_values.named(step.output, found.rows, lengths, outside=found.outside):
        if fired and isinstance(step.writer, WritesPanes):
            emptied = step.writer.write_panes(batch, found.rows, found.content, fired.windows)
            # The log forgets open sessions that have no rows any more, so that they get an empty pane only once.
            found, again = found if fired.replaced else found.without_rows_of(emptied), 0
        elif fired and fired.replaced:
            cast(ReplacesOpen, step.writer).replace_open(batch, found.rows, found.content, fired.replaced)
            again = 0
        else:
            again = step.writer.write(batch, found.rows, found.content)
    _tell(query, batch, step.output, found.content.rows, again)
    return found.windows, again


def _tell(query: Query, batch: Batch, output: Output, rows: int, again: int) -> None:
    query.log.info(
        "written", unit=f"{batch.plan.incarnation}/{batch.plan.batch_id}/{output.name}", rows=rows, again=again
    )


def _end(
    context: RunContext,
    query: Query,
    steps: list[results.Step],
    batch: Batch,
    versions: Versions,
    windows: Mapping[str, pa.Table],
    again: int,
    fired: Fired | None,
) -> None:
    root = steps[0].output
    received = window_log.received(context, query, versions)
    met = fired.met if fired else window_log.counted_batch(context, query, root, received)
    outcome = Outcome(
        in_time=met.count("in_time"), late=met.count("late"), rejected=met.count("rejected") if root.reject else None,
        written_again=again if batch.at_least_once else None,
    )  # fmt: skip
    kept = sum(r.kept for r in received)
    pairs = kept * (root.window.per_record if root.window else 1)
    check_output(f"{batch.plan.incarnation}/{batch.plan.batch_id}", pairs, outcome)

    passing("output-before-end")
    OutputEnds(query.database).end(
        query.driver,
        context.instance,
        root,
        batch,
        [partial(step.writer.end, batch=batch) for step in steps],
        Counted(met.windows, met.rejected if root.reject else None, fired.held if fired else None),
        window_log.written(context, [step.output for step in steps], batch, versions, windows, fired),
        outcome,
    )
    query.log.info(
        "batch committed",
        unit=f"{batch.plan.incarnation}/{batch.plan.batch_id}",
        in_time=outcome.in_time,
        late=outcome.late,
        windows=sum(made.num_rows for made in windows.values()),
        **({"rejected": outcome.rejected} if root.reject else {}),
    )


def refusal(root: Output, error: AnalysisException) -> Exception:
    """Return a refusal for Spark's error about a stream that it can't run if the cause is known, else that error."""
    if "watermark" not in first_line(error).lower():  # the lines after it are the plan, which always has a watermark
        return error
    return Refused(
        f"output {root.name}: Spark finds no watermark on the columns by which {root.made_by} groups",
        data="nothing was written",
        hint=f"group by {OO_WINDOW} as you get it; a window or event time that you compute again loses its watermark. "
        "An output without a window can't aggregate in on-time panes: give it a window, or panes='early'",
    )
