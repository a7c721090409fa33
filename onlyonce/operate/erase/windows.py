"""Which windows an erasure computes again, and what of the results it can't: told by name.

Who calls it: `forget`. Errors: Retryable while a stream is still to read or close what the records are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection

from onlyonce.commitlog import batches as log
from onlyonce.commitlog.operate import compaction as noted
from onlyonce.commitlog.operate import erasures, removals
from onlyonce.commitlog.operate.erasures import Spans
from onlyonce.commitlog.outputs import backfills
from onlyonce.declare.outputs.sent import Sent
from onlyonce.declare.outputs.sinks import FileSink, Iceberg
from onlyonce.declare.outputs.taken_back import what_to_do
from onlyonce.declare.pipeline import Output, Pipeline, target
from onlyonce.model.batch import to_micros, to_time
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.operate import retaining
from onlyonce.model.outputs.backfill import spans
from onlyonce.model.outputs.chained import Chained
from onlyonce.operate.compact import compaction
from onlyonce.operate.erase.records import Records
from onlyonce.run import from_start


def upto(connection: Connection, pipeline: Pipeline, records: Records) -> int:
    """The version of `events` up to which no stream reads a record again. Raises Retryable where one of these records is later."""
    instance = pipeline.name
    # A life that has begun no batch has no state, and will read the table as it is then: without these records.
    begun = [one for one in noted.queries(connection, instance) if one.query != "receive" and one.batch_id is not None]
    read = [(retaining.done_upto(compaction.reader(connection, instance, one)), one.query) for one in begun]
    least, by = min(read, default=(noted.ended(connection, instance), "receive"))
    later = log.received(connection, instance, least, noted.ended(connection, instance))
    if records.batches & {(one.lineage, one.batch_id) for one in later}:
        raise _wait(pipeline, f"output {by} has not read on after the batch that read them")
    for root in pipeline.roots():
        if root.window is not None and records.times and root.name in {one.query for one in begun}:
            closed = backfills.reach(connection, instance, root.name).closed_until(root)
            last = max(root.window.last_end(to_micros(time) or 0) for time in records.times)
            if closed is None or closed < last:
                raise _wait(pipeline, f"output {root.name} has open windows with them, and its stream keeps those")
    return least


def again(connection: Connection, pipeline: Pipeline, times: list[datetime]) -> Spans:
    """By output that can replace its rows, the closed windows that hold these event times; none from before what is kept."""
    kept, found = removals.kept_from(connection, pipeline.name), Spans()
    for root in pipeline.roots():
        if not root.has_windows or _kept_as_they_are(pipeline, root):
            continue
        first = 0 if kept is None else retaining.first_moment(kept, root.window)
        rows = erasures.windows_at(connection, pipeline.name, root.name, _moments(root, times))
        windows = [(to_micros(row.window_start) or 0, to_micros(row.window_end) or 0) for row in rows]
        runs = spans(window for window in windows if window[0] >= first)
        if runs:
            found[root.name] = [(span.start, span.stop) for span in runs]
    return found


def _moments(root: Output, times: list[datetime]) -> list[datetime]:
    """Moments in the windows that hold these event times; of a chain a window may begin after the record that it has through another."""
    if not isinstance(root.window, Chained):
        return times
    starts = {start for time in times for start, _ in root.window.assign(to_micros(time) or 0)}
    return [time for start in sorted(starts) if (time := to_time(start))]


def left(pipeline: Pipeline) -> Iterator[str]:
    """What of the results can't be taken back, by name."""
    for root in pipeline.roots():
        chain = [root, *pipeline.made_from(root)]
        stays = root.window is None or _kept_as_they_are(pipeline, root)
        for output in chain:
            where = f"output {output.name} ({target(pipeline, output)})"
            if stays:
                why = "has a state of its own" if root.stateful else "has no windows" if root.window is None else "can't be computed again (on_backfill)"
                renewed = bool(root.stateful) and from_start.is_possible(root)
                then = f"the next onlyonce run {pipeline.name} takes them out and computes them from the start" if renewed else "delete them there"
                yield f"{where}: it {why}; rows that were made of these records stay: {then}"
            elif isinstance(output.sink, Sent) or output.on_backfill == "skip":
                yield f"{where}: what was sent or left alone there stays"
            elif isinstance(output.sink, Iceberg):
                yield f"{where}: older snapshots have the old rows until expire_snapshots of your engine has removed them and their files"
            elif isinstance(output.sink, FileSink):
                yield f"{where}: files of earlier panes stay beside the new ones. The search names each that has these values"


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
        hint=f"let the pipeline go on (onlyonce run {pipeline.name}; with --close when the input has ended; an output's last batch counts as in use until it has "
        "read something newer), then run the same command again",
    )
