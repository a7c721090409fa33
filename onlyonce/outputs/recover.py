"""Finish an output's batch that has written to some of its sinks and then lost its checkpoint.

docs/specification/incarnation.md. Without the checkpoint Spark can't replay the batch. So a bounded read of `events`
computes the rows that the stream would have written. Everything for this is stored: the log has the versions of
`events` that the batch has read, the declaration and the number of partitions. `events` has with each row the frontier
that it met. The usual writers then write the rows under the same names. A unit that is already written is compared and
skipped, and a missing unit is written.

Which rows these are depends on the output (`_rows`). Let the batch have read the versions of `events` later than
`after` and up to `upto`:

- An output without a state writes the records in time of these versions.
- An output that is read when its windows close (`at_close`) writes the windows that close with these versions.
- With fixed or sliding windows, Spark writes the windows that are closed by the frontier at `after`, because its
  watermark comes from the batches *before*. Windows that are final in the log are left out: they were written before.
- With sessions, Spark writes the sessions that end between two frontiers: the frontier by which the batch before wrote,
  and the frontier at `after` (`core.batch.closes_between`).
- An output with a trigger writes the windows that close, and the panes that the trigger fires
  (`window_log.fired_panes`).

`finish` refuses if the rows depend on a state that `events` does not determine:

- totals, and early panes without a trigger: such a batch writes only the rows that it has changed;
- windows with records that met other versions of the lookups than this batch.
"""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Output
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.ends import SeenLookups
from onlyonce.context import Query, RunContext
from onlyonce.core import stored_names
from onlyonce.core.batch import Batch, Plan, closes_between, read_upto
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import CLOSED_BY, COUNTED_UPTO, KEPT, OO_BATCH, OO_INCARNATION, OO_KIND, OO_WINDOW
from onlyonce.core.windows import Session
from onlyonce.outputs import at_close, events, lookups, results, window_log, windows
from onlyonce.outputs import query as outputs_query
from onlyonce.outputs.results import Versions
from onlyonce.receive import events as receive_events


def finish(context: RunContext, query: Query, root: Output, number: int) -> None:
    """Write the missing rows of the begun batch `number` of a query, and end the batch.

    The driver of `query` must have the highest epoch in each database to which it may commit. Raise Refused if the
    batch can't be computed from `events`, or began under another declaration. Raise InvariantBroken if a sink has other
    rows.
    """
    batch = Batches(query.database).find(query.incarnation, number)
    if context.declaration_hash(root.name) != batch.plan.declaration_hash:
        raise Refused(
            f"batch {query.incarnation}/{number} is half written under another declaration than the present one",
            data="what it has written stays; nothing was changed",
            hint="put the declaration (and transform) back as it was and ask for the new incarnation again; then "
            "change it",
        )
    plan = batch.plan
    # Without an earlier batch, the incarnation's own start counts; -1: from the first version.
    between = closes_between(plan, _earlier(query, number), int(query.start_from.get(CLOSED_BY, -1)))
    context = lookups.versions_as_begun(context, query, root, plan.lookups, number)
    after = read_upto(plan.source_from) if plan.source_from else int(query.start_from.get(COUNTED_UPTO, -1))
    versions = Versions(after, read_upto(plan.source_to))
    with ExitStack() as held:
        fired = window_log.fired_panes(context, query, root, batch, versions, held)
        frame = fired.rows if fired else _rows(context, query, root, batch, versions, between)
        steps = results.steps_of(context, query, root, frame)
        outputs_query.commit(context, query, steps, batch, versions, frame, held, fired)
    query.log.info("finished without its checkpoint", unit=f"{query.incarnation}/{number}")


def _earlier(query: Query, number: int) -> Plan | None:
    """Return the plan of the batch before; None before the first."""
    return Batches(query.database).find(query.incarnation, number - 1).plan if number else None


def _rows(
    context: RunContext, query: Query, root: Output, batch: Batch, versions: Versions, between: tuple[int, int]
) -> DataFrame:
    """Return the result of the root's function for the batch, as its stream would have returned it.

    `between`: the versions of `events` between whose frontiers the batch closes windows (`closes_between`).
    """
    stateless = bool(batch.plan.facts.get(stored_names.STATELESS))
    if at_close.are_of(context.pipeline, root, stateless=stateless):
        return events.closing_stream(context, query, root, versions, batch.plan.batch_id)
    if stateless:
        return _as_read(context, query, root, versions)
    if root.window is None or root.gives_changed_rows:
        raise Refused(
            f"batch {batch.plan.incarnation}/{batch.plan.batch_id} is half written, and what it wrote depends on the "
            "state of its stream",
            data="what it has written stays; nothing was changed",
            hint="put the checkpoint back as it was and run once, so that the batch ends; then ask for a new "
            "incarnation",
        )
    if other := _other_lookups(query, batch):
        raise Refused(
            f"batch {batch.plan.incarnation}/{batch.plan.batch_id} is half written, and its windows have rows that "
            f"met other versions of its lookups (batch {other})",
            data="what it has written stays; nothing was changed",
            hint="put the checkpoint back as it was and run once, so that the batch ends; then ask for a new "
            "incarnation",
        )
    kept = windows.in_stream(_events(context, versions.upto), root)
    return _closing(context, query, root, kept, *between)


def _other_lookups(query: Query, batch: Batch) -> int | None:
    """Return an earlier batch that saw other versions of the lookups; None if there is none.

    After such a batch the state has rows of both versions, which a single read of `events` can't compute.
    """
    plan = batch.plan
    return SeenLookups(query.database).others(plan.incarnation, plan.batch_id)


def _as_read(context: RunContext, query: Query, root: Output, versions: Versions) -> DataFrame:
    received = Batches(query.database).received(context.instance, versions.after, versions.upto)
    schema = f"{OO_INCARNATION} string, {OO_BATCH} bigint"
    read = context.spark.createDataFrame([(one.incarnation, one.batch_id) for one in received], schema)
    rows = _events(context, versions.upto).join(F.broadcast(read), [OO_INCARNATION, OO_BATCH], "left_semi")
    rows = windows.in_stream(rows, root)
    if query.start_from:
        rows = events.without_final(context, query, root, rows)
    return results.applied(context, root, rows)


def _closing(context: RunContext, query: Query, root: Output, kept: DataFrame, before: int, now: int) -> DataFrame:
    assert root.window is not None
    opened, closed = (at_close.closed_at(context, root, version) for version in (before, now))
    end = F.unix_micros(f"{OO_WINDOW}.end")
    if isinstance(root.window, Session):
        inside = (end <= F.lit(closed)) if opened is None else (end <= F.lit(closed)) & (end > F.lit(opened))
        return results.applied(context, root, kept).filter(windows.after_merge(inside))
    kept = events.without_final(context, query, root, kept, own=True)
    return results.applied(context, root, kept.filter(end <= F.lit(closed)))


def _events(context: RunContext, version: int) -> DataFrame:
    return receive_events.rows_as_of(context, version).filter(f"{OO_KIND} = '{KEPT}'")
