"""Find late, invalid, expired and rejected records, and decide in whole columns which are late. Without a JVM.

The model's rule decides what is late (`onlyonce.core.frontier`). It is evaluated once for each frontier. All rows of
one task of receive have the same frontier, so there are few.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onlyonce import settings
from onlyonce.api.pipeline import Files, Output, Pipeline, each_input
from onlyonce.api.sources import Source
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.removals import Rejections
from onlyonce.core import stored_names
from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.changes import starts_over
from onlyonce.core.frontier import Frontier, closed_until
from onlyonce.core.line_values import DELIMITERS, NOT_UTF8, Invalid, csv_cells
from onlyonce.core.stored_names import (
    EXPIRED,
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
    OO_PLACE,
    OO_RAW,
    OO_REASON,
    OO_UNKNOWN,
)
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Window, micros, reach
from onlyonce.database.connect import Database, Scope
from onlyonce.sources import file_bytes
from onlyonce.sources.record_id import from_hex
from onlyonce.tables import opening, table_files

Times = NDArray[np.int64]

NOTHING_CLOSED = int(np.iinfo(np.int64).min)


def judged_rows(
    part: pa.RecordBatch, window: Window, watermark_delay: int
) -> Iterator[tuple[Times, Times, NDArray[np.bool_]]]:
    """Yield (starts, ends) of all rows, and which are late, for each window that a record is in.

    In a chain a record is also late if an upstream output left it out."""
    closed = closed_by_row(part.column(OO_FRONTIER), window, watermark_delay)
    known = closed != NOTHING_CLOSED
    if isinstance(window, Chained):
        for _, before, late in judged_rows(part, window.upstream, micros(window.waits_before)):
            [(starts, ends)] = windows_of_rows(window.own, before - 1)
            yield starts, ends, known & (ends <= closed) | (late & window.leaves_late_out)
        return
    times = whole_micros(part.column(OO_EVENT_TIME))
    for starts, ends in windows_of_rows(window, times):
        compared = times - reach(window) if isinstance(window, Session | Joined) else ends
        yield starts, ends, known & (compared <= closed)


def closed_by_row(frontiers: pa.StructArray, window: Window, watermark_delay: int) -> Times:
    """Return up to where the output's windows were closed for each row; NOTHING_CLOSED if none was."""
    names = [field.name for field in frontiers.type]
    columns = np.column_stack([whole_micros(column) for column in frontiers.flatten()])
    # Rows with one frontier are consecutive, so the rule is evaluated once for each run of them.
    begins = np.flatnonzero(np.r_[True, (columns[1:] != columns[:-1]).any(axis=1)][: len(columns)])
    distinct, which = np.unique(columns[begins], axis=0, return_inverse=True)
    closed = [
        _closed_until(dict(zip(names, values, strict=True)), window, watermark_delay) for values in distinct.tolist()
    ]
    return np.repeat(np.array(closed, dtype=np.int64)[which.reshape(-1)], np.diff(begins, append=len(columns)))


def windows_of_rows(window: Window, times: Times) -> Iterator[tuple[Times, Times]]:
    """Yield (starts, ends) of the first, second, … window of each row, latest first: the model's rule on arrays."""
    if isinstance(window, Fixed) and not window.in_utc:
        yield _days(window, times)
        return
    last: Any = window.last_end(times)  # type: ignore[arg-type]
    if isinstance(window, Session):
        yield times, last
        return
    size = micros(window.size)
    step = size if isinstance(window, Fixed) else micros(window.slide)
    for back in range(window.per_record):
        yield last - back * step - size, last - back * step


def _days(window: Fixed, times: Times) -> tuple[Times, Times]:
    """Return (starts, ends) of days by a wall clock. Only the model computes them: one call for each day."""
    starts, ends = np.empty_like(times), np.empty_like(times)
    order = np.argsort(times)
    ordered = times[order]
    at = 0
    while at < len(ordered):
        start, end = window.assign(int(ordered[at]))[0]
        upto = int(np.searchsorted(ordered, end))
        starts[order[at:upto]], ends[order[at:upto]] = start, end
        at = upto
    return starts, ends


def _closed_until(values: dict[str, int], window: Window, watermark_delay: int) -> int:
    known = {name: None if value == NOTHING_CLOSED else value for name, value in values.items()}
    until = closed_until(Frontier(**known), window, watermark_delay)
    return NOTHING_CLOSED if until is None else until


def whole_micros(column: pa.Array) -> Times:
    """Return timestamps as whole microseconds; null becomes NOTHING_CLOSED."""
    whole = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    numbers: Times = pc.fill_null(whole, NOTHING_CLOSED).to_numpy(zero_copy_only=False)
    return numbers


# The rows of late, invalid and expired records in the Delta table `events`.
#
# A pipeline that never ran has no rows. Rows are shown as soon as they are in `events`, even before their batch is
# committed.


Row = dict[str, Any]

_ORIGIN = {OO_INCARNATION: "incarnation", OO_BATCH: "batch"}


def late(pipeline: Pipeline, instance: str, limit: int, only: str | None = None) -> tuple[int, list[Row]]:
    """Return how many (record, window) pairs are late, for all outputs or only one, and the first `limit` of them."""
    rows: list[Row] = []
    total = 0
    windowed = [o for o in pipeline.roots() if o.window is not None and only in (None, o.name)]
    wanted = [*pipeline.record_id, OO_EVENT_TIME, OO_FRONTIER, OO_INCARNATION, OO_BATCH]
    for part in parts(instance, of_kind(KEPT), wanted):
        for output in windowed:
            for start, end, positions in late_pairs(part, output):
                total += len(positions)
                for at in positions[: limit - len(rows)]:
                    rows.append(_late_row(pipeline, output, part, int(at), start, end))
    return total, rows


def late_pairs(part: pa.RecordBatch, output: Output) -> Iterator[tuple[Times, Times, NDArray[np.int64]]]:
    """Yield (starts, ends) of all rows, and the positions of the late ones, for each window that a record is in.

    `part` has `oo_event_time` and `oo_frontier`. A session compares the event time itself.
    """
    assert output.window is not None
    for starts, ends, late in judged_rows(part, output.window, micros(output.watermark_delay)):
        yield starts, ends, np.flatnonzero(late)


def invalid(pipeline: Pipeline, instance: str, limit: int) -> tuple[int, list[Row]]:
    """Return how many invalid records there are, and the first `limit` with reason, place and raw content."""
    del pipeline  # an invalid record has none of the declared columns
    wanted = {OO_REASON: "reason", OO_PLACE: "place", OO_RAW: "raw", OO_INGESTION_TIME: "ingestion_time", **_ORIGIN}
    return _rows(instance, INVALID, wanted, limit)


_AT_A_BYTE = re.compile(r"(?P<file>.*), byte (?P<at>\d+)", re.DOTALL)
_MOST_COUNTED = 256 * 2**20  # bytes of a file, less than a second


def with_lines(rows: list[Row]) -> list[Row]:
    """Return invalid records with the number of the line on which each begins."""
    lines = lines_of([row["place"] or "" for row in rows])
    return [_with_line(row, line) for row, line in zip(rows, lines, strict=True)]


def lines_of(places: list[str]) -> list[int | None]:
    """Return the number of the line with which each place begins, as an editor counts; None if not known.

    It is known for a record of a local file that is still there and not compressed, in the first 256 MiB.
    """
    found = [_AT_A_BYTE.fullmatch(place) for place in places]
    wanted: dict[str, set[int]] = {}
    for place in filter(None, found):
        wanted.setdefault(place["file"], set()).add(int(place["at"]))
    numbers = {
        file: _line_numbers(file, sorted(at for at in ats if at < _MOST_COUNTED)) for file, ats in wanted.items()
    }
    return [numbers[place["file"]].get(int(place["at"])) if place else None for place in found]


def _with_line(row: Row, line: int | None) -> Row:
    items = list(row.items())
    behind = list(row).index("place") + 1
    return dict([*items[:behind], ("line", line), *items[behind:]])


def _line_numbers(file: str, ats: list[int]) -> dict[int, int]:
    """Return the line number of each of these bytes, in ascending order, with which a line of the file begins."""
    numbers: dict[int, int] = {}
    line, before, last = 1, 0, b"\n"
    try:
        with os.fdopen(file_bytes.opened_file(file), "rb") as content:
            for at in ats:
                while at > before and (piece := content.read(min(at - before, 2**20))):
                    line += piece.count(b"\n")
                    before, last = before + len(piece), piece[-1:]
                if at == before and last == b"\n":
                    numbers[at] = line
    except OSError:  # it was moved or removed since
        return {}
    return numbers


def of_other_format(pipeline: Pipeline, rows: list[Row]) -> str:
    """Return how to declare lines that are no JSON and look like CSV; nothing for other invalid records."""
    if pipeline.sources:
        return ""
    lines = [row["raw"] or "" for row in rows]
    has_no_json = pipeline.source.format == "json" and bool(lines) and not any("{" in line for line in lines)
    found = next((by for by in (",", ";", "\t", "|") if all(by in line for line in lines)), None)
    if not has_no_json or found is None:
        return ""
    delimiter = "" if found == "," else f", delimiter={found!r}"
    return f"the lines look like CSV: format='csv'{delimiter}, and header=True if the first line has the columns' names"


def header_in(pipeline: Pipeline, lines: Iterable[str | None]) -> str:
    """Return that one of these invalid lines looks like a header, and how to declare it; empty if none does.

    It is a line of CSV in which more than half of the values are names of declared columns, of a source without a
    header. No record looks like that by chance.
    """
    views = _csv_without_header(pipeline)
    for line in lines if views else ():
        for view in views:
            if line and _names_columns(view, line):
                return f"the line {line[:MOST_SHOWN]!r} looks like the header of its file: {_as_header(view.source)}"
    return ""


def other_encoding(pipeline: Pipeline, reasons: Iterable[str]) -> str:
    """Return how to declare the encoding of files that are not UTF-8; empty if no reason says that a line is not."""
    takes = any(isinstance(one.source, Files) and one.source.format == "csv" for one in each_input(pipeline))
    if not takes or not any(reason.startswith(NOT_UTF8) for reason in reasons):
        return ""
    return (
        "programs of Windows such as Excel often write windows-1252: Files(encoding='windows-1252') reads it. "
        "`onlyonce init --from FILE` names the encoding of a file"
    )


def other_delimiter(pipeline: Pipeline, lines: Iterable[str | None]) -> str:
    """Return that one of these invalid lines has the declared columns by another delimiter; empty if none has."""
    views = [one for one in each_input(pipeline) if one.source.format == "csv" and len(one.columns()) > 1]
    for line in filter(None, lines if views else ()):
        for view in views:
            own, wanted = view.source.delimiter, len(view.columns())
            fits = [by for by in (own, *DELIMITERS) if _count_cells(line, by) == wanted]
            if fits and own not in fits:
                return f"the line {line[:MOST_SHOWN]!r} has {wanted} values by another delimiter: delimiter={fits[0]!r}"
    return ""


def array_of_records(pipeline: Pipeline, lines: Iterable[str | None]) -> str:
    """Return that one of these invalid lines begins a JSON array, and what makes lines of it; empty if none does."""
    read = any(one.source.format == "json" and one.source.has_inbox for one in each_input(pipeline))
    if any((line or "").lstrip().startswith("[") for line in (lines if read else ())):
        return (
            "it is a JSON array, and each line is read as one object: jq -c '.[]' OLD > NEW makes a line of each; put "
            "it into the inbox under a new name"
        )
    return ""


def _count_cells(line: str, delimiter: str) -> int:
    with suppress(Invalid):
        return len(csv_cells(line.rstrip("\r\n"), delimiter))
    return 0


def other_header(pipeline: Pipeline, reasons: Iterable[str]) -> str:
    """Return how to declare files whose first line is no header, or one by another delimiter; empty if no reason says
    that a file's first line has none of the declared names.
    """
    for reason in reasons:
        if found := _FIRST_LINE.match(reason):
            first = found["first"]
            for by in DELIMITERS:
                if any(_names_columns(view, first, by) for view in each_input(pipeline)):
                    return f"it has the declared names by another delimiter: delimiter={by!r}"
            return "if the files have no header, header=False takes the first line as a record"
    return ""


def _csv_without_header(pipeline: Pipeline) -> list[Pipeline]:
    return [one for one in each_input(pipeline) if one.source.format == "csv" and not one.source.header]


MOST_SHOWN = 80
"""How many characters of a line a hint shows."""


_FIRST_LINE = re.compile(r"the first line of the file is (['\"])(?P<first>.*)\1, and not the header .*: no column has")
"""The reason of a file whose header has none of the declared names (`sources.listing`)."""


def _names_columns(pipeline: Pipeline, line: str, delimiter: str | None = None) -> bool:
    try:
        cells = csv_cells(line.strip(), delimiter or pipeline.source.delimiter)
    except Invalid:
        return False
    names = {name.strip().lower() for name in pipeline.named().values()}
    known = sum((cell or "").strip().lower() in names for cell in cells)
    return 2 * known > len(cells)


def _as_header(source: Source) -> str:
    if isinstance(source, Files):
        return "header=True takes the first line of each file as one"
    return (
        f"{type(source).__name__} reads no headers, so let its files begin with a record; or read whole files by "
        "Files(format='csv', header=True)"
    )


def read_otherwise(pipeline: Pipeline, instance: str, batches: Collection[tuple[str, int]]) -> str:
    """Return `header_in`, `other_delimiter` or `array_of_records` of the invalid records of some batches of receive,
    which are (incarnation, batch id).
    """
    if batches:
        where = of_kind(INVALID) & _in_batches(batches)
        for part in parts(instance, where, [OO_INCARNATION, OO_BATCH, OO_RAW]):
            if found := of_lines(pipeline, part[OO_RAW].to_pylist()):
                return found
    return ""


def of_lines(pipeline: Pipeline, lines: list[str | None]) -> str:
    """Return how the source would have to be declared or written for some of these invalid lines; empty: not known."""
    return header_in(pipeline, lines) or other_delimiter(pipeline, lines) or array_of_records(pipeline, lines)


def after_invalid(pipeline: Pipeline, instance: str, *, invalid_lost: int | None = None) -> str:
    """Return what to do with the invalid records of an instance.

    `invalid_lost`: how many are removed if its pipeline starts over; None if it can't, since it has kept something.
    """
    source = pipeline.source
    as_new = "send them again as new input" + (
        ", in a file with a new name" if source.has_inbox and not source.is_pulled else ""
    )
    if invalid_lost is not None:
        return (
            f"next: if the declaration is wrong, correct it. {starts_over(pipeline.name, invalid_lost)}. If the "
            f"records are wrong, correct them where they come from, and {as_new}"
        )
    refused = pipeline.sources or source.is_topic or source.format != "json" or instance != pipeline.name
    if refused:  # by `reprocess`
        return (
            f"next: correct the declaration, or the records where they come from. Then {as_new}: an invalid record has "
            "taken no record id"
        )
    return (
        f"next: if the declaration is wrong, correct it (`onlyonce plan {instance}` says if it can continue). "
        f"Then `onlyonce reprocess {instance} --invalid` says which of these records it would take in again, and with "
        f"--yes it does. If the records are wrong, correct them where they come from, and {as_new}"
    )


def common_reason(instance: str, batches: Collection[tuple[str, int]]) -> tuple[str, int] | None:
    """Return the most frequent reason in some batches of receive, by an example, and how many records have it.

    Reasons that differ only in their values count as one. Return None if no record of the batches is invalid.
    """
    if not batches:
        return None
    found = [
        _by_kind(part[OO_REASON], part[OO_REASON], None)
        for part in parts(instance, of_kind(INVALID) & _in_batches(batches), [OO_INCARNATION, OO_BATCH, OO_REASON])
    ]
    if not found:
        return None
    kinds = pa.concat_tables(found)
    sums = _by_kind(kinds["kind"], kinds["example"], kinds["count"])
    [first] = sums.sort_by([("count", "descending"), ("kind", "ascending")]).slice(0, 1).to_pylist()
    return first["example"], first["count"]


MOST_FILES = 20
"""How many files of kept records are searched for columns without a value."""
MOST_RECORDS = 100
"""How many records with fields that are not declared are read for these fields' names."""


def without_values(pipeline: Pipeline, instance: str, batches: Collection[tuple[str, int]]) -> tuple[list[str], int]:
    """Return the declared columns that are null in each kept record of the first files of some batches, and how many
    records these files have.

    A column's values are read only if the file does not say how many are null.
    """
    path, rows = settings.data_location(instance) / stored_names.EVENTS_FOLDER, 0
    empty = set(pipeline.columns())
    if not batches or not opening.any_in(path):
        return [], 0
    files = table_files.dataset_of_events(path).get_fragments(of_kind(KEPT) & _in_batches(batches))
    for file in itertools.islice(files, MOST_FILES):
        rows += file.metadata.num_rows
        empty -= _with_values(file.metadata)
        there = file.to_table(columns=sorted(empty))
        empty -= {name for name in there.column_names if there[name].null_count < len(there)}
        if not empty:
            break
    return ([name for name in pipeline.columns() if name in empty], rows) if rows else ([], 0)


def _with_values(file: Any) -> set[str]:
    groups = (file.row_group(number) for number in range(file.num_row_groups))
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    said = [(one.path_in_schema, one.statistics, one.num_values) for one in columns]
    return {name for name, known, values in said if known and known.has_null_count and known.null_count < values}


def fields_not_declared(pipeline: Pipeline, instance: str, batches: Collection[tuple[str, int]]) -> list[str]:
    """Return the fields that no column takes, of some kept records of some batches."""
    where = of_kind(KEPT) & _in_batches(batches) & pc.field(OO_UNKNOWN).is_valid()
    lines: list[str] = []
    for part in parts(instance, where, [OO_UNKNOWN]) if batches else ():
        lines += part[OO_UNKNOWN].slice(0, MOST_RECORDS - len(lines)).to_pylist()
        if len(lines) == MOST_RECORDS:
            break
    fields: set[str] = set()
    for line in lines:
        with suppress(ValueError, TypeError):  # a form of JSON that Python does not read
            fields |= json.loads(line).keys() if line.lstrip().startswith("{") else set()
    return sorted(fields - {*pipeline.columns(), *pipeline.aliases.values()})


def _in_batches(batches: Collection[tuple[str, int]]) -> pc.Expression:
    """Return the condition of rows of some batches, which are (incarnation, batch id)."""
    return functools.reduce(
        operator.or_,
        (
            (pc.field(OO_INCARNATION) == name)
            & pc.field(OO_BATCH).isin(pa.array([batch for of, batch in batches if of == name], pa.int64()))
            for name in sorted({of for of, _ in batches})
        ),
    )


def _by_kind(reasons: pa.Array, examples: pa.Array, counts: pa.Array | None) -> pa.Table:
    """Return kind, example and count of reasons: a kind is what precedes the first colon and blank."""
    kinds = pc.list_element(pc.split_pattern(reasons, ": ", max_splits=1), 0)
    counted = pa.repeat(1, len(reasons)) if counts is None else counts
    table = pa.table({"kind": kinds, "example": examples, "count": counted})
    found = table.group_by("kind").aggregate([("example", "min"), ("count", "sum")])
    return found.rename_columns({"example_min": "example", "count_sum": "count"})


def expired(pipeline: Pipeline, instance: str, limit: int) -> tuple[int, list[Row]]:
    """Return how many records were older than the dedup horizon, and the first `limit`."""
    ids = {column: column for column in pipeline.record_id}
    wanted = {OO_REASON: "reason", **ids, OO_EVENT_TIME: "event_time", OO_RAW: "raw", **_ORIGIN}
    return _rows(instance, EXPIRED, wanted, limit)


def _rows(instance: str, kind: str, wanted: dict[str, str], limit: int) -> tuple[int, list[Row]]:
    rows: list[Row] = []
    total = 0
    for part in parts(instance, of_kind(kind), list(wanted)):
        total += part.num_rows
        few = part.slice(0, limit - len(rows)).to_pylist()
        rows += [{shown: row[column] for column, shown in wanted.items()} for row in few]
    return total, rows


def _late_row(pipeline: Pipeline, output: Output, part: pa.RecordBatch, at: int, start: Any, end: Any) -> Row:
    """Return the output, its window (none for a session, which has no end yet), and the record's columns."""
    record = part.slice(at, 1).to_pylist()[0]
    session = isinstance(output.window, Session)
    frontier = {name: to_micros(value) for name, value in record[OO_FRONTIER].items()}
    assert output.window is not None
    closed = closed_until(Frontier(**frontier), output.window, micros(output.watermark_delay))
    return {
        "output": output.name,
        "window_start": None if session else to_time(int(start[at])),
        "window_end": None if session else to_time(int(end[at])),
        "closed_until": to_time(closed),
        "event_time": record[OO_EVENT_TIME],
        **{column: record[column] for column in pipeline.record_id},
        **{shown: record[column] for column, shown in _ORIGIN.items()},
    }


def of_kind(kind: str) -> pc.Expression:
    """Return the expression that selects the rows of a kind in `events`."""
    return pc.field(OO_KIND) == kind


def parts(instance: str, where: pc.Expression, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `events` that an expression selects, in bounded pieces; none if the pipeline never ran.

    `columns`: None means all.
    """
    path = settings.data_location(instance) / stored_names.EVENTS_FOLDER
    if not opening.any_in(path):
        return
    rows = table_files.dataset_of_events(path)
    for part in rows.to_batches(columns=columns and list(dict.fromkeys(columns)), filter=where):
        if part.num_rows:
            yield part


def lost_events(scope: Scope, instance: str) -> str | None:
    """Return that the table `events` is gone, and how many rows were written to it; None if it is there or has none."""
    events = settings.data_location(instance) / stored_names.EVENTS_FOLDER
    if opening.any_in(events):
        return None
    batches = [row for row in Views(scope).rows("received", instance=instance) if row["state"] == "committed"]
    rows = sum(row[fate] or 0 for row in batches for fate in (KEPT, INVALID, EXPIRED))
    return f"the log says that {rows} rows were written to `events`, and there is no table {events}" if rows else None


# The records that outputs have rejected: reason and window from the log, values from the table `events`. A record that
# was removed from `events` meanwhile has no values.


ID = (OO_HIGH, OO_LOW)


def rejected_rows(
    database: Database, pipeline: Pipeline, instance: str, limit: int, output: str | None = None
) -> tuple[int, list[Row]]:
    """Return how many (record, window) pairs are rejected, and `limit` of them with the declared columns.

    They come from all outputs or only one."""
    total, found = Rejections(database).some(instance, output, limit)
    values = _values(pipeline, instance, found)
    none = dict.fromkeys(pipeline.columns())
    return total, [values.get(row["record_id"], none) | _told(row) for row in found]


def _told(row: Row) -> Row:
    """Return the output, the reason and the window first, then the record's batch."""
    told = {name: row[name] for name in ("output", "reason", "window_start", "window_end", "event_time", "record_id")}
    return told | {
        "batch": f"{row['incarnation']}/{row['batch']}",
        "received": f"{row['received_as']}/{row['received_in']}",
    }


def _values(pipeline: Pipeline, instance: str, found: list[Row]) -> dict[str, Row]:
    """Return the declared columns of these records, by record id. Only files of their batches are opened."""
    if not found:
        return {}
    ids = [from_hex(row["record_id"]) for row in found]
    batches = pa.array({row["received_in"] for row in found}, pa.int64())
    where = (
        of_kind(KEPT)
        & pc.field(OO_BATCH).isin(batches)
        & pc.field(OO_HIGH).isin(pa.array({one.high for one in ids}, pa.int64()))
    )
    wanted = {(one.high, one.low): row["record_id"] for one, row in zip(ids, found, strict=True)}
    values: dict[str, Row] = {}
    for part in parts(instance, where, [*ID, *pipeline.columns()]):
        for row in part.to_pylist():
            if name := wanted.get((row[OO_HIGH], row[OO_LOW] or 0)):
                values[name] = {column: row[column] for column in pipeline.columns()}
    return values
