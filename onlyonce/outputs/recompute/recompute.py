"""Recomputes closed windows of an output from `events`, now with late rows, and replaces the old rows.

It uses the functions of the stream (`results`, the sinks) over a bounded read of what the stream has read.
docs/specification/backfill-computation.md has its rules.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog.operate.removals import Removals
from onlyonce.commitlog.outputs import backfills
from onlyonce.commitlog.outputs.backfills import AskedBy, Backfills, Reach, Request
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.outputs.taken_back import what_to_do
from onlyonce.declare.pipeline import Output
from onlyonce.failpoints import passing
from onlyonce.model.batch import Batch, Plan
from onlyonce.model.operate import retaining
from onlyonce.model.outputs import backfill as model
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.outputs.chained import Chained
from onlyonce.model.stored_names import KEPT, OO_KIND, OO_WINDOW, RESERVOIR_VERSION, WINDOW_START
from onlyonce.model.windows import Joined, Session, Sliding
from onlyonce.outputs import results, staging
from onlyonce.outputs.events import below, late_windows
from onlyonce.outputs.function import culprit, rejecting
from onlyonce.outputs.recompute import recompute_chains, recompute_lookups, recompute_sessions
from onlyonce.outputs.recompute.recompute_lookups import Which
from onlyonce.outputs.recompute.recomputed import Parts, Recomputed, between, starts_in
from onlyonce.outputs.windows import windowing
from onlyonce.receive import past_rows
from onlyonce.sinks import held_values
from onlyonce.sinks.sinks import SinkWriter

log = structlog.get_logger()


def recompute(
    context: RunContext, root: Output, span: Span, asked_by: AskedBy = "person", lookups: Which = "then"
) -> None:
    """Make the next generation of the windows of an output that start in the span, and of those made from it; with its
    lookups as each window saw them when it was last written, or as they are now.

    Raises OpenWindows when the stream has not closed them all, Refused when a sink can't take them back.
    """
    chain = [root, *context.pipeline.made_from(root)]
    todo = {output.name: what_to_do(output) for output in chain}
    asked = span
    reach, span = backfills.closed_reach(context.database, context.instance, root, asked)
    wide = _widened(context, root, span)
    if wide != span:
        reach, wide = backfills.closed_reach(context.database, context.instance, root, wide)
    parts = recompute_lookups.parts_of(context, root, span, lookups)
    hash = context.kept_declaration(root.name)
    back = retaining.reach_back(root.window)
    request = Request(
        context.instance, root.name, span, asked_by, hash, back, lookups if context.pipeline.lookups(root) else None
    )
    driver = Backfills(context.database).open_lineage(request, context.run_id)
    query = Query(driver, context.folder, driver.session(context.database), {})
    number = Backfills(query.database).begin(driver, request, reach.consumed)
    passing("backfill-after-begin")
    query.log.info("backfill begun", windows=str(span), events=reach.consumed)
    with ExitStack() as held:
        seeing = replace(context, seen=parts.parts[-1].seen)
        held.enter_context(culprit.searched(seeing, root, lambda: _kept(context, root, wide, reach)))
        made = _computed(context, root, asked, wide, reach, parts)
        if made.span != span:
            Backfills(query.database).widen(driver, request, number, made.span)
        batch = _batch(context, query, number, request, reach)
        panes, writers = _written(seeing, query, chain, todo, batch, made, held)
        # The log counted each pair when the stream met it: to count again is to read all rows once more.
        met = made.counts or Backfills(query.database).met(request, made.span, reach.consumed)
        written = panes[root.name]
        counts = met | {"windows": written.num_rows, "rows": pc.sum(written.column("rows")).as_py() or 0}
        rejected = _rejected(context, root, made.span, reach)
        passing("backfill-before-end")
        ends = [partial(writer.end, batch=batch) for writer in writers]
        Backfills(query.database).end(driver, request, number, made.span, panes, counts, rejected, ends)
    query.log.info("backfill committed", unit=f"{driver.lineage}/{number}", **counts)
    passing("backfill-after-end")


def with_those_below(context: RunContext, root: Output, span: Span, lookups: Which = "then") -> None:
    """The same, and then of the closed windows that are made from these, in the order of the chain."""
    recompute(context, root, span, lookups=lookups)
    for output, made in below.spans(context.pipeline, root, span):
        closed = below.closed_part(context.database, context.instance, output, made)
        if closed:
            recompute(context, output, closed, lookups=lookups)


def fold_late(context: RunContext, root: Output) -> None:
    """Recompute the windows of an output with late='recompute' that have late rows not folded in yet."""
    for span in late_windows.of_stream(context.database, context.pipeline, context.instance, root):
        with suppress(model.OpenWindows):  # a late row may be of a session that is still open: the next run's
            recompute(context, root, span, "late rows")


def _computed(context: RunContext, root: Output, asked: Span, span: Span, reach: Reach, parts: Parts) -> Recomputed:
    kept = _kept(context, root, span, reach)
    if root.join:
        made = results.applied(context, root, kept).filter(starts_in(F.col(f"{OO_WINDOW}.start"), span))
        return Recomputed(made, span, parts=parts)
    if isinstance(root.window, Session):
        [one] = parts.parts
        found = recompute_sessions.computed(replace(context, seen=one.seen), root, asked, span, reach, kept)
        return replace(found, parts=parts)
    rows = windowing.assign(kept, root.window)  # type: ignore[arg-type]
    if isinstance(root.window, Chained):
        rows = rows.filter(
            starts_in(F.col(f"{OO_WINDOW}.start"), span) & recompute_chains.comes_through(context, root, span)
        )
    if isinstance(root.window, Sliding):
        rows = rows.filter(starts_in(F.col(f"{OO_WINDOW}.start"), span))
    made = parts.over(context, rows, lambda of_part, some: results.applied(of_part, root, some))
    return Recomputed(made, span, parts=parts)


def _widened(context: RunContext, root: Output, span: Span) -> Span:
    """What is computed again for a span: of a join its neighbours too, where its records have rows."""
    if not isinstance(root.window, Joined):
        return span
    back = retaining.first_moment(0, root.window)
    Removals(context.database).refuse_span(context.instance, root.name, span.start, back)
    return model.with_neighbours(root.window, span, late_windows.windows(context.database, context.instance, root))


def _kept(context: RunContext, root: Output, span: Span, reach: Reach) -> DataFrame:
    """The records that may be in the windows of a span; of sessions, which reach out of it, all."""
    kept = past_rows.as_of(context, reach.consumed).filter(f"{OO_KIND} = '{KEPT}'")
    return kept if isinstance(root.window, Session) else between(kept, *model.rows_of(root.window, span))  # type: ignore[arg-type]


def _rejected(context: RunContext, root: Output, span: Span, reach: Reach) -> pa.Table | None:
    """The records of the windows that the output rejects as it is declared now, late ones too."""
    if not root.reject:
        return None
    return rejecting.rows_of(root, rejecting.of_span(context.pipeline, root, _kept(context, root, span, reach), span))


def _batch(context: RunContext, query: Query, number: int, request: Request, reach: Reach) -> Batch:
    """What the sinks need to know. One partition, so that a sink's windows change in one transaction."""
    plan = Plan(
        lineage=query.lineage, batch_id=number, source_from=None, source_to={RESERVOIR_VERSION: reach.consumed},
        offsets_hash="", partitions=1, system_time=datetime.now(UTC), bucket=0, settings={}, mode="exactly_once",
        declaration_hash=request.declaration_hash,
    )  # fmt: skip
    return Batch(plan, reach.frontier, 0, "begun", replayed=False)


def _written(
    context: RunContext,
    query: Query,
    chain: list[Output],
    todo: dict[str, str],
    batch: Batch,
    made: Recomputed,
    held: ExitStack,
) -> tuple[dict[str, pa.Table], list[SinkWriter]]:
    """Write each output of the chain; gives the windows of each, and the writers of the sinks that were written."""
    panes, writers = {}, []
    steps = results.steps_of(context, query, chain[0], made.rows)

    def of_output(output: Output, of_root: DataFrame) -> DataFrame:
        return _rows_of(context, held, output, of_root, made.parts)

    for step, mine in staging.rows_of_steps(context, query, batch, steps, made.rows, held, of_output):
        lengths = step.writer.lengths()
        found = results.measured(mine, step.output.sink, lengths)
        with held_values.named(step.output, found.rows, lengths, outside=found.outside):
            if todo[step.output.name] in ("replace", "correct"):
                step.writer.replace(batch, found.rows, found.content, made.span)
            elif todo[step.output.name] == "resend":
                step.writer.write(batch, found.rows, found.content)
        if todo[step.output.name] != "skip":
            writers.append(step.writer)
        unit = f"{batch.plan.lineage}/{batch.plan.batch_id}/{step.output.name}"
        query.log.info("written", unit=unit, rows=found.content.rows, how=todo[step.output.name])
        windows = found.windows.append_column("lookups", made.parts.versions_at(found.windows.column(WINDOW_START)))
        panes[step.output.name] = windows if todo[step.output.name] != "skip" else windows.slice(0, 0)
    return panes, writers


def _rows_of(context: RunContext, held: ExitStack, output: Output, rows: DataFrame, parts: Parts) -> DataFrame:
    if not output.made_beside or output.is_result:
        return results.rows_of(output, rows)
    made = parts.over(context, rows, lambda of_part, some: results.rows_of(output, some, of_part.seen.frames))
    return results.hold(held, made)
