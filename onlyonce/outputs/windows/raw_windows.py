"""Windows of a query that keeps no state.

The records of a window are read from `events` when it closes: of an output's files, and where `panes` asks for it.

Spark would give rows of files in the batch that reads them, so a window would be spread over many batches; and what it
keeps a state for it gives a batch after the one that closes the window. Here the stream only tells how far it has come.
The batch that closes a window reads all its rows at once. The versions of `events` that the batch has read fix these
rows, so a replay reads the same. The log tells which batches of receive have records of the windows that close
(`window_counts`): their files are read, without a look at the table. Where the log has only sums of them, another life
has met some, or they are more than FEW, the table is read.

Who calls it: `outputs`. Errors: Refused for sessions, since a record alone does not tell its session.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog.batches import Batches, Received
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import FileSink, Output, Pipeline
from onlyonce.model.batch import read_upto, to_time
from onlyonce.model.errors import Refused
from onlyonce.model.frontier import closed_until
from onlyonce.model.outputs.chained import Chained
from onlyonce.model.outputs.triggers import Bounds
from onlyonce.model.stored_names import KEPT, OO_EVENT_TIME, OO_KIND, OO_WINDOW
from onlyonce.model.windows import Fixed, Session, Sliding, any_ends, longest, micros, reach
from onlyonce.outputs.events.replayed import Versions
from onlyonce.outputs.windows import closing_rows, windowing
from onlyonce.receive import events, past_rows

Ends = tuple[int | None, int | None]
"""Windows whose ends are later than the first, and not later than the second, in microseconds. First None: all up to
the second. Second None: none."""
FEW = 256
"""Batches of receive whose files are found by the log: an entry of Delta's log is read for each."""


def as_they_come(root: Output, *, stateless: bool) -> bool:
    """Whether an output's rows are written by the batches that read them, so that a window is written in parts: those
    of a join and of a processor too.

    (A bounded run has one batch, and says nothing of state.)"""
    if isinstance(root.window, Chained) or root.panes == "at_close":
        return False
    return root.gives_as_it_comes or (stateless and not root.is_early and not isinstance(root.sink, FileSink))


def are_of(pipeline: Pipeline, root: Output, *, stateless: bool) -> bool:
    """Whether an output's rows wait for their windows to close. Raises Refused where they can't."""
    if isinstance(root.window, Chained) or root.panes == "at_close":
        return True
    if not stateless or root.window is None or root.is_early:
        return False
    made = [output.name for output in pipeline.made_from(root) if isinstance(output.sink, FileSink)]
    if made and not isinstance(root.sink, FileSink):
        raise Refused(
            f"output {made[0]}: {root.name} gives rows as they come, so there is no time at which a window's files "
            "are complete",
            data="nothing was written",
            hint="declare it as an output of its own, without from_output: then its windows are written when they "
            "close",
        )
    if isinstance(root.sink, FileSink) and isinstance(root.window, Session):
        raise Refused(
            f"output {root.name}: records that are not aggregated have no session of their own",
            data="nothing was written",
            hint=f"aggregate by {OO_WINDOW}, or give the output fixed or sliding windows",
        )
    return isinstance(root.sink, FileSink)


def closing_ends(context: RunContext, root: Output, after: int | None, versions: Versions) -> Ends:
    """Which windows close between two versions of `events`, of which the second is the last of `versions`.

    After None: all that are closed.
    """
    before, now = (None if version is None else closed_at(context, root, version) for version in (after, versions.upto))
    return before, now


def closes_any(root: Output, ends: Ends) -> bool:
    """Whether a window can have one of these ends."""
    before, now = ends
    assert isinstance(root.window, Fixed | Sliding)
    if before is None or isinstance(root.window, Chained):
        return now is not None and now != before
    return now is not None and any_ends(root.window, before, now)


def closed_by(context: RunContext, query: Query, root: Output, ends: Ends, versions: Versions) -> DataFrame:
    """The rows in time of the windows with these ends, as of the last of `versions`."""
    assert root.window is not None
    assert not isinstance(root.window, Session)
    before, now = ends
    received = _met_by(context, query, root, ends, versions)
    if received is not None and before is not None and now is not None:
        few = closing_rows.read(context, root, received, (before, now))
        if few is not None:
            return few
    if received is None:
        rows = past_rows.as_of(context, versions.upto).filter(f"{OO_KIND} = '{KEPT}'")
    else:
        rows = past_rows.kept(context.spark, context.events, events.schema(context.pipeline), received)
    kept = windowing.assign(rows.filter(_may_close(root.window, before, now)), root.window)
    end = F.unix_micros(f"{OO_WINDOW}.end")
    closing = F.lit(False) if now is None else end <= F.lit(now)
    if before is not None:
        closing = closing & (end > F.lit(before))
    return kept.filter(closing & ~windowing.is_late(root.window, root.lateness))


def _met_by(
    context: RunContext, query: Query, root: Output, closing: Ends, versions: Versions
) -> list[Received] | None:
    """The batches of receive in which all records in time are of the windows that end in (before, now]; None if that is
    for the table to tell."""
    window, (before, now) = root.window, closing
    assert isinstance(window, Fixed | Sliding)
    if before is None or now is None:
        return None
    if not closes_any(root, closing):
        return []
    met = Batches(query.database).met_first(context.instance, query.lineage, root.name, (before, now), longest(window))
    if met is not None and not met.told:
        return None
    first = versions.after if met is None else min(versions.after, read_upto(met.source_from))
    received = Batches(query.database).received(context.instance, first, versions.upto)
    return received if len(received) <= FEW else None


def _may_close(window: Fixed | Sliding, before: int | None, now: int | None) -> Column:
    """Which records may be in a window that ends in (before, now], by their event times alone: so files without any are
    not opened."""
    if now is None or now == before:
        return F.lit(False)
    found = F.col(OO_EVENT_TIME) < F.timestamp_micros(F.lit(now))
    if before is not None:
        found = found & (F.col(OO_EVENT_TIME) > F.timestamp_micros(F.lit(before - longest(window) - reach(window))))
    return found


def of(context: RunContext, root: Output, windows: list[Bounds], upto: int) -> DataFrame:
    """The rows in time of some windows, as of a version of `events`."""
    assert root.window is not None
    first, last = min(start for start, _ in windows), max(end for _, end in windows)
    time = F.col(OO_EVENT_TIME)
    near = (time >= F.timestamp_micros(F.lit(first))) & (time < F.timestamp_micros(F.lit(last)))
    rows = past_rows.as_of(context, upto).filter(f"{OO_KIND} = '{KEPT}'").filter(near)
    bounds = [((to_time(start), to_time(end)),) for start, end in windows]
    wanted = context.spark.createDataFrame(bounds, f"{OO_WINDOW} struct<start: timestamp, end: timestamp>")
    inside = windowing.assign(rows, root.window).join(F.broadcast(wanted), OO_WINDOW, "left_semi")
    return inside.filter(~windowing.is_late(root.window, root.lateness))


def closed_at(context: RunContext, root: Output, version: int) -> int | None:
    """Up to where the output's windows are closed at a version of `events`."""
    assert root.window is not None
    known = Backfills(context.database).frontier_at(context.instance, version)
    return closed_until(known, root.window, micros(root.lateness))
