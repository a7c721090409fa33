"""Find the records of `events` that an erasure selects, remove them, and choose the windows to compute again.

No Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onlyonce.api.joins_and_state import FROM_START
from onlyonce.api.outputs import what_to_do
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.commitlog import removals
from onlyonce.commitlog.backfills import Backfills, Panes
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.cuts import Compactions
from onlyonce.commitlog.erasures import Erasure, Erasures, Spans
from onlyonce.commitlog.removals import Removals
from onlyonce.core import line_values, locations, retention, stored_names
from onlyonce.core.backfill import Span, spans, windows_near
from onlyonce.core.batch import bounds_in_micros, to_micros, to_time
from onlyonce.core.erasure import NOT_SEARCHED, Condition, Left
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.locations import Location, below
from onlyonce.core.stored_names import (
    CONTROL,
    KEPT,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_HIGH,
    OO_INCARNATION,
    OO_KIND,
    OO_LOW,
    OO_RAW,
    OO_REASON,
)
from onlyonce.core.windows import Bounds, Chained, Joined, Micros, Session
from onlyonce.database.connect import Database, Scope
from onlyonce.failpoints import passing
from onlyonce.operate import erase_inputs
from onlyonce.run import reset
from onlyonce.sinks import targets
from onlyonce.sinks.outbox.sink_outbox import StoredOutside
from onlyonce.tables import attempt_files, commit, opening, rewrite, stores, table_files
from onlyonce.tables.rewrite import Cut, Gone

FOUND = [OO_KIND, OO_HIGH, OO_LOW, OO_EVENT_TIME, OO_INCARNATION, OO_BATCH]


@dataclass(frozen=True)
class Records:
    """The rows of `events` with the records to erase.

    fates     rows by fate
    ids       (high, low) of kept records
    times     event times of kept records
    batches   (incarnation of receive, batch) of each record
    """

    fates: Counter[str] = field(default_factory=Counter)
    ids: list[tuple[int, int]] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)
    batches: set[tuple[str, int]] = field(default_factory=set)


def found_records(path: Location, pipeline: Pipeline, condition: Condition) -> Records:
    """Return the records of the table that fit the condition."""
    gone, records = meant(pipeline, condition), Records()
    if not commit.exists(path):
        return records
    for part in table_files.dataset_of_events(path).to_batches(columns=[*FOUND, *_asked(path, condition)]):
        rows = pa.Table.from_batches([part])
        for row in rows.filter(gone(rows)).select(FOUND).to_pylist():
            records.fates[row[OO_KIND]] += 1
            records.batches.add((row[OO_INCARNATION], row[OO_BATCH]))
            if row[OO_KIND] == KEPT:
                records.ids.append((row[OO_HIGH], row[OO_LOW]))
                records.times.append(row[OO_EVENT_TIME])
    return records


def remove_records(
    database: Database, instance: str, path: Location, pipeline: Pipeline, condition: Condition, erasure: Erasure
) -> None:
    """Remove the records of batches that no stream reads again, in one commit, counted by batch and fate before it.

    Their files are deleted from the disk immediately.
    """
    app_id = stored_names.housekeeping(instance, stored_names.RETENTION_BY)
    last = Compactions(database).last_in(instance, erasure.upto)
    by_value = meant(pipeline, condition)

    def gone(rows: pa.Table) -> pa.Array:
        return pc.and_(by_value(rows), rewrite.files_of_batches(rows, last))

    while (commit.version(path, app_id) or 0) < erasure.number:
        cuts = _cuts(path, condition, gone)
        if not cuts:
            break
        counts: removals.Counts = sum((cut.counts for cut in cuts), Counter())
        Removals(database).count(instance, erasure.removal, counts, len(cuts))
        passing("forget-after-count")
        rewrite.remove_rows(path, cuts, gone, app_id, erasure.number)
    passing("forget-before-sweep")
    attempt_files.sweep_attempts(instance, 0, [])
    _sweep(path)


def _sweep(path: Location) -> None:
    """Delete data files of older versions: files that the table does not have and that are in no attempt's folder."""
    named = set(opening.table(path).get_add_actions(flatten=True).column("path").to_pylist())
    store = stores.of(path)
    for file in [entry.at for entry in store.entries(path) if entry.at.name.endswith(".parquet")]:
        place = below(file, path)
        if place.parts[0] != opening.LOG and not locations.read_attempt(place.parts[0]) and str(place) not in named:
            store.delete(file)


def meant(pipeline: Pipeline, condition: Condition) -> Gone:
    """Return a mask of the rows that fit the condition: by their columns, or by the line of an invalid record."""
    # The line of an invalid record does not say which of several sources it came from.
    mentions = erase_inputs.source_mentions(pipeline, condition)
    lines_of = [
        (asked, erase_inputs.csv_columns(source))
        for source, asked, _ in erase_inputs.source_conditions(pipeline, condition)
        if asked
    ]

    def mask(rows: pa.Table) -> pa.Array:
        none = pa.repeat(pa.scalar(False), rows.num_rows)
        there = set(condition.values) <= set(rows.column_names)
        by_column = (pc.equal(rows.column(name).cast(pa.string()), value) for name, value in condition.values.items())
        kept = reduce(pc.and_, by_column) if there else none
        raw, reasons = rows.column(OO_RAW), rows.column(OO_REASON)
        lines = np.zeros(rows.num_rows, dtype=bool)
        for at in pc.indices_nonzero(pc.is_valid(raw)).to_pylist():  # invalid records only
            line = _line(raw[at].as_py(), reasons[at].as_py())
            lines[at] = mentions.in_message(line.decode("latin-1")) or any(
                asked.fits_bytes(line, columns) for asked, columns in lines_of
            )
        either = pc.or_(pc.fill_null(kept, False), pa.array(lines))
        return pc.and_(either, pc.not_equal(rows.column(OO_KIND), CONTROL))

    return mask


def _line(raw: str, reason: str) -> bytes:
    """Return an invalid line as it was in an input file. A line that is not UTF-8 is in `events` in hexadecimal."""
    return bytes.fromhex(raw) if reason.startswith(line_values.NOT_UTF8) else raw.encode("utf-8", "surrogatepass")


def _cuts(path: Location, condition: Condition, gone: Gone) -> list[Cut]:
    table, asked = opening.table(path), _asked(path, condition)
    files = [file for file in rewrite.rewritten_files(table, [OO_EVENT_TIME]) if file.partition.get(OO_KIND) != CONTROL]
    cuts = (rewrite.cut_rows(path, file, asked, gone) for file in files)
    return [cut for cut in cuts if cut]


def _asked(path: Location, condition: Condition) -> list[str]:
    there = {one.name for one in opening.table(path).schema().fields}
    return [OO_RAW, OO_REASON, *(name for name in condition.values if name in there)]


# Windows that an erasure computes again, and results that it can't, by output.


def windows_upto(scope: Scope, pipeline: Pipeline, records: Records) -> int:
    """Return the version of `events` up to which no stream reads a record again.

    Raise Retryable if one of these records is later, or is in an open window.
    """
    instance = pipeline.name
    incarnations = [one for one in Compactions(scope).queries(instance) if one.query != "receive"]
    # An incarnation that has begun no batch will read the table as it is then: without these records.
    read = [
        (retention.done_upto(Compactions(scope).reader(instance, one)), one.query)
        for one in incarnations
        if one.batch_id is not None
    ]
    least, by = min(read, default=(Compactions(scope).ended(instance), "receive"))
    later = Batches(scope).received(instance, least, Compactions(scope).ended(instance))
    if records.batches & {(one.incarnation, one.batch_id) for one in later}:
        raise still_in_use(pipeline, f"output {by} has not read on after the batch that read them")
    from_the_start = {
        one.query for one in incarnations if one.batch_id is None and FROM_START in (one.start_from or {})
    }
    for root in pipeline.roots():
        if root.window is not None and records.times and root.name not in from_the_start:
            closed = Backfills(scope).reach(instance, root.name).closed_until(root)
            last = max(root.window.last_end(to_micros(time) or 0) for time in records.times)
            if closed is None or closed < last or _in_open_row(scope, pipeline, root, records.times):
                raise still_in_use(
                    pipeline, f"output {root.name} has open windows with these records, which its stream keeps"
                )
    return least


def _in_open_row(scope: Scope, pipeline: Pipeline, root: Output, times: list[datetime]) -> bool:
    """Return whether an open window may have a row of these records, because a record that they were joined with is
    there.
    """
    if root.join is None:
        return False
    starts = _starts(root, times)
    return any(start in starts for start, _ in Panes(scope).open_panes(pipeline.name, root.name))


def windows_again(scope: Scope, pipeline: Pipeline, times: list[datetime]) -> Spans:
    """Return, for each output that can replace its rows, the closed windows that may have rows of these event times.

    Windows that start before what is kept are left out.
    """
    kept, found = Removals(scope).kept_from(pipeline.name), Spans()
    for root in pipeline.roots():
        if not root.has_windows or _kept_as_they_are(pipeline, root):
            continue
        first = 0 if kept is None else retention.first_moment(kept, root.window)
        there = Erasures(scope).windows_at(pipeline.name, root.name, _moments(root, times))
        windows = [bounds_in_micros(start, end) for start, end in there]
        kept_whole = [window for window in windows if window[0] >= first]
        if runs := spans(kept_whole):
            found[root.name] = [(span.start, _stop(root, span, kept_whole)) for span in runs]
    return found


def _stop(root: Output, span: Span, windows: list[Bounds]) -> Micros:
    """Return where the starts of the new windows of a span end.

    Without a record, a session may begin later, or become several sessions.
    """
    return max(end for start, end in windows if span.holds(start)) if isinstance(root.window, Session) else span.stop


def _moments(root: Output, times: list[datetime]) -> list[datetime]:
    """Return moments in the windows that may have rows of these event times.

    A window of a chain may begin after the record, if another window of the chain brings the record in.
    """
    if not isinstance(root.window, Chained | Joined):
        return times
    return [to_time(start) for start in sorted(_starts(root, times))]


def _starts(root: Output, times: list[datetime]) -> set[Micros]:
    """Return where the windows of a chain or join begin that may have rows of these event times."""
    window = root.window
    assert isinstance(window, Chained | Joined)
    moments = {to_micros(time) for time in times}
    if isinstance(window, Joined):
        return {start for moment in moments for start, _ in windows_near(window, moment)}
    return {start for moment in moments for start, _ in window.assign(moment)}


def left_in_windows(database: Database, pipeline: Pipeline, again: Spans, kept: int) -> Iterator[Left]:
    """Yield each output whose results of `kept` records are not computed again, and what a target has that the search
    does not read.

    `again`: the windows that are computed again.
    """
    for root in pipeline.roots():
        stays = root.window is None or _kept_as_they_are(pipeline, root)
        for output in [root, *pipeline.made_from(root)]:
            place, stored = (
                f"output {output.name} ({target(pipeline, output)})",
                targets.stored_of(database, pipeline, output),
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
                        window_goes(pipeline, output) or "correct what was made of these records there",
                    )
                elif output.on_backfill == "skip":
                    yield Left(
                        place, "not computed again (on_backfill)", "correct what was made of these records there"
                    )
            if (outside or root.name in again) and (what := stored.stays()):
                yield Left(place, NOT_SEARCHED, what)


def window_goes(pipeline: Pipeline, output: Output) -> str | None:
    """Return when an output's rows of these records are removed; None if no run computes it from the start."""
    root = pipeline.root_of(output)
    if root.stateful and reset.is_start_possible(root):
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


def still_in_use(pipeline: Pipeline, what: str) -> Retryable:
    """Return the error for records that a stream still reads or keeps."""
    return Retryable(
        f"{pipeline.name}: records that are to be forgotten are still in use: {what}",
        data="nothing was changed",
        hint=f"let the pipeline continue (onlyonce run {pipeline.name}; with --close when the input has ended; an "
        "output's last batch counts as in use until it has read something newer), then run the same command again",
    )
