"""Read `events` for an output: by the stream, in parts of a bounded size, and by a backfill of late records.

It also finds the windows that an earlier incarnation has made final, and the outputs that are made from a backfill's
windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce import settings
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.commitlog import backfills
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.cuts import Compactions
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.commitlog.removals import Removals
from onlyonce.context import ONE_BATCH, WHAT_IS_THERE, OnBatch, Query, RunContext
from onlyonce.core import backfill as backfill_rules
from onlyonce.core import retention, stored_names
from onlyonce.core.backfill import Size, Span, first_files, records_of_part
from onlyonce.core.batch import FIRST_READING, Batch, first_reading, is_part, read_upto, to_time
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import (
    CLOSED_BY,
    CONTROL,
    KEPT,
    OO_BATCH,
    OO_FRONTIER,
    OO_INCARNATION,
    OO_KIND,
    OO_WINDOW,
    RESERVOIR_VERSION,
)
from onlyonce.core.triggers import Trigger
from onlyonce.core.windows import Bounds, Chained, Session
from onlyonce.database.connect import Database
from onlyonce.outputs import at_close, results, stateless, windows
from onlyonce.outputs.results import Versions
from onlyonce.receive import events
from onlyonce.tables import checkpoint, opening, rewrite


def spans_below(pipeline: Pipeline, root: Output, span: Span) -> Iterator[tuple[Output, Span]]:
    """Yield the windows made from a span's windows, by output, each output after its upstream output."""
    known = {root.name: span}
    for output in pipeline.downstream(root):
        assert isinstance(output.window, Chained)
        before = known.get(str(output.from_output))
        made = output.window.made_of(before.start, before.stop) if before else None
        if made:
            known[output.name] = Span(*made)
            yield output, known[output.name]


def check_below(database: Database, pipeline: Pipeline, root: Output, span: Span) -> None:
    """Raise OpenWindows if an output that leaves late records out has open windows made from the span's windows.

    When such a window closes, it gets only the records in time, and not the records that a backfill has added before.
    """
    for output, made in spans_below(pipeline, root, span):
        assert isinstance(output.window, Chained)
        if output.window.leaves_late_out:
            backfills.closed_reach(database, pipeline.name, output, made)


def closed_part(database: Database, instance: str, output: Output, span: Span) -> Span | None:
    """Return the part of a span whose windows an output has closed; None if it has closed none.

    The other windows are made when they close.
    """
    assert output.window is not None
    closed = Backfills(database).reach(instance, output.name).closed_until(output)
    try:
        return backfill_rules.closed_part(instance, output.name, output.window, span, closed, open_rows=False)
    except backfill_rules.OpenWindows:
        return None


# The closed windows whose late records are not yet in their result, by the commit log, without Spark.


log = structlog.get_logger()


def late_spans(
    database: Database, pipeline: Pipeline, instance: str, root: Output, within: Span | None = None
) -> list[Span]:
    """Return the spans that a backfill recomputes to include late records: one span for each run of touching windows.

    A window of a chain waits until its upstream outputs have included their late records. `within`: only windows that
    start in this span; of sessions, whose starts the log does not know, those with late records in this span.
    """
    late = late_windows(database, instance, root)
    if within is not None and isinstance(root.window, Session):
        late = backfill_rules.late_within(within, late)
    elif within is not None:
        late = [window for window in late if within.holds(window[0])]
    return _spans(database, instance, root, _ready(database, pipeline, instance, root, late))


def late_windows_of_stream(database: Database, pipeline: Pipeline, instance: str, root: Output) -> list[Span]:
    """Return the spans that the stream itself recomputes now.

    With late='keep' that is only a backfill that was begun under an earlier declaration: a person's backfill of its
    windows is refused until it is finished.

    A span with windows of a begun backfill is the first. All spans share an incarnation, so the begin of another span
    replaces the begun backfill. If that span then failed, the log would not know that a sink may have new rows of the
    begun one.
    """
    if root.late_trigger is None:
        return Backfills(database).begun_of_late(instance, root.name) if root.window else []
    late = late_windows(database, instance, root, root.late_trigger)
    found = _spans(database, instance, root, _ready(database, pipeline, instance, root, late))
    begun = Backfills(database).begun_of_late(instance, root.name) if len(found) > 1 else []
    return sorted(found, key=lambda span: not any(one.start < span.stop and span.start < one.stop for one in begun))


def _spans(database: Database, instance: str, root: Output, late: list[tuple[int, int]]) -> list[Span]:
    live = Incarnations(database).live(instance, root.name) if late else None
    return backfill_rules.spans(late, (live.start_from or {}).get(stored_names.FIRST_WINDOW) if live else None)


def spans_to_include(database: Database, pipeline: Pipeline, instance: str, root: Output) -> Iterator[Span]:
    """Yield the spans that the stream recomputes now, each once the backfill of the span before has ended."""
    yield from not_included(partial(late_windows_of_stream, database, pipeline, instance, root))


def not_included(search: Callable[[], list[Span]]) -> Iterator[Span]:
    """Yield the spans that a search finds, without those that a backfill of an earlier one has included.

    A session with late records of two spans is recomputed with the first one, and so its rows are sent again once.
    """
    for number, span in enumerate(search()):
        if not number or any(one.start < span.stop and span.start < one.stop for one in search()):
            yield span


def late_windows(
    database: Database, instance: str, root: Output, trigger: Trigger = backfills.ANY
) -> list[tuple[int, int]]:
    """Return the (start, end) of the windows with late records that no backfill has included, in microseconds.

    Windows whose other records `keep_events` has removed are left out, and a warning says how many. `trigger`: only
    windows for which it is due.
    """
    found = Backfills(database).late_windows(instance, root.name, trigger)
    kept = Removals(database).kept_from(instance)
    first = 0 if kept is None else retention.first_moment(kept, root.window)
    gone = sum(start < first for start, _ in found)
    if gone:
        log.warning("late records stay out: the others of their windows are removed", output=root.name, windows=gone)
    return [window for window in found if window[0] >= first]


def _ready(
    database: Database, pipeline: Pipeline, instance: str, root: Output, late: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    before = pipeline.upstream(root)
    if not late or not before:
        return late
    waiting = [window for one in before for window in Backfills(database).late_windows(instance, one.name)]
    return [window for window in late if not any(start < window[1] and end > window[0] for start, end in waiting)]


# Final windows: a new incarnation of an output reads the rows of earlier incarnations again, and must not write final
# windows again.


def read_from(context: RunContext, start: int, files: int = events.UNSPLIT) -> DataFrame:
    """Return the stream of `events` from a version on, which may be the next one to be written.

    Delta's stream must begin at an existing version, so it begins one version earlier, without that version's rows. If
    commits from there on are compacted, the stream begins with the whole table. Its rows are the same, and come in one
    batch, like the rows of old versions.
    """
    first = begins_at(context, start)
    if first is None:
        return read_behind(context, start - 1, files)
    stream = events.stream(context.spark, context.events, first, files)
    known = Batches(context.database).received(context.instance, start - 2, start - 1)
    for one in known:
        known_row = (F.col(OO_INCARNATION) == one.incarnation) & (F.col(OO_BATCH) == one.batch_id)
        stream = stream.filter((F.col(OO_KIND) == CONTROL) | ~known_row)
    return stream


def read_behind(context: RunContext, version: int, files: int = events.UNSPLIT) -> DataFrame:
    """Return the stream of `events` that begins with the present table, without the rows of batches up to a version."""
    stream = events.stream(context.spark, context.events, None, files)
    before = Compactions(context.database).last_in(context.instance, version)
    return stream.filter((F.col(OO_KIND) == CONTROL) | ~events.rows_in_batches(before))


def begins_at(context: RunContext, start: int) -> int | None:
    """Return the commit to `events` at which such a stream begins; None if it begins with the present table."""
    first = max(start - 1, 0)
    return None if first <= Compactions(context.database).compacted(context.instance) else first


def read_before(context: RunContext, query: Query, start: int) -> int:
    """Return a version of `events` that is earlier than all rows which an incarnation reads from now on.

    `start`: the version from which the incarnation began.

    The incarnation has read what its committed batches had, except the last one, which Spark may repeat. So an
    incarnation asks for few final windows at each later start, however many there were when it began.
    """
    return max(start - 1, Batches(context.database).read_before(query.incarnation))


def without_final(
    context: RunContext, query: Query, root: Output, rows: DataFrame, since: int | None = None, *, own: bool = False
) -> DataFrame:
    """Leave out the windows that are final by the log: a new incarnation reads again what its oldest open window needs.

    since   all the rows are of later versions of `events` than this one. They are late for windows that were closed by
            then. So the log is asked only for windows that have closed since: few, however many there are in all
    own     leave out the windows that this incarnation itself has made final, too
    """
    if not root.has_windows or isinstance(root.window, Session):
        return rows
    after = None if since is None else at_close.closed_at(context, root, since)
    final = Batches(context.database).final_windows(
        context.instance, root.name, "" if own else query.incarnation, after
    )
    if query.first_window is not None:
        rows = rows.filter(F.col(f"{OO_WINDOW}.start") >= F.timestamp_micros(F.lit(query.first_window)))
    schema = f"{OO_WINDOW} struct<start: timestamp, end: timestamp>"
    known = context.spark.createDataFrame([(window,) for window in final], schema)
    return rows.join(F.broadcast(known), OO_WINDOW, "left_anti")


def not_written(context: RunContext, query: Query, root: Output, result: DataFrame) -> DataFrame:
    """Leave out sessions that an earlier incarnation has written.

    A new incarnation computes all sessions again, since a record alone does not show its session.
    """
    if CLOSED_BY not in query.start_from or not isinstance(root.window, Session):
        return result
    closed = at_close.closed_at(context, root, int(query.start_from[CLOSED_BY]))
    if closed is None:
        return result
    return result.filter(windows.after_merge(F.col(f"{OO_WINDOW}.end") > F.timestamp_micros(F.lit(closed))))


# First reading: how an output reads compacted commits of `events`, in batches of a bounded size that hold whole commits
# of receive. docs/specification/outputs.md.
#
# A stream that begins at compacted commits begins with the present table, its *snapshot*. Delta can cut a snapshot by
# files, but a file has rows of many commits. So the platform decides what a part is: the receive batches of the
# versions (after, upto], whose rows are found by their batch (`rows_in_batches`). A part takes only one step of Delta's
# stream, which is one file of the snapshot, and ignores its rows. The part's rows are read from the table and joined to
# the step. Its control row is the frontier of its last version, by the log.
#
# The last step has the files that are left, and what has come since. It is the query with its own trigger, without the
# rows of the parts. So Spark continues from it, even with a batch without rows for the windows that have ended.
#
# A part's position in the log (`source_to`) is the stream's position between these two commits. So the log always shows
# whole commits as read by an output, and a repeated batch reads what the log says. If Spark has planned a part that the
# log has not begun, nothing of the part is written yet, and its end is decided again. There may be fewer parts than the
# snapshot has files.


Offset = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A batch of an output's first reading of `events`.

    number     the batch
    versions   of `events` that it reads
    files      how many files of the snapshot Spark must take for it
    last       whether it is the last step: the parts before it have read the whole snapshot
    before     the position at which the part before has ended
    """

    number: int
    versions: Versions
    files: int
    last: bool
    before: Offset | None


def next_part(context: RunContext, query: Query, start: int) -> Part | None:
    """Return what a query reads in its next or repeated batch; None if that is not part of a first reading.

    `start` is the version of `events` from which a query without a batch reads.
    """
    planned, ended = (checkpoint.last(query.folder, kind) for kind in ("offsets", "commits"))
    number = max(planned, ended + 1)
    known = _logged(query, number)
    before = known.plan.source_from if known else _ended(query, number - 1)
    if number and not is_part(before):
        return None
    after = read_upto(before) if before else start - 1
    if known is not None:
        last = not is_part(known.plan.source_to)
        again = Part(number, Versions(after, read_upto(known.plan.source_to)), 1, last, before)
        return again if number or not last else None
    if planned == number:
        return _planned(context, number, after, checkpoint.offsets(query.folder, number)[0], before)
    if before is None and begins_at(context, start) is not None:
        return None
    return _new(context, number, after, checkpoint.offsets(query.folder, planned)[0] if before else None, before)


def _new(context: RunContext, number: int, after: int, offset: Offset | None, before: Offset | None) -> Part | None:
    """Return a part that Spark has not planned.

    `offset`: where in the snapshot the part before has ended. None for the first part, whose snapshot is the present
    table.
    """
    newest, snapshot = first_reading(before), _files(context, offset)
    left = len(snapshot) - (int(offset[stored_names.RESERVOIR_INDEX]) + 1 if offset else 0)
    if newest is not None and after >= newest:
        return Part(number, Versions(after, newest), left, last=True, before=before)
    upto = _ends(context, after, newest, snapshot, left - 1)
    if upto is None:
        upto = newest
    return None if upto is None else Part(number, Versions(after, upto), 1, last=False, before=before)


def _planned(context: RunContext, number: int, after: int, offset: Offset, before: Offset | None) -> Part | None:
    """Return a part that Spark has planned and the log has not begun."""
    left = _left(context, offset)
    if not left:
        return Part(number, Versions(after, read_upto(offset)), 1, last=True, before=before) if before else None
    newest = int(offset[RESERVOIR_VERSION])
    upto = _ends(context, after, newest, _files(context, offset), left)
    return Part(number, Versions(after, newest if upto is None else upto), 1, last=False, before=before)


def _ends(context: RunContext, after: int, newest: int | None, snapshot: list[rewrite.File], steps: int) -> int | None:
    """Return the version with which a part ends that begins after version `after`.

    Return None if all that is left fits into one part, or if no other part can follow. `steps`: how many parts there
    can be, including this one.
    """
    kept = [file for file in snapshot if file.partition[OO_KIND] == KEPT]
    size, rows = sum(file.bytes for file in kept), sum(file.rows or 0 for file in kept)
    upto = Compactions(context.database).ended(context.instance, newest)
    waiting = Compactions(context.database).records(context.instance, after, upto)
    most = records_of_part(waiting, size / rows if rows else 0.0, settings.spark().output_batch_bytes, steps)
    if most is None:
        return None
    return Compactions(context.database).holds(context.instance, after, upto, most)


def first_position(context: RunContext, part: Part, offset: Offset) -> Offset | None:
    """Return the position that the log stores for a part, given Spark's offset.

    Return None if Spark has planned something else than the part, which then begins again.
    """
    left, newest = _left(context, offset), int(offset[RESERVOIR_VERSION])
    if part.last:
        return None if left else offset
    if not left or (left == 1 and part.versions.upto < newest):  # no other part can follow, and rows are left
        return None
    return offset | {RESERVOIR_VERSION: part.versions.upto + 1, stored_names.RESERVOIR_INDEX: -1, FIRST_READING: newest}


def first_rows(context: RunContext, part: Part, files: int) -> DataFrame:
    """Return what a stream of `events` would return of the part's versions: their kept rows, and one control row.

    For the last part, return the stream that follows them.
    """
    if part.last:
        return read_behind(context, part.versions.after, files)
    stream = events.stream(context.spark, context.events, None, files)
    # A batch has exactly one step, however many rows its files have. Control rows are few.
    few = stream.filter(f"{OO_KIND} = '{CONTROL}'").select(OO_KIND).coalesce(1)
    step = F.broadcast(few.mapInArrow(_one, "oo_step boolean"))
    after, upto = (
        Compactions(context.database).last_in(context.instance, version)
        for version in (part.versions.after, part.versions.upto)
    )
    table = context.spark.read.format("delta").load(str(context.events))
    kept = table.filter((F.col(OO_KIND) == KEPT) & events.rows_in_batches(upto, after))
    known = Backfills(context.database).frontier_at(context.instance, part.versions.upto)
    times = [F.lit(to_time(value)).cast("timestamp").alias(name) for name, value in asdict(known).items()]
    fixed = {OO_KIND: F.lit(CONTROL), OO_FRONTIER: F.struct(*times)}
    control = context.spark.range(1).select(
        *(fixed.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in stream.schema)
    )
    # The stream is used once in the plan, as in other batches: Spark counts a query's sources, and refuses a checkpoint
    # with another number.
    return control.unionByName(kept).crossJoin(step).select(*stream.columns)


def _one(batches_of_rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches_of_rows:
        pass
    yield pa.record_batch({"oo_step": [True]})


def _logged(query: Query, number: int) -> Batch | None:
    return Batches(query.database).logged(query.incarnation, number)


def _ended(query: Query, number: int) -> Offset | None:
    """Return the position at which a batch has ended by the log; None for the batch before the first."""
    earlier = _logged(query, number) if number >= 0 else None
    return earlier.plan.source_to if earlier else None


def _left(context: RunContext, offset: Offset) -> int:
    """Return how many files of its snapshot a query has not read at an offset of Spark's."""
    return (
        len(_files(context, offset)) - int(offset[stored_names.RESERVOIR_INDEX]) - 1
        if offset.get("isStartingVersion")
        else 0
    )


def _files(context: RunContext, offset: Offset | None) -> list[rewrite.File]:
    """Return the data files of a query's snapshot; without an offset, the files of the present table."""
    table = opening.table(context.events, version=int(offset[RESERVOIR_VERSION]) if offset else None)
    return rewrite.rewritten_files(table, ())


# The backlog of an output is read in batches of a bounded size. docs/specification/outputs.md.
#
# Delta ends a batch after a number of files, even in the middle of a commit, and the number is fixed while a query
# runs. So if more than one batch's size waits, the waiting commits are counted. The query is started for one batch with
# exactly the files of the commits that fit. The next batch is planned by another start, with its own number. Once the
# rest fits, the query continues with its trigger.
#
# Counting begins after what the checkpoint has planned, so a kill between two parts changes nothing. A planned part is
# read again as it is, and the next one may be cut elsewhere. Compacted commits are cut by a first reading.


class Again(Exception):
    """Ends a query between two batches, so that it is started again. The message says why."""


Turn = Callable[[Query, int, Part | None], None]


def in_parts(context: RunContext, query: Query, start: int, turn: Turn) -> None:
    """Run an output's query to its end, and raise what `turn` raises.

    `turn` runs the query once, with the number of files that end a batch, and with the part of a first reading, if any.
    `start` is the version of `events` from which a query without a batch reads.
    """
    while True:
        part = next_part(context, query, start)
        files = part.files if part and not part.last else _backlog_files(context, query, start)
        if files is not None:
            files = part.files if part else files
            said = {"upto": part.versions.upto} if part else {"files": files}
            query.log.info("more waits than one batch may have: it is cut", **said)
        try:
            if files is None:
                return turn(query, events.UNSPLIT, part)
            turn(replace(query, trigger=ONE_BATCH), files, part)
        except Again as why:
            query.log.info(str(why))


def watch_backlog(context: RunContext, query: Query, on_batch: OnBatch) -> OnBatch:
    """Return the work of a batch, which raises Again after a batch if the next one would be too large.

    Only a query that stays up raises it. The log has the end of the batch and Spark's checkpoint has not, so the batch
    is consumed again.
    """

    def work(frame: DataFrame, batch_id: int) -> None:
        on_batch(frame, batch_id)
        if query.trigger not in (WHAT_IS_THERE, ONE_BATCH) and _backlog_files(context, query, 0) is not None:
            raise Again("fell behind: what waits is cut")

    return work


def backlog_positions(
    context: RunContext, query: Query, batch_id: int, part: Part | None
) -> tuple[dict[str, Any] | None, dict[str, Any], str]:
    """Return the positions between which a batch reads, as the log stores them, and the hash of what Spark has planned.

    Raise Again if Spark has planned another part.
    """
    offset, offsets_hash = checkpoint.offsets(query.written, batch_id)
    if part is None or batch_id > part.number:
        return checkpoint.offsets(query.written, batch_id - 1)[0] if batch_id else None, offset, offsets_hash
    position = first_position(context, part, offset) if batch_id == part.number else None
    if position is None:
        raise Again("Spark has planned another part of a first reading than was meant")
    return part.before, position, offsets_hash


def _backlog_files(context: RunContext, query: Query, start: int) -> int | None:
    planned = checkpoint.last(query.folder, "offsets")
    if planned >= 0:
        first: int | None = read_upto(checkpoint.offsets(query.folder, planned)[0]) + 1
    else:
        first = begins_at(context, start)
    most = settings.spark()
    return (
        None
        if first is None
        else first_files(_waiting(context.events, first), most.output_batch_bytes, most.output_batch_commits)
    )


def _waiting(path: Location, first: int) -> Iterator[Size]:
    for version in count(first):
        try:
            files = opening.added(path, version)
        except FileNotFoundError:
            return
        yield len(files), sum(file.bytes for file in files)


def event_stream(
    context: RunContext, query: Query, root: Output, start: int, files: int = events.UNSPLIT, part: Part | None = None
) -> DataFrame:
    """Return an output's rows, made of `events` from a version on, or of one part of a first reading."""
    read = first_rows(context, part, files) if part else read_from(context, start, files)
    if root.gets_whole_windows:  # its batches read the windows that they write from `events`
        return read

    def by(until: windows.Until) -> tuple[DataFrame, DataFrame]:
        rows = windows.in_stream(read, root, until)
        if query.start_from:
            rows = without_final(context, query, root, rows, read_before(context, query, start))
        return rows, not_written(context, query, root, results.applied(context, root, rows))

    # A join or a processor returns rows at any time, not only at ends of windows.
    return by(windows.closed_until)[1] if root.gives_as_it_comes else at_close.asks_watermark(root.window, by)


def comes_as_records(context: RunContext, query: Query, root: Output) -> bool:
    """Return whether an output's rows come in the batches that read their records, by Spark's plan of its function."""
    plain = root.gets_whole_windows or stateless.is_stateless(event_stream(context, query, root, 0))
    return plain and not at_close.are_of(context.pipeline, root, stateless=plain)


def closing_stream(
    context: RunContext, query: Query, root: Output, versions: Versions, batch_id: int, also: Sequence[Bounds] = ()
) -> DataFrame:
    """Return the rows of the windows that close with this batch, and of the open windows in `also`.

    The first batch of a new incarnation has all windows that no earlier incarnation has written.
    """
    anew = bool(query.start_from) and batch_id == 0
    after = None if anew else versions.after
    ends = at_close.closing_ends(context, root, after, versions)
    rows = at_close.closed_by(context, query, root, ends, versions)
    if also:
        rows = rows.unionByName(at_close.of(context, root, list(also), versions.upto), allowMissingColumns=True)
    if query.start_from:
        rows = without_final(context, query, root, rows, after)
    made = results.applied(context, root, rows)
    # An aggregate without a group returns a row even for no records. If no window closes, there is no window to return
    # a row for.
    return made if also or at_close.closes_any(root, ends) else made.limit(0)
