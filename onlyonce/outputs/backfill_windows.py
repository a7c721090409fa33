"""Recompute closed windows of an output from `events`, now with late rows, and replace the old rows.

The functions of the stream (`results`, the sinks) run over a bounded read of what the stream has read.
docs/specification/backfill-computation.md has the rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.api.declaration import declared_at
from onlyonce.api.outputs import what_to_do
from onlyonce.api.pipeline import Output
from onlyonce.commitlog import backfills
from onlyonce.commitlog.backfills import AskedBy, Backfills, Counts, Panes, Reach, Request
from onlyonce.commitlog.cuts import Compactions
from onlyonce.commitlog.ends import SeenLookups
from onlyonce.commitlog.incarnations import Declarations
from onlyonce.commitlog.removals import Removals
from onlyonce.context import Query, RunContext
from onlyonce.core import backfill as backfill_rules
from onlyonce.core import changes, retention
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, Plan, to_micros
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import KEPT, OO_EVENT_TIME, OO_KIND, OO_WINDOW, RESERVOIR_VERSION, WINDOW_START
from onlyonce.core.triggers import LastPane
from onlyonce.core.windows import Bounds, Chained, Joined, Micros, Session, Sliding, micros
from onlyonce.engine import encoding
from onlyonce.failpoints import passing
from onlyonce.lookups import tables
from onlyonce.lookups.seen import NOTHING, Seen, Versions
from onlyonce.outputs import culprit, function, open_sessions, pane_numbers, results, windows
from onlyonce.outputs import events as outputs_events
from onlyonce.receive import events
from onlyonce.sinks.base import held_values
from onlyonce.sinks.targets import SinkWriter

log = structlog.get_logger()


@dataclass(frozen=True)
class Part:
    """The windows that start in a span, and the versions of the lookup tables that they see."""

    span: Span
    seen: Seen


@dataclass(frozen=True)
class Parts:
    """All windows of a backfill, in parts with the same lookups."""

    parts: tuple[Part, ...]

    def over(
        self, context: RunContext, rows: DataFrame, function: Callable[[RunContext, DataFrame], DataFrame]
    ) -> DataFrame:
        """Apply a function to the rows (with `oo_window`) of each part with its tables, and unite the results."""
        if len(self.parts) == 1:
            return function(replace(context, seen=self.parts[0].seen), rows)
        made = [
            function(replace(context, seen=part.seen), rows.filter(starts_in(F.col(f"{OO_WINDOW}.start"), part.span)))
            for part in self.parts
        ]
        return reduce(DataFrame.unionByName, made)

    def versions_at(self, starts: pa.ChunkedArray) -> pa.Array:
        """Return the versions that the windows starting at these times see, as the log's JSON; null without lookups."""
        seen = [json.dumps(part.seen.versions) if part.seen.versions else None for part in self.parts]
        begun = np.searchsorted(
            [part.span.start for part in self.parts], starts.cast(pa.int64()).to_numpy(), side="right"
        )
        return pa.array(seen, pa.string()).take(pa.array(np.maximum(begun - 1, 0)))


@dataclass(frozen=True)
class Backfilled:
    """The new rows of the windows that start in `span`.

    counts   how many (record, window) pairs in time and late the rows were made of; None: by the log, as the stream met
             them
    parts    what the windows see of the output's lookups
    last     the last pane of each window, if the output numbers its panes
    """

    rows: DataFrame
    span: Span
    counts: Counts | None = None
    parts: Parts = Parts(())
    last: Mapping[Bounds, LastPane] = field(default_factory=dict)


def between(rows: DataFrame, low: int, high: int) -> DataFrame:
    """Return the rows with event times in [low, high), in microseconds."""
    time = F.col(OO_EVENT_TIME)
    return rows.filter((time >= F.timestamp_micros(F.lit(low))) & (time < F.timestamp_micros(F.lit(high))))


def starts_in(column: Any, span: Span) -> Any:
    """Return whether a window's start is in the span."""
    return (column >= F.timestamp_micros(F.lit(span.start))) & (column < F.timestamp_micros(F.lit(span.stop)))


# Windows of a chain: which records come through the upstream outputs. docs/specification/backfill-computation.md.
#
# If an upstream output leaves late records out, it has them only in the windows into which a backfill has put them. The
# log has these windows and their versions of `events`.


def comes_through(context: RunContext, root: Output, span: Span) -> Column:
    """Return whether a record is in the present rows of all upstream outputs in the chain.

    It is in an output's rows if it was in time there, or if a backfill has put it in.
    """
    assert isinstance(root.window, Chained)
    outputs = reversed(context.pipeline.upstream(root))
    reading = Span(*backfill_rules.rows_of(root.window, span))
    there = [
        ~F.col(f"{at}.late") | _put_in(context, before, F.col(f"{at}.window.start"), reading)
        for at, before in zip(windows.steps_leaving_out(root.window), outputs, strict=False)
    ]
    return reduce(Column.__and__, there, F.lit(True))


def _put_in(context: RunContext, before: Output, start: Column, span: Span) -> Column:
    found = F.lit(False)
    for part, version in Backfills(context.database).done(context.instance, before.name, span):
        last = Compactions(context.database).last_in(context.instance, version)
        found = found | (starts_in(start, part) & events.rows_in_batches(last))
    return found


# The lookup versions that a backfill sees: those that each window saw when it was last written ('then'), or the newest
# ('now'). The default is 'then', so a backfill shows old rows of a lookup table that has changed since.
#
# The log stores the versions with each window (`panes`). Consecutive windows with the same versions are a part: the
# functions are applied to the rows of each part with its tables. A window without a result belongs to the part before
# it.

Which = Literal["then", "now"]
MOST = 50
"""The largest number of parts of a backfill. Each part is a plan of its own, which Spark unites."""


def lookup_parts_of(context: RunContext, root: Output, span: Span, which: Which) -> Parts:
    """Return the windows of a backfill by the versions of the lookups that they see: old rows unless `which` is 'now'.

    Raise Refused for a version that is gone, for sessions that saw several versions, and for more than MOST parts.
    """
    lookups = context.pipeline.lookups(root)
    if not lookups:
        return Parts((Part(span, NOTHING),))
    newest = tables.newest(lookups, root)
    found = [] if which == "now" else _written(context, root, span)
    cut = _cut(span, found, newest) if found else [(span, newest)]
    _refuse_many(context, root, span, [versions for _, versions in cut])
    parts = []
    for part, versions in cut:
        tables.refuse_gone(
            {n: lookups[n] for n in lookups if versions[n] != newest[n]}, versions, _hint(context, root, span)
        )
        parts.append(Part(part, tables.as_of(context.spark, lookups, versions)))
    if newest in [versions for _, versions in cut]:
        tables.check_keys(lookups, tables.as_of(context.spark, lookups, newest))
    return Parts(tuple(parts))


def _written(context: RunContext, root: Output, span: Span) -> list[tuple[Micros, Versions]]:
    """Return the lookup versions with which the windows of a span were last written, in the order of their start."""
    seen = SeenLookups(context.database).of_windows(context.instance, root.name, span)
    return [(to_micros(start) or 0, versions) for start, versions in seen]


def _cut(span: Span, found: list[tuple[Micros, Versions]], newest: Versions) -> list[tuple[Span, Versions]]:
    """Cut the span where the versions change.

    A lookup that a window did not see at that time has its newest version.
    """
    cut: list[tuple[Micros, Versions]] = []
    for start, versions in found:
        known = {name: versions.get(name, newest[name]) for name in newest}
        if not cut or cut[-1][1] != known:
            cut.append((start if cut else span.start, known))
    ends = [start for start, _ in cut[1:]] + [span.stop]
    return [(Span(start, end), versions) for (start, versions), end in zip(cut, ends, strict=True)]


def _refuse_many(context: RunContext, root: Output, span: Span, seen: list[Versions]) -> None:
    if len(seen) > 1 and isinstance(root.window, Session):
        what = "sessions saw different versions of its lookups, and late rows may merge them"
    elif len(seen) > MOST:
        what = (
            f"windows saw {len(seen)} versions of its lookups one after the other, and a backfill takes {MOST} at most"
        )
    else:
        return
    raise Refused(
        f"output {root.name}: its {what}",
        data="nothing was written",
        hint=f"backfill shorter intervals; or with today's tables: {_now(context, root, span)}",
    )


def _refuse_merged(context: RunContext, root: Output, span: Span, made: Backfilled) -> None:
    """Raise Refused if sessions that have merged past the span of a backfill saw other lookups than those in it."""
    mine = made.parts.parts[-1].seen.versions
    if mine and isinstance(root.window, Session):
        seen = [versions for _, versions in _cut(made.span, _written(context, root, made.span), mine)]
        _refuse_many(context, root, span, [mine, *(versions for versions in seen if versions != mine)])


def _hint(context: RunContext, root: Output, span: Span) -> str:
    return (
        "windows that are made again with lookups as of then need it: bring that version of the table back; or make "
        f"them with today's: {_now(context, root, span)}"
    )


def _now(context: RunContext, root: Output, span: Span) -> str:
    start, stop = (f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in span.times)
    return f"onlyonce backfill {context.instance} --output {root.name} --from {start} --to {stop} --lookups now"


# Sessions of a backfill.
#
# A session may begin before the first row that is read, and late rows may join separate sessions. Only the user's
# function knows the key of a session, so its edges are found by computing. More rows are read at both ends until no
# session of the span touches the edge of the rows. A session that late rows have changed may reach out of the span.
# Then the span is widened to the old sessions that the changed one replaces, whose rows would otherwise stay.
#
# A function may leave out sessions with few records, so the edges are the edges of its sessions before that
# (`every_session`).


FURTHER = 4
"""The factor by which the margin of the rows grows when a session touches their edge."""

Windows = list[tuple[Micros, Micros]]


def backfilled_sessions(
    context: RunContext, root: Output, asked: Span, span: Span, reach: Reach, kept: DataFrame
) -> Backfilled:
    """Return the sessions that start in the span, after widening it to sessions that have merged.

    Raise OpenWindows if a session that starts in the span asked for is still open.
    """
    assert isinstance(root.window, Session)
    rows, widened = kept, span
    while True:
        rows = _wide_enough(context, root, widened, kept)
        before, widened = widened, widened.hull([*_changed(context, root, rows), *_late(root, rows)])
        if widened == before:
            break
    result = _sessions(context, root, rows)
    inside = result.filter(windows.after_merge(starts_in(F.col(f"{OO_WINDOW}.start"), widened)))
    closed = reach.closed_until(root)
    to_be_closed = Span(widened.start, max(widened.stop, asked.stop))
    # Also sessions that the function leaves out as long as they are open.
    wanted = open_sessions.every_session(result).filter(
        windows.after_merge(starts_in(F.col(f"{OO_WINDOW}.start"), to_be_closed))
    )
    last = wanted.agg(F.max(F.unix_micros(f"{OO_WINDOW}.end")).alias("end")).collect()[0].end
    if last is not None and (closed is None or last > closed):
        raise backfill_rules.still_open(context.instance, root.name, widened, last, closed)
    return Backfilled(inside, widened, _counted(root, function.accepted_rows(context.pipeline, root, rows), widened))


def is_session_open(context: RunContext, root: Output, time: Micros) -> bool:
    """Return whether an open session holds a moment.

    The session may be of any key, since only the user's function knows the key of a record.
    """
    reach, span = Backfills(context.database).reach(context.instance, root.name), Span(time, time + 1)
    if reach.consumed < 0:
        return False
    seeing = replace(context, seen=lookup_parts_of(context, root, span, "now").parts[-1].seen)
    rows = _wide_enough(seeing, root, span, _kept(seeing, root, span, reach))
    holding = _touching(open_sessions.every_session(_sessions(seeing, root, rows)), span)
    _, last = _ends(holding.agg(*_extremes(f"{OO_WINDOW}.start", f"{OO_WINDOW}.end")))
    closed = reach.closed_until(root)
    return last is not None and (closed is None or last > closed)


def _counted(root: Output, rows: DataFrame, span: Span) -> Counts:
    """Count late rows at their own event times: the log knows late rows of sessions only by the hour."""
    assert root.window is not None
    late = windows.is_late(root.window, root.watermark_delay)
    in_span = rows.filter(starts_in(F.col(OO_EVENT_TIME), span))
    found = in_span.agg(F.count_if(~late).alias("in_time"), F.count_if(late).alias("late")).collect()[0]
    return {"in_time": found.in_time, "late": found.late}


def _sessions(context: RunContext, root: Output, rows: DataFrame) -> DataFrame:
    assert root.window is not None
    return results.applied(context, root, windows.assign(rows, root.window))


def _wide_enough(context: RunContext, root: Output, span: Span, kept: DataFrame) -> DataFrame:
    """Return enough rows around a span that each of its sessions is whole."""
    assert isinstance(root.window, Session)
    gap = micros(root.window.gap)
    low, high = backfill_rules.rows_of(root.window, span)
    oldest, newest = _ends(kept.agg(*_extremes(OO_EVENT_TIME, OO_EVENT_TIME)))
    while True:
        rows = between(kept, low, high)
        sessions = open_sessions.every_session(_sessions(context, root, rows))
        start, end = _ends(_touching(sessions, span).agg(*_extremes(f"{OO_WINDOW}.start", f"{OO_WINDOW}.end")))
        cut_low = start is not None and start < low + gap and oldest is not None and low > oldest
        cut_high = end is not None and end >= high and newest is not None and high <= newest
        if not cut_low and not cut_high:
            return rows
        low = low - FURTHER * (span.start - low) if cut_low else low
        high = high + FURTHER * (high - span.stop) if cut_high else high


def _touching(sessions: DataFrame, span: Span) -> DataFrame:
    start, end = (F.unix_micros(f"{OO_WINDOW}.{side}") for side in ("start", "end"))
    return sessions.filter(windows.after_merge((start < span.stop) & (end > span.start)))


def _changed(context: RunContext, root: Output, rows: DataFrame) -> Windows:
    """Return the old and new sessions that differ with and without the late rows. They are few, like late rows."""
    assert root.window is not None
    in_time = _comparable(_sessions(context, root, rows.filter(~windows.is_late(root.window, root.watermark_delay))))
    both = _comparable(_sessions(context, root, rows))
    ends = both.exceptAll(in_time).unionByName(in_time.exceptAll(both)).select("start", "end")
    return [(row.start, row.end) for row in ends.distinct().collect()]


def _late(root: Output, rows: DataFrame) -> Windows:
    """Return the event times of late rows: the span holds those in changed sessions, so that the log counts them."""
    assert root.window is not None
    late = rows.filter(windows.is_late(root.window, root.watermark_delay))
    return [(row.at, row.at) for row in late.select(F.unix_micros(OO_EVENT_TIME).alias("at")).distinct().collect()]


def _comparable(sessions: DataFrame) -> DataFrame:
    """Return each row as JSON, with the ends of its session: Spark compares no maps and no variants."""
    ends = [F.unix_micros(f"{OO_WINDOW}.start").alias("start"), F.unix_micros(f"{OO_WINDOW}.end").alias("end")]
    return sessions.select(*ends, encoding.json_object(sessions.schema).alias("row"))


def _extremes(first: str, last: str) -> list[Any]:
    return [F.min(F.unix_micros(first)).alias("first"), F.max(F.unix_micros(last)).alias("last")]


def _ends(frame: DataFrame) -> tuple[Micros | None, Micros | None]:
    row = frame.collect()[0]
    return row.first, row.last


def backfill(
    context: RunContext, root: Output, span: Span, asked_by: AskedBy = "person", lookups: Which = "then"
) -> None:
    """Make the next generation of an output's windows that start in the span, and of the outputs made from it.

    Lookups are as each window saw them when it was last written, or as they are now. Raise OpenWindows if the stream
    has not closed all these windows, and Refused if a sink can't take its rows back.
    """
    chain = [root, *context.pipeline.made_from(root)]
    todo = {output.name: what_to_do(output) for output in chain}
    asked = span
    reach, span = backfills.closed_reach(context.database, context.instance, root, asked)
    wide = _widened(context, root, span)
    if wide != span:
        reach, wide = backfills.closed_reach(context.database, context.instance, root, wide)
    parts = lookup_parts_of(context, root, wide, lookups)
    hash = context.kept_declaration(root.name)
    back = retention.reach_back(root.window)
    request = Request(
        context.instance, root.name, span, asked_by, hash, back, lookups if context.pipeline.lookups(root) else None
    )
    driver = Backfills(context.database).open_incarnation(request, context.run_id)
    query = Query(driver, context.folder, driver.session(context.database), {})
    if Declarations(context.database).came_as_records(context.instance, root.name) and not (
        outputs_events.comes_as_records(context, query, root)
    ):
        raise changes.collects_now(declared_at(root), context.pipeline.name, root.name)
    number = Backfills(query.database).begin(driver, request, reach.consumed, wide)
    passing("backfill-after-begin")
    query.log.info("backfill begun", windows=str(span), events=reach.consumed)
    with ExitStack() as held:
        seeing = replace(context, seen=parts.parts[-1].seen)
        held.enter_context(culprit.searched(seeing, root, lambda: _kept(context, root, wide, reach)))
        made = _computed(context, root, asked, wide, reach, parts)
        if made.span != span and lookups == "then":
            _refuse_merged(context, root, span, made)
        Backfills(query.database).settle(driver, request, number, made.span, reach.consumed)
        if root.pane_column:
            last = Panes(query.database).last_panes(request.instance, root.name, made.span)
            made = replace(made, rows=pane_numbers.numbered(root, made.rows, last), last=last)
        batch = _batch(query, number, request, reach)
        panes, writers = _write_span(seeing, query, chain, todo, batch, made, held)
        # The log counted each pair when the stream met it. Counting again would read all rows again.
        met = made.counts or Backfills(query.database).met(request.instance, request.output, made.span, reach.consumed)
        written = panes.get(root.name, backfills.MADE.empty_table())
        counts = met | {"windows": written.num_rows, "rows": pc.sum(written.column("rows")).as_py() or 0}
        rejected = _rejected(context, root, made.span, reach)
        passing("backfill-before-end")
        ends = [partial(writer.end, batch=batch) for writer in writers]
        Backfills(query.database).end(driver, request, number, made.span, panes, counts, rejected, ends)
    query.log.info("backfill committed", unit=f"{driver.incarnation}/{number}", **counts)
    passing("backfill-after-end")


def with_those_below(
    context: RunContext, root: Output, span: Span, lookups: Which = "then", *, since: datetime | None = None
) -> None:
    """Recompute the windows, and then the closed windows that are made from them, in the order of the chain.

    since   rows that this run has sent again since this time are not sent once more; None: all are sent
    """
    for part in _not_sent(context, root, span, since):
        backfill(context, root, part, lookups=lookups)
    for output, made in outputs_events.spans_below(context.pipeline, root, span):
        closed = outputs_events.closed_part(context.database, context.instance, output, made)
        for part in _not_sent(context, output, closed, since) if closed else ():
            backfill(context, output, part, lookups=lookups)


def _not_sent(context: RunContext, root: Output, span: Span, since: datetime | None) -> list[Span]:
    """Return the parts of a span to recompute: without the windows whose rows this run has sent again since a time.

    Rows that were sent can't be withdrawn. Windows that the stream has closed meanwhile are among the parts.
    """
    if since is None or not any(one.on_backfill == "resend" for one in (root, *context.pipeline.made_from(root))):
        return [span]
    _, closed = backfills.closed_reach(context.database, context.instance, root, span)
    left = Backfills(context.database).left_of_run(context.run_id, context.instance, root.name, span, since)
    return [part for part in left if part.start < closed.stop]


def include_late(context: RunContext, root: Output) -> None:
    """Recompute the windows whose late rows the output's declaration includes now."""
    for span in outputs_events.spans_to_include(context.database, context.pipeline, context.instance, root):
        include_span(context, root, span)


def include_span(context: RunContext, root: Output, span: Span) -> None:
    """Recompute the windows of a span with their late rows. If they can't be recomputed yet, the late rows wait.

    A late row's session may still be open, or another backfill has the windows. A later call includes the rows.
    """
    try:
        backfill(context, root, span, "late rows")
    except backfill_rules.OpenWindows:
        return
    except (backfill_rules.InRunningBackfill, backfill_rules.InBegunBackfill) as error:
        log.warning("late rows wait", output=root.name, what=error.what, hint=error.hint)


def _computed(context: RunContext, root: Output, asked: Span, span: Span, reach: Reach, parts: Parts) -> Backfilled:
    kept = _kept(context, root, span, reach)
    if root.join:
        made = results.applied(context, root, kept).filter(starts_in(F.col(f"{OO_WINDOW}.start"), span))
        return Backfilled(made, span, parts=parts)
    if isinstance(root.window, Session):
        [one] = parts.parts
        found = backfilled_sessions(replace(context, seen=one.seen), root, asked, span, reach, kept)
        return replace(found, parts=parts)
    rows = windows.assign(kept, root.window)  # type: ignore[arg-type]
    if isinstance(root.window, Chained):
        rows = rows.filter(starts_in(F.col(f"{OO_WINDOW}.start"), span) & comes_through(context, root, span))
    if isinstance(root.window, Sliding):
        rows = rows.filter(starts_in(F.col(f"{OO_WINDOW}.start"), span))
    made = parts.over(context, rows, lambda of_part, some: results.applied(of_part, root, some))
    return Backfilled(made, span, parts=parts)


def _widened(context: RunContext, root: Output, span: Span) -> Span:
    """Return the span to recompute. That of a join includes its neighbours, if late records have rows there."""
    if not isinstance(root.window, Joined):
        return span
    back = retention.first_moment(0, root.window)
    Removals(context.database).refuse_span(context.instance, root.name, span.start, back)
    return backfill_rules.with_neighbours(
        root.window, span, outputs_events.late_windows(context.database, context.instance, root)
    )


def _kept(context: RunContext, root: Output, span: Span, reach: Reach) -> DataFrame:
    """Return the records that may be in the windows of a span.

    For sessions return all, since sessions reach out of it.
    """
    kept = events.rows_as_of(context, reach.consumed).filter(f"{OO_KIND} = '{KEPT}'")
    return kept if isinstance(root.window, Session) else between(kept, *backfill_rules.rows_of(root.window, span))  # type: ignore[arg-type]


def _rejected(context: RunContext, root: Output, span: Span, reach: Reach) -> pa.Table | None:
    """Return the records of the windows that the output rejects as it is declared now, late ones too."""
    if not root.reject:
        return None
    return function.rejected_rows_of(
        root, function.rejected_of_span(context.pipeline, root, _kept(context, root, span, reach), span)
    )


def _batch(query: Query, number: int, request: Request, reach: Reach) -> Batch:
    """Return the batch that the sinks get.

    It has one partition, so that a sink changes its windows in one transaction.
    """
    plan = Plan(
        incarnation=query.incarnation, batch_id=number, source_from=None, source_to={RESERVOIR_VERSION: reach.consumed},
        offsets_hash="", partitions=1, ingestion_time=datetime.now(UTC), bucket=0, settings={}, mode="exactly_once",
        declaration_hash=request.declaration_hash,
    )  # fmt: skip
    return Batch(plan, reach.frontier, 0, "begun", replayed=False)


def _write_span(
    context: RunContext,
    query: Query,
    chain: list[Output],
    todo: dict[str, str],
    batch: Batch,
    made: Backfilled,
    held: ExitStack,
) -> tuple[dict[str, pa.Table], list[SinkWriter]]:
    """Write each output of the chain.

    Each attempt decides again what it stages, by the present declaration: it is a batch of its own, which writes all
    outputs again and replaces whole windows. So no row of an earlier attempt stays next to its rows.

    Return the windows of each output, and the writers of the sinks that were written. An output that a backfill skips
    has neither: its windows stay as they are.
    """
    panes, writers = {}, []
    steps = results.steps_of(context, query, chain[0], made.rows)
    batch = replace(batch, plan=replace(batch.plan, facts=results.facts_of(steps)))

    def of_output(output: Output, of_root: DataFrame) -> DataFrame:
        return _rows_of(context, held, output, of_root, made.parts)

    for step, mine in results.rows_of_steps(context, query, batch, steps, made.rows, held, of_output):
        lengths = step.writer.lengths()
        found = results.measured(mine, step.output.sink, lengths)
        results.refuse_without_window(step.output, found.windows)
        with held_values.named(step.output, found.rows, lengths, outside=found.outside):
            if todo[step.output.name] in ("replace", "correct"):
                step.writer.replace(batch, found.rows, found.content, made.span)
            elif todo[step.output.name] == "resend":
                step.writer.write(batch, found.rows, found.content)
        unit = f"{batch.plan.incarnation}/{batch.plan.batch_id}/{step.output.name}"
        query.log.info("written", unit=unit, rows=found.content.rows, how=todo[step.output.name])
        if todo[step.output.name] == "skip":
            continue
        writers.append(step.writer)
        windows = found.windows.append_column("lookups", made.parts.versions_at(found.windows.column(WINDOW_START)))
        windows = windows.append_column("pane", _panes(step.output, found.windows, made.last))
        panes[step.output.name] = windows
    return panes, writers


def _panes(output: Output, written: pa.Table, last: Mapping[Bounds, LastPane]) -> pa.Array:
    if output.pane_column is None:
        return pa.nulls(written.num_rows, pa.int32())
    return pane_numbers.of_written(written, last).column("pane")


def _rows_of(context: RunContext, held: ExitStack, output: Output, rows: DataFrame, parts: Parts) -> DataFrame:
    if not output.made_beside or output.is_result:
        return results.rows_of(output, rows)
    made = parts.over(context, rows, lambda of_part, some: results.rows_of(output, some, of_part.seen.frames))
    return results.hold(held, made)
