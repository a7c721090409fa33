"""Which windows an erasure computes again, and what of the results it can't: by output.

Who calls it: `forget`. Errors: Retryable while a stream is still to read or close what the records are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.commitlog.operate.erasures import Erasures, Spans
from onlyonce.commitlog.operate.removals import Removals
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.database.connect import Database
from onlyonce.database.transactions import Scope
from onlyonce.declare.outputs.stateful import ANEW
from onlyonce.declare.outputs.taken_back import what_to_do
from onlyonce.declare.pipeline import Output, Pipeline, target
from onlyonce.model.batch import to_micros, to_time
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.operate import retaining
from onlyonce.model.operate.left import NOT_SEARCHED, Left
from onlyonce.model.outputs.backfill import spans
from onlyonce.model.outputs.chained import Chained
from onlyonce.operate.erase.records import Records
from onlyonce.run import from_start
from onlyonce.sinks import stored_targets
from onlyonce.sinks.outbox.stored_outside import StoredOutside


def upto(scope: Scope, pipeline: Pipeline, records: Records) -> int:
    """The version of `events` up to which no stream reads a record again.

    Raises Retryable where one of these records is later.
    """
    instance = pipeline.name
    lives = [one for one in Compactions(scope).queries(instance) if one.query != "receive"]
    # A life that has begun no batch will read the table as it is then: without these records.
    read = [
        (retaining.done_upto(Compactions(scope).reader(instance, one)), one.query)
        for one in lives
        if one.batch_id is not None
    ]
    least, by = min(read, default=(Compactions(scope).ended(instance), "receive"))
    later = Batches(scope).received(instance, least, Compactions(scope).ended(instance))
    if records.batches & {(one.lineage, one.batch_id) for one in later}:
        raise _wait(pipeline, f"output {by} has not read on after the batch that read them")
    from_the_start = {one.query for one in lives if one.batch_id is None and ANEW in (one.start_from or {})}
    for root in pipeline.roots():
        if root.window is not None and records.times and root.name not in from_the_start:
            closed = Backfills(scope).reach(instance, root.name).closed_until(root)
            last = max(root.window.last_end(to_micros(time) or 0) for time in records.times)
            if closed is None or closed < last:
                raise _wait(pipeline, f"output {root.name} has open windows with them, and its stream keeps those")
    return least


def again(scope: Scope, pipeline: Pipeline, times: list[datetime]) -> Spans:
    """By output that can replace its rows, the closed windows that hold these event times; none from before what is
    kept."""
    kept, found = Removals(scope).kept_from(pipeline.name), Spans()
    for root in pipeline.roots():
        if not root.has_windows or _kept_as_they_are(pipeline, root):
            continue
        first = 0 if kept is None else retaining.first_moment(kept, root.window)
        there = Erasures(scope).windows_at(pipeline.name, root.name, _moments(root, times))
        windows = [(to_micros(start) or 0, to_micros(end) or 0) for start, end in there]
        runs = spans(window for window in windows if window[0] >= first)
        if runs:
            found[root.name] = [(span.start, span.stop) for span in runs]
    return found


def _moments(root: Output, times: list[datetime]) -> list[datetime]:
    """Moments in the windows that hold these event times; of a chain a window may begin after the record that it has
    through another."""
    if not isinstance(root.window, Chained):
        return times
    starts = {start for time in times for start, _ in root.window.assign(to_micros(time) or 0)}
    return [time for start in sorted(starts) if (time := to_time(start))]


def left(database: Database, pipeline: Pipeline, again: Spans, kept: int) -> Iterator[Left]:
    """Yield each output whose results of `kept` records are not computed again, and what a target has that the search
    does not read.

    `again`: the windows that are computed again.
    """
    for root in pipeline.roots():
        stays = root.window is None or _kept_as_they_are(pipeline, root)
        for output in [root, *pipeline.made_from(root)]:
            place, stored = (
                f"output {output.name} ({target(pipeline, output)})",
                stored_targets.of(database, pipeline, output),
            )
            outside = isinstance(stored, StoredOutside)
            if kept and not outside:
                if stays:
                    why = (
                        "has a state of its own"
                        if root.stateful
                        else "has no windows"
                        if root.window is None
                        else "can't be computed again (on_backfill)"
                    )
                    yield Left(
                        place,
                        f"not computed again: it {why}",
                        goes(pipeline, output) or "correct what was made of these records there",
                    )
                elif output.on_backfill == "skip":
                    yield Left(
                        place, "not computed again (on_backfill)", "correct what was made of these records there"
                    )
            if (outside or root.name in again) and (what := stored.stays()):
                yield Left(place, NOT_SEARCHED, what)


def goes(pipeline: Pipeline, output: Output) -> str | None:
    """Return when an output's rows of these records go, if the next run computes it from the start; else None."""
    root = pipeline.root_of(output)
    if root.stateful and from_start.is_possible(root):
        return (
            f"the next onlyonce run {pipeline.name} takes them out and computes them from the start, and this "
            "command removes old versions after that"
        )
    return None


def _kept_as_they_are(pipeline: Pipeline, root: Output) -> bool:
    try:
        for output in [root, *pipeline.made_from(root)]:
            what_to_do(output)
    except Refused:
        return True
    return False


def _wait(pipeline: Pipeline, what: str) -> Retryable:
    return Retryable(
        f"{pipeline.name}: records that are to be forgotten are still in use: {what}",
        data="nothing was changed",
        hint=f"let the pipeline go on (onlyonce run {pipeline.name}; with --close when the input has ended; an "
        "output's last batch counts as in use until it has "
        "read something newer), then run the same command again",
    )
