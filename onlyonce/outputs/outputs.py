"""Outputs: from `events` to the sinks. One streaming query for each output that reads `events` itself.

docs/specification/output-batch.md has its steps. A batch is always consumed, also if everything of it is already
written: a stateful query whose plan is skipped fails at its next start. Measuring the rows of the root consumes the
batch. Where nothing is measured, or only rows that an earlier attempt has staged, a count consumes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.outputs.ends import Counted, OutputEnds
from onlyonce.context import working_copy
from onlyonce.context.query import Query, drain_query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.failpoints import passing
from onlyonce.model import partitions, stored_names
from onlyonce.model.batch import Batch, Outcome, Plan, check_output, read_upto
from onlyonce.model.errors import FunctionFails, Refused
from onlyonce.model.frontier import Frontier
from onlyonce.model.run.isolation import first_line
from onlyonce.model.stored_names import COUNTED_UPTO, KEPT, OO_KIND, OO_WINDOW, RESERVOIR_VERSION, ROWS_FROM
from onlyonce.outputs import in_driver, results, staging, stateless
from onlyonce.outputs.events import backlog, reading
from onlyonce.outputs.events.first_reading import Part
from onlyonce.outputs.events.replayed import Versions
from onlyonce.outputs.function import culprit, seeing
from onlyonce.outputs.releases.dropped import Dropped
from onlyonce.outputs.stateful import anew
from onlyonce.outputs.windows import raw_windows, triggering, window_log, windowing
from onlyonce.outputs.windows.triggering import Fired
from onlyonce.receive import events
from onlyonce.sinks import held_values
from onlyonce.spark import state
from onlyonce.storage import delta


@dataclass(frozen=True)
class Beside:
    """What an output does around each batch where receive is at work beside it.

    Where receive has ended there is nothing to do.

    before   until the rows of these versions are vouched for by the log
    after    once the batch is ended
    """

    before: Callable[[Query, Versions], None] = lambda _, __: None
    after: Callable[[], None] = lambda: None


def drain(context: RunContext, root: Output, beside: Beside = Beside()) -> None:
    """Write what an output, and those made from it, owe for what is in `events`. Called by `onlyonce.run.drain`."""
    query = context.open_query(root.name)
    context = seeing.of_next_batch(context, query, root)
    start = int(query.start_from.get(stored_names.START_VERSION, 0))
    result = reading.stream(context, query, root, start)
    plain = root.gets_whole_windows or stateless.is_stateless(result)
    if plain and ROWS_FROM in query.start_from:
        start = int(query.start_from[ROWS_FROM])
        result = reading.stream(context, query, root, start)
    if not plain:
        _refuse_unsaid(context, query, root)
    raw = raw_windows.are_of(context.pipeline, root, stateless=plain)
    steps = results.steps_of(
        context, query, root, triggering.shape(context, root) if root.gets_whole_windows else result
    )
    anew.clear(query, root, steps)
    mode = "update" if root.panes == "early" else "append"
    met: list[Versions] = []

    def on_batch(context: RunContext, query: Query, part: Part | None, frame: DataFrame, batch_id: int) -> None:
        versions, plan = _plan(context, query, root, batch_id, part)
        met[:] = [versions]
        beside.before(query, versions)
        if raw:  # the stream keeps no state, so nothing is amiss when its own frame is not read
            frame = reading.closing(context, query, root, versions, batch_id)
        _batch(context, query, steps, frame, replace(plan, facts={stored_names.STATELESS: plain}), versions)
        beside.after()

    def turn(query: Query, files: int, part: Part | None) -> None:
        if part:  # its rows are those of whole batches in the log
            beside.before(query, part.versions)
        now = seeing.of_next_batch(context, query, root)
        with working_copy.of(query.folder) if plain else nullcontext() as copy:
            query = replace(query, copy=copy)
            same = now is context and files == events.UNSPLIT and part is None and copy is None
            reads = replace(now, spark=working_copy.session(now.spark)) if copy else now
            rows = result if same else reading.stream(reads, query, root, start, files, part)
            work = backlog.watched(now, query, seeing.watched(now, root, partial(on_batch, now, query, part)))
            drain_query(query, rows, mode, work, Dropped(context.database, query.lineage).look)

    try:
        backlog.in_parts(context, query, start, turn)
    except AnalysisException as error:
        raise refusal(root, error) from error
    except FunctionFails as error:
        raise culprit.named(context, root, error, met) from error


def _refuse_unsaid(context: RunContext, query: Query, root: Output) -> None:
    """Before the first batch of a state whose number of partitions nobody has said."""
    spark = context.spark
    unsaid = state.is_unsaid(spark.sparkContext.master, spark.conf.get(state.PARTITIONS, None))
    if unsaid and Lineages(query.database).last_batches(query.lineage)[0] is None:
        raise state.unsaid(f"{context.pipeline.name}/{root.name}")


def drain_bounded(context: RunContext, root: Output) -> None:
    """The same for a bounded run: one batch over all of `events`, where nothing is late."""
    query = context.open_query(root.name)
    context = seeing.of_next_batch(context, query, root)
    upto = delta.latest(context.events)
    rows = context.spark.read.format("delta").load(str(context.events))
    result = results.applied(context, root, windowing.in_batch(rows, root))
    steps = results.steps_of(context, query, root, result)
    with culprit.searched(context, root, lambda: rows.filter(f"{OO_KIND} = '{KEPT}'")):
        versions = Versions(-1, upto)
        plan = _plan_of(context, query, root, 0, versions, None, {RESERVOIR_VERSION: upto}, f"events@{upto}")
        _batch(context, query, steps, result, plan, versions)


def _plan(context: RunContext, query: Query, root: Output, batch_id: int, part: Part | None) -> tuple[Versions, Plan]:
    before, offset, offsets_hash = backlog.positions(context, query, batch_id, part)
    # A new life meets rows again that an earlier one has counted.
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
    return Plan(
        lineage=query.lineage,
        batch_id=batch_id,
        source_from=before,
        source_to=offset,
        offsets_hash=offsets_hash,
        partitions=context.partitions_of(partitions.A_RECORD * sum(one.kept for one in received)),
        system_time=datetime.now(UTC),
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
        fired = (
            triggering.fired(context, query, steps[0].output, batch, versions)
            if steps[0].output.trigger and not context.bounded
            else None
        )
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
    """Write the rows of a begun batch to all its sinks, and end it.

    `fired`: what they are of, where the output has a trigger.
    """
    if few := in_driver.written(context, query, steps, batch, versions, rows, held):
        _tell(query, batch, steps[0].output, few.rows, 0)
        _end(context, query, steps, batch, versions, {steps[0].output.name: few.windows}, 0, fired)
        return
    windows: dict[str, pa.Table] = {}
    again = 0

    def of_output(output: Output, of_root: DataFrame) -> DataFrame:
        return results.rows_held(held, output, of_root, context.seen.frames)

    for step, made in staging.rows_of_steps(context, query, batch, steps, rows, held, of_output):
        windows[step.output.name], more_again = _write(query, step, batch, made)
        again += more_again
    _end(context, query, steps, batch, versions, windows, again, fired)


def _write(query: Query, step: results.Step, batch: Batch, rows: DataFrame) -> tuple[pa.Table, int]:
    """Write one output's rows; gives each window of theirs with its number of rows, and how many rows were written once
    more than they should be."""
    lengths = step.writer.lengths()
    found = results.measured(rows, step.output.sink, lengths)
    passing("output-consumed")
    with held_values.named(step.output, found.rows, lengths, outside=found.outside):
        again = step.writer.write(batch, found.rows, found.content)
    _tell(query, batch, step.output, found.content.rows, again)
    return found.windows, again


def _tell(query: Query, batch: Batch, output: Output, rows: int, again: int) -> None:
    query.log.info("written", unit=f"{batch.plan.lineage}/{batch.plan.batch_id}/{output.name}", rows=rows, again=again)


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
    met = fired.met if fired else window_log.counted(context, query, root, received)
    outcome = Outcome(
        in_time=met.count("in_time"), late=met.count("late"), rejected=met.count("rejected") if root.reject else None,
        written_again=again if batch.at_least_once else None,
    )  # fmt: skip
    kept = sum(r.kept for r in received)
    pairs = kept * (root.window.per_record if root.window else 1)
    check_output(f"{batch.plan.lineage}/{batch.plan.batch_id}", pairs, outcome)

    passing("output-before-end")
    OutputEnds(query.database).end(
        query.driver,
        context.instance,
        root,
        batch,
        [partial(step.writer.end, batch=batch) for step in steps],
        Counted(met.windows, met.rejected if root.reject else None, fired.held if fired else None),
        window_log.written(context, [step.output for step in steps], batch, versions, windows),
        outcome,
    )
    query.log.info(
        "batch committed",
        unit=f"{batch.plan.lineage}/{batch.plan.batch_id}",
        in_time=outcome.in_time,
        late=outcome.late,
        windows=sum(made.num_rows for made in windows.values()),
        **({"rejected": outcome.rejected} if root.reject else {}),
    )


def refusal(root: Output, error: AnalysisException) -> Exception:
    """What Spark says of a stream that it can't run, as a refusal where its cause is known; else as it is."""
    if "watermark" not in first_line(error).lower():  # what follows is the plan, which has one always
        return error
    return Refused(
        f"output {root.name}: Spark finds no watermark on what {root.made_by} groups by",
        data="nothing was written",
        hint=f"group by {OO_WINDOW} as you get it; a window or event time that you compute again loses its watermark. "
        "An output without a window can't aggregate in on-time panes: give it a window, or panes='early'",
    )
