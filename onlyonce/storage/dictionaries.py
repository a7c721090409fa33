"""Which columns of a Parquet file are worth a dictionary. Who calls it: who writes data files by Arrow. No errors."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE = 4096
"""The first rows of a file, by which its columns are judged."""


def worth_it(rows: pa.Table) -> list[str]:
    """The columns in whose first rows a value is there twice, on the average. One of ids would be made for nothing."""
    return [name for name in rows.column_names if _repeats(rows.column(name).slice(0, SAMPLE))]


def _repeats(column: pa.ChunkedArray) -> bool:
    return not pa.types.is_nested(column.type) and 2 * pc.count_distinct(column, mode="all").as_py() <= len(column)
