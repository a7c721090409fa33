"""Control rows are folded: of many those stay that tell as much as all. Pure, in Arrow.

An output closes windows by the largest of what its control rows say, and no part of a frontier ever moves back
(`onlyonce.model.frontier`). So one row for each part is enough, and most of the time one row has all of them. Who calls
it: `compaction`, of commits that nobody reads one by one any more. Errors: none.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import compute as pc

from onlyonce.model.stored_names import OO_FRONTIER

PARTS = ("tide", "ended", "silent_tide", "silent_clock")


def folded(rows: pa.Table) -> pa.Table:
    """For each part of the frontier the last row that has its largest value; of rows that say nothing, one."""
    frontier = rows.column(OO_FRONTIER).combine_chunks()
    by_part = pa.table({part: pc.struct_field(frontier, part) for part in PARTS})
    by_part = by_part.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    latest = by_part.sort_by([(part, "descending") for part in PARTS])
    wanted = {latest["row"][0].as_py()} if rows.num_rows else set()
    for part in PARTS:
        largest = pc.max(latest[part])
        if largest.is_valid:
            wanted.add(latest["row"][pc.index(latest[part], largest).as_py()].as_py())
    return rows.take(pa.array(sorted(wanted), pa.int64()))
