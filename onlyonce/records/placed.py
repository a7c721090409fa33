"""Which windows the records of an Arrow batch are in, and whether those were closed when they came: whole columns at
once, without a JVM.

The model's rule says what is late (`onlyonce.model.frontier`). It is asked once for each frontier. All rows of a task
of receive carry the same one, so there are few.

Who calls it: `left_out`, which shows late records, and `onlyonce.outputs.windows.counting`, which counts all. Errors:
none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onlyonce.model.frontier import Frontier, closed_until
from onlyonce.model.outputs.chained import Chained
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_FRONTIER
from onlyonce.model.windows import Fixed, Joined, Session, Window, micros, reach

Times = NDArray[np.int64]

NOTHING_CLOSED = int(np.iinfo(np.int64).min)


def judged(part: pa.RecordBatch, window: Window, lateness: int) -> Iterator[tuple[Times, Times, NDArray[np.bool_]]]:
    """For each window that a record is in: (starts, ends) of all rows, and which are late; of a chain also by an output
    before that leaves it out."""
    closed = closed_by_row(part.column(OO_FRONTIER), window, lateness)
    known = closed != NOTHING_CLOSED
    if isinstance(window, Chained):
        for _, before, late in judged(part, window.upstream, micros(window.waits_before)):
            [(starts, ends)] = windows(window.own, before - 1)
            yield starts, ends, known & (ends <= closed) | (late & window.leaves_late_out)
        return
    times = whole_micros(part.column(OO_EVENT_TIME))
    for starts, ends in windows(window, times):
        compared = times - reach(window) if isinstance(window, Session | Joined) else ends
        yield starts, ends, known & (compared <= closed)


def closed_by_row(frontiers: pa.StructArray, window: Window, lateness: int) -> Times:
    """Up to where the output's windows were closed for each row; NOTHING_CLOSED while nothing was."""
    names = [field.name for field in frontiers.type]
    columns = np.column_stack([whole_micros(column) for column in frontiers.flatten()])
    # Rows with one frontier follow each other, so the rule is asked once for each run of them.
    begins = np.flatnonzero(np.r_[True, (columns[1:] != columns[:-1]).any(axis=1)][: len(columns)])
    distinct, which = np.unique(columns[begins], axis=0, return_inverse=True)
    closed = [_closed_until(dict(zip(names, values, strict=True)), window, lateness) for values in distinct.tolist()]
    return np.repeat(np.array(closed, dtype=np.int64)[which.reshape(-1)], np.diff(begins, append=len(columns)))


def windows(window: Window, times: Times) -> Iterator[tuple[Times, Times]]:
    """(starts, ends) of the first, second, … window of each row, latest first. The model's arithmetic, on arrays."""
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
    """(starts, ends) of days by a wall clock, which only the model knows: asked once for each of the days."""
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


def _closed_until(values: dict[str, int], window: Window, lateness: int) -> int:
    known = {name: None if value == NOTHING_CLOSED else value for name, value in values.items()}
    until = closed_until(Frontier(**known), window, lateness)
    return NOTHING_CLOSED if until is None else until


def whole_micros(column: pa.Array) -> Times:
    """Timestamps as whole microseconds; null becomes NOTHING_CLOSED."""
    whole = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    numbers: Times = pc.fill_null(whole, NOTHING_CLOSED).to_numpy(zero_copy_only=False)
    return numbers
