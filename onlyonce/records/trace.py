"""Report what became of one record: its fate in `events`, its unit in the commit log, its windows. Without a JVM.

An invalid record has no id. It is found by its line, if that has the given values for the id columns. If nothing is
found, the invalid lines are shown that hold the values as text. A re-delivery leaves no row; it is only counted.
A trace reads the ids of all of `events`, so it may take long.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.commitlog.ids import Judged, Reading, SeenWindow, Traces
from onlyonce.commitlog.removals import Rejection, Rejections, Removals
from onlyonce.core import stored_names, units
from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.frontier import Frontier, is_late
from onlyonce.core.retention import said
from onlyonce.core.runs import Report
from onlyonce.core.stored_names import (
    CONTROL,
    FIRST_WINDOW,
    INVALID,
    KEPT,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_FRONTIER,
    OO_HIGH,
    OO_INCARNATION,
    OO_INGESTION_TIME,
    OO_KIND,
    OO_LOW,
    OO_PARTITION,
    OO_PLACE,
    OO_RAW,
    OO_REASON,
)
from onlyonce.core.windows import Chained, Session, micros
from onlyonce.database.connect import Database
from onlyonce.records import left_out
from onlyonce.sources.record_id import Asked, RecordId

Row = dict[str, Any]

PLATFORM = [
    OO_KIND,
    OO_HIGH,
    OO_LOW,
    OO_INCARNATION,
    OO_BATCH,
    OO_PARTITION,
    OO_EVENT_TIME,
    OO_INGESTION_TIME,
    OO_FRONTIER,
    OO_REASON,
    OO_PLACE,
    OO_RAW,
]
MOST = 20
"""The most invalid lines with these values that are shown."""
NEVER_SEEN = (
    "no row of `events` and no chunk of the catalog has this id. It never came, or waits in a file that no run has "
    "taken in (onlyonce run {pipeline} --dry-run), or was on a line or in a file that could not be read (onlyonce "
    "invalid {instance})",
    "a duplicate leaves only the row of its first delivery, which would be here; unless it was kept under other "
    "record_id columns, or its rows were removed by hand. Ids older than the dedup horizon are collected from the "
    "catalog",
)
MAY_BE = (
    "no row of `events` and no chunk of the catalog has this id. It may be an invalid line above: the line has the "
    "values as text. That is not certain: no id is read from an invalid line, and the text may be of another column"
)
NOT_THERE = "not there: never kept, or collected since"
NOT_NEEDED = "none: a record is its place"
IN_CATALOG_ONLY = (
    "its id is in the catalog, but no row of `events` has it: the batch that judged it has not come to its end. The "
    "next run ends it; onlyonce doctor says whether it is stuck"
)
ERASED = (
    "erased: its id is in the catalog, so a re-delivery is a duplicate, but its row was removed from `events`. "
    "onlyonce.removals has the "
    "erasures (onlyonce forget) and when they were. Where none of them took it, its batch has not come to its end"
)


def trace(database: Database, pipeline: Pipeline, instance: str, wanted: Asked) -> tuple[Report, bool]:
    """Return what is known of a record, and whether anything is."""
    # Before the transaction, which blocks a collection of the catalog's tables: this read may take long.
    found = rows_of(instance, wanted, PLATFORM)
    lines = [] if found else _holding(instance, pipeline, wanted)
    with Traces.at_one_moment(database) as log:
        kept, erased = Removals(log.scope).kept_from(instance), Removals(log.scope).erased(instance)
        known = [key for one in wanted.ids if (key := log.chunk_with(instance, one.high, one.low))]
        judged = [(row, *_fate(log, row)) for row in found]
        windows = [
            of_window
            for row, _, version in judged
            if row[OO_KIND] == KEPT
            for of_window in _windows(log, pipeline, instance, row, version)
        ]
        may_be = [] if known else [_fate(log, row)[0] for row in lines]
        lost = None if found else left_out.lost_events(log.scope, instance)
    shown = [fate for _, fate, _ in judged]
    facts = {
        **wanted.values,
        "record id": " or ".join(map(str, wanted.ids)),
        "catalog": NOT_NEEDED
        if pipeline.by_position
        else ", ".join(f"{key.incarnation}/{key.batch_id}, partition {key.partition}" for key in known) or NOT_THERE,
    }
    tables = {"fates": shown} | ({"windows": windows} if windows else {})
    never = [MAY_BE] if may_be else [text.format(pipeline=pipeline.name, instance=instance) for text in NEVER_SEEN]
    told = (_told(shown) if shown or known else never) + (_removed(kept) if not shown and kept is not None else [])
    told = [ERASED] if known and not shown and erased else told
    told = [f"{lost}: no record can be read. onlyonce doctor says what to do"] if lost else told
    lines_said = "an invalid line" if len(may_be) == 1 else f"one of {len(may_be)} invalid lines"
    unseen = f"never seen, may be {lines_said}" if may_be else "not found" if lost else "never seen"
    title = f"{instance}: {_summary(shown, windows) or ('in the catalog only' if known else unseen)}"
    tables = tables if shown else {"may_be": may_be} if may_be else {}
    return Report(title, "trace", facts, tables, told), bool(shown or known)


def _removed(kept: int) -> list[str]:
    return [f"records from before {said(kept)} are removed from `events` (keep_events): it may be one of them"]


def _summary(shown: list[Row], windows: list[Row]) -> str:
    counts = {kind: sum(fate["fate"] == kind for fate in shown) for kind in ("kept", "expired", "invalid")}
    said = [f"{kind}{f' {count} times' if count > 1 else ''}" for kind, count in counts.items() if count]
    for fate in ("late", "rejected"):
        count = sum(row["fate"] == fate for row in windows)
        said += [f"{fate} for {count} of {len(windows)} windows"] if count else []
    return ", ".join(said)


def _told(shown: list[Row]) -> list[str]:
    if not shown:
        return [IN_CATALOG_ONLY]
    told = [
        f"batch {fate['batch']} is {fate['state']}: its rows count when it is committed"
        for fate in shown
        if fate["state"] == "begun"
    ]
    told += [
        f"the log does not know batch {fate['batch']}: onlyonce doctor" for fate in shown if fate["state"] == "unknown"
    ]
    kept = [fate for fate in shown if fate["fate"] == "kept"]
    if len(kept) == 1 and kept[0]["mode"] == "exactly_once":
        told.append("it is kept once; any other delivery of it was counted as a duplicate and left no row")
    if sum(fate["fate"] == "invalid" for fate in shown) >= MOST:
        told.append(f"only the first {MOST} invalid lines with these values are shown")
    return list(dict.fromkeys(told))


def rows_of(instance: str, wanted: Asked, columns: list[str] | None = None) -> list[Row]:
    """Return the rows of `events` with these ids, then the invalid lines with these values. `columns`: None means all.

    The command `trace` and the search of Airflow's page both find a record by this function.
    """
    found = _of_ids(instance, wanted.ids, columns)
    return found + [row for row in _of_lines(instance, wanted.values, columns) if row not in found]


def _of_ids(instance: str, ids: list[RecordId], columns: list[str] | None) -> list[Row]:
    where = pc.scalar(False)
    for one in ids:
        where |= (pc.field(OO_HIGH) == one.high) & (pc.field(OO_LOW) == one.low)
    where &= ~left_out.of_kind(CONTROL)
    return [row for part in left_out.parts(instance, where, columns) for row in part.to_pylist()]


def _of_lines(instance: str, values: dict[str, str], columns: list[str] | None) -> list[Row]:
    """Return the invalid lines with these values for the id columns, found as text, since most of these lines are not
    valid JSON."""
    fields = values.items()
    patterns = [rf'"{re.escape(column)}"\s*:\s*"?{re.escape(value)}(["\s,}}]|$)' for column, value in fields]
    return _matching(instance, patterns, columns)


def _holding(instance: str, pipeline: Pipeline, wanted: Asked) -> list[Row]:
    """Return the invalid lines that hold the values as whole words, in whatever format and under whatever names."""
    values = [] if pipeline.by_position else [value for value in wanted.values.values() if value]
    return _matching(instance, [rf"(^|\W){re.escape(value)}(\W|$)" for value in values], PLATFORM)


def _matching(instance: str, patterns: list[str], columns: list[str] | None) -> list[Row]:
    """Return the invalid lines that match all patterns, the first `MOST`; none if there is no pattern."""
    found: list[Row] = []
    for part in left_out.parts(instance, left_out.of_kind(INVALID), columns) if patterns else []:
        holds = pc.is_valid(part.column(OO_RAW))
        for pattern in patterns:
            holds = pc.and_(holds, pc.fill_null(pc.match_substring_regex(part.column(OO_RAW), pattern), False))
        found += part.filter(holds).slice(0, MOST - len(found)).to_pylist()
    return found


def _fate(traces: Traces, row: Row) -> tuple[Row, int | None]:
    """Return the fate of one row of `events` with its batch and unit, and the version of the commit that holds it."""
    batch = stored_names.batch(row[OO_INCARNATION], row[OO_BATCH])
    unit = stored_names.unit(row[OO_INCARNATION], row[OO_BATCH], units.EVENTS, row[OO_PARTITION])
    log = traces.judged(unit, row[OO_INCARNATION], row[OO_BATCH])
    said = {name: getattr(log, name, None) for name in ("unit_committed_at", "committed_at", "run_id", "mode")}
    fate = {
        "fate": row[OO_KIND], "batch": batch, "state": log.state if log else "unknown",
        "event_time": row[OO_EVENT_TIME], "ingestion_time": row[OO_INGESTION_TIME], "reason": row[OO_REASON],
        "place": row[OO_PLACE], "raw": _without_end(row[OO_RAW]), "unit": _unit(log, unit), **said,
    }  # fmt: skip
    return fate, log.delta_version if log else None


def _without_end(raw: str | None) -> str | None:
    """Return a line as people read it, without its line end."""
    return raw if raw is None else raw.removesuffix("\n").removesuffix("\r")


def _unit(log: Judged | None, unit: str) -> str | None:
    if log is None or log.unique_id is not None:
        return log.unique_id if log else None
    return f"{unit} (removed, it was kept long enough)" if log.units_removed is not None else None


def _windows(traces: Traces, pipeline: Pipeline, instance: str, row: Row, version: int | None) -> list[Row]:
    """Return the windows of each output that a kept record falls in, and what became of each."""
    found: list[Row] = []
    rejections_of = Rejections(traces.scope).of_record(instance, row[OO_HIGH] or 0, row[OO_LOW] or 0)
    for root in pipeline.roots():
        read = traces.read_by(instance, root.name, version)
        at = row[OO_EVENT_TIME]
        if isinstance(root.window, Chained):  # its window holds the upstream window, which may begin earlier
            at = to_time(root.window.assign(to_micros(at) or 0)[0][0])
        for output in (root, *pipeline.made_from(root)):
            there = traces.windows_at(instance, output.name, at)
            windows = _of_output(output.name, root, row, version, read, there)
            found += _rejected(root, windows, [one for one in rejections_of if one.output == root.name])
    return found


def _rejected(root: Output, windows: list[Row], rejected: list[Rejection]) -> list[Row]:
    """Return the windows of a record, with the function's reason where an output has rejected it.

    A rejected record is in no session.
    """
    if not rejected:
        return windows
    said = {(one.window_start, one.window_end): f"rejected: {one.reason}" for one in rejected}
    if isinstance(root.window, Session):
        reason = said[rejected[0].window_start, rejected[0].window_end]
        return [_shown(windows[0]["output"], "rejected", None, None, reason, None)]
    nowhere = {"rows": None, "generation": None, "made_by": None, "made_at": None}
    return [
        row | {"fate": "rejected", "state": said[at]} | nowhere
        if (at := (row["window_start"], row["window_end"])) in said
        else row
        for row in windows
    ]


def _of_output(
    name: str, root: Output, row: Row, version: int | None, read: Reading | None, there: list[SeenWindow]
) -> list[Row]:
    if root.window is None:
        return [_shown(name, "in time", None, None, "written" if read else "not read yet", None)]
    time = to_micros(row[OO_EVENT_TIME]) or 0
    frontier = Frontier(**{part: to_micros(value) for part, value in (row[OO_FRONTIER] or {}).items()})
    if isinstance(root.window, Session):
        late = is_late(frontier, root.window, micros(root.watermark_delay), time, time)
        # Only the function knows the key of the record's session: all sessions that hold the record's time are shown.
        made = [window for window in there if window.state == "closed"]
        if not made:
            return [_of_window(name, late, None, None, read, None, version)]
        return [_of_window(name, late, one.window_start, one.window_end, read, one, version) for one in made]
    known: dict[tuple[datetime | None, datetime | None], SeenWindow] = {
        (window.window_start, window.window_end): window for window in there
    }
    begins = (read.start_from or {}).get(FIRST_WINDOW) if read else None
    found = []
    for first, last in dict.fromkeys(root.window.assign(time)):
        late = is_late(frontier, root.window, micros(root.watermark_delay), time, last)
        late = late or (begins is not None and first < begins)
        start, end = to_time(first), to_time(last)
        found.append(_of_window(name, late, start, end, read, known.get((start, end)), version))
    return found


def _of_window(
    name: str,
    late: bool,
    start: datetime | None,
    end: datetime | None,
    read: Reading | None,
    window: SeenWindow | None,
    version: int | None,
) -> Row:
    """Return a window's row. `window` is the newest generation that readers see, if there is one."""
    by_backfill = window.events_version if window else None
    folded = by_backfill is not None and version is not None and by_backfill >= version
    final = window is not None and window.state == "closed"
    if late:
        state = "included by a backfill" if folded else "waits for a backfill"
    elif read is None and not folded:
        state = "not read yet"
    else:
        state = "final" if final else "open"
    return _shown(name, "late" if late else "in time", start, end, state, window if final else None)


def _shown(
    name: str, fate: str, start: datetime | None, end: datetime | None, state: str, made: SeenWindow | None
) -> Row:
    return {
        "output": name, "window_start": start, "window_end": end, "fate": fate, "state": state,
        "generation": made.generation if made else None, "rows": made.rows if made else None,
        "made_by": f"{made.incarnation}/{made.batch}" if made else None, "made_at": made.committed_at if made else None,
    }  # fmt: skip
