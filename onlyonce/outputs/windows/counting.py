"""How many records of a batch are in each window, in time and late: counted by the driver, from two columns of the
batch's data files.

It costs a part of what a Spark job for it would: a million records take some 0.1 s of a core here. So of a large batch
Spark's executors count (`windowing.counted`), and of rows whose files are compacted, which only a look at the table
finds.

Who calls it: `window_log`. Errors: OSError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa

from onlyonce.commitlog.batches import COUNTED
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_FRONTIER
from onlyonce.model.windows import Fixed, Session, Window, micros
from onlyonce.records import placed
from onlyonce.storage.stores import arrow

MOST = 10_000_000
"""So many records take the driver a second. Of more the executors count: the start of a job is little beside them."""
HOUR = Fixed(timedelta(hours=1))
"""Sessions merge, so a lone record has no window of its own yet: counted by the hour of its event."""
ADDED = {"in_time": "sum", "late": "sum", "rejected": "sum", "late_from": "min", "late_to": "max"}


def counted(files: Sequence[Location], window: Window, lateness: timedelta) -> pa.Table:
    """As `windowing.counted`: in time and late by window (`COUNTED`), in (record, window) pairs; of sessions also
    late_from and late_to."""
    each = [_of_part(part, window, micros(lateness)) for file in files for part in _parts(file)]
    return by_window(pa.concat_tables([COUNTED.empty_table(), *each]))


def by_window(counts: pa.Table) -> pa.Table:
    """Counts of the same window added up."""
    totals = counts.group_by(["window_start", "window_end"], use_threads=False).aggregate(list(ADDED.items()))
    return totals.rename_columns({f"{name}_{how}": name for name, how in ADDED.items()}).select(COUNTED.names)


def _parts(file: Location) -> Iterator[pa.RecordBatch]:
    with arrow.opened(file) as opened:
        yield from opened.iter_batches(1 << 17, columns=[OO_EVENT_TIME, OO_FRONTIER])


def _of_part(part: pa.RecordBatch, window: Window, lateness: int) -> pa.Table:
    times = placed.whole_micros(part.column(OO_EVENT_TIME))
    pairs = []
    for starts, ends, late in placed.judged(part, window, lateness):
        if isinstance(window, Session):
            [(starts, ends)] = placed.windows(HOUR, times)
        met = pa.array(times, mask=~(late & isinstance(window, Session)))
        counts = [starts, ends, ~late, late, np.zeros_like(late), met, met]
        pairs.append(pa.table(counts, COUNTED.names).cast(COUNTED))
    return by_window(pa.concat_tables(pairs))
