"""How many records of a batch are in each window, in time and late: counted by the driver, from two columns of the batch's data files.

It costs a part of what a Spark job for it would: a million records take some 0.1 s of a core here. So of a large batch Spark's executors count
(`windowing.counted`), and of rows whose files are compacted, which only a look at the table finds.

Who calls it: `window_log`. Errors: OSError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from onlyonce.model.location import Location
from onlyonce.model.windows import Fixed, Session, Window, micros
from onlyonce.records import placed
from onlyonce.storage.stores import arrow

MOST = 10_000_000
"""So many records take the driver a second. Of more the executors count: the start of a job is little beside them."""
HOUR = Fixed(timedelta(hours=1))
"""Sessions merge, so a lone record has no window of its own yet: counted by the hour of its event."""
Row = dict[str, Any]
_BY = ["window_start", "window_end", "is_late"]


def counted(files: Sequence[Location], window: Window, lateness: timedelta) -> list[Row]:
    """As `windowing.counted`: window_start, window_end, in_time, late, in (record, window) pairs; of sessions also late_from and late_to. In microseconds."""
    each = [_of_part(part, window, micros(lateness)) for file in files for part in _parts(file)]
    if not each:
        return []
    totals = pa.concat_tables(each).group_by(_BY).aggregate([("pairs", "sum"), ("time_min", "min"), ("time_max", "max")])
    rows: dict[tuple[int, int], Row] = {}
    for found in totals.to_pylist():
        bounds = (found["window_start"], found["window_end"])
        none = {"in_time": 0, "late": 0, "late_from": None, "late_to": None}
        row = rows.setdefault(bounds, dict(zip(("window_start", "window_end"), bounds, strict=True)) | none)
        row["late" if found["is_late"] else "in_time"] = found["pairs_sum"]
        if found["is_late"] and isinstance(window, Session):
            row |= {"late_from": found["time_min_min"], "late_to": found["time_max_max"]}
    return list(rows.values())


def _parts(file: Location) -> Iterator[pa.RecordBatch]:
    with arrow.opened(file) as opened:
        yield from opened.iter_batches(1 << 17, columns=["oo_event_time", "oo_frontier"])


def _of_part(part: pa.RecordBatch, window: Window, lateness: int) -> pa.Table:
    times = placed.whole_micros(part.column("oo_event_time"))
    pairs = []
    for starts, ends, late in placed.judged(part, window, lateness):
        if isinstance(window, Session):
            [(starts, ends)] = placed.windows(HOUR, times)
        pairs.append(pa.table({"window_start": starts, "window_end": ends, "is_late": late, "time": times}))
    found = pa.concat_tables(pairs).group_by(_BY, use_threads=False)
    return found.aggregate([([], "count_all"), ("time", "min"), ("time", "max")]).rename_columns(
        [*_BY, "pairs", "time_min", "time_max"]
    )
