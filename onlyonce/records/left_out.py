"""The rows of late, invalid and remnant records, read from the Delta table `events` without a JVM.

`placed` says which records are late.

Who calls it: `onlyonce.cli.look`, `onlyonce.records.trace`, and the page in Airflow's UI. Errors: none of its own; a
pipeline that never ran has no rows. Not promised: that only committed batches are shown. Rows are shown as soon as they
are in `events`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onlyonce import settings
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model import stored_names
from onlyonce.model.batch import to_micros, to_time
from onlyonce.model.frontier import Frontier, closed_until
from onlyonce.model.stored_names import (
    INVALID,
    KEPT,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_FRONTIER,
    OO_KIND,
    OO_LINEAGE,
    OO_PLACE,
    OO_RAW,
    OO_REASON,
    OO_SYSTEM_TIME,
    REMNANT,
)
from onlyonce.model.windows import Session, micros
from onlyonce.records import placed
from onlyonce.records.placed import Times
from onlyonce.storage import event_rows, log_entries

Row = dict[str, Any]

_ORIGIN = {OO_LINEAGE: "lineage", OO_BATCH: "batch"}


def late(pipeline: Pipeline, instance: str, limit: int, only: str | None = None) -> tuple[int, list[Row]]:
    """How many (record, window) pairs met a closed window, of all outputs or only one, and the first `limit` of
    them."""
    rows: list[Row] = []
    total = 0
    windowed = [o for o in pipeline.roots() if o.window is not None and only in (None, o.name)]
    wanted = [*pipeline.record_id, OO_EVENT_TIME, OO_FRONTIER, OO_LINEAGE, OO_BATCH]
    for part in parts(instance, of_kind(KEPT), wanted):
        for output in windowed:
            for start, end, positions in late_pairs(part, output):
                total += len(positions)
                for at in positions[: limit - len(rows)]:
                    rows.append(_late_row(pipeline, output, part, int(at), start, end))
    return total, rows


def late_pairs(part: pa.RecordBatch, output: Output) -> Iterator[tuple[Times, Times, NDArray[np.int64]]]:
    """For each window that a record is in: (starts, ends) of all rows, and the positions of the late ones.

    `part` has `oo_event_time` and `oo_frontier`. A session compares the event time itself.
    """
    assert output.window is not None
    for starts, ends, late in placed.judged(part, output.window, micros(output.lateness)):
        yield starts, ends, np.flatnonzero(late)


def invalid(pipeline: Pipeline, instance: str, limit: int) -> tuple[int, list[Row]]:
    """How many invalid records there are, and the first `limit` with reason, place and raw content."""
    del pipeline  # an invalid record has none of the declared columns
    wanted = {OO_REASON: "reason", OO_PLACE: "place", OO_RAW: "raw", OO_SYSTEM_TIME: "system_time", **_ORIGIN}
    return _rows(instance, INVALID, wanted, limit)


def remnant(pipeline: Pipeline, instance: str, limit: int) -> tuple[int, list[Row]]:
    """How many records came from before the horizon, and the first `limit`."""
    ids = {column: column for column in pipeline.record_id}
    wanted = {OO_REASON: "reason", **ids, OO_EVENT_TIME: "event_time", OO_RAW: "raw", **_ORIGIN}
    return _rows(instance, REMNANT, wanted, limit)


def _rows(instance: str, kind: str, wanted: dict[str, str], limit: int) -> tuple[int, list[Row]]:
    rows: list[Row] = []
    total = 0
    for part in parts(instance, of_kind(kind), list(wanted)):
        total += part.num_rows
        few = part.slice(0, limit - len(rows)).to_pylist()
        rows += [{shown: row[column] for column, shown in wanted.items()} for row in few]
    return total, rows


def _late_row(pipeline: Pipeline, output: Output, part: pa.RecordBatch, at: int, start: Any, end: Any) -> Row:
    """The output first, then its window (none for a session, which has no end yet), then whose record it is."""
    record = part.slice(at, 1).to_pylist()[0]
    session = isinstance(output.window, Session)
    frontier = {name: to_micros(value) for name, value in record[OO_FRONTIER].items()}
    assert output.window is not None
    closed = closed_until(Frontier(**frontier), output.window, micros(output.lateness))
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
    """Which rows of `events` are of a kind."""
    return pc.field(OO_KIND) == kind


def parts(instance: str, where: pc.Expression, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of `events` that an expression chooses, a bounded piece at a time; nothing when the pipeline never
    ran."""
    path = settings.data_location(instance) / stored_names.EVENTS_FOLDER
    if not log_entries.any_in(path):
        return
    rows = event_rows.dataset(path)
    for part in rows.to_batches(columns=list(dict.fromkeys(columns)), filter=where):
        if part.num_rows:
            yield part
