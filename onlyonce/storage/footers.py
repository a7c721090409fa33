"""Which columns of a Parquet file get statistics in its footer: all but a float column that may have a NaN.

Arrow leaves NaN out of the least and the largest value of a column. Spark, DuckDB and DataFusion order NaN after every
number, so `amount > 100` is true for it, and they would skip a row group whose largest value is below 100. Delta's log
repeats the footer (`statistics`), so the rule holds there as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from pyarrow import parquet


def form(schema: pa.Schema, rows: pa.Table | None = None) -> dict[str, Any]:
    """Return the option of a ParquetWriter that leaves out the statistics of columns with a NaN.

    `rows`: all rows of the file; without them no float column has statistics, since a NaN may come later."""
    columns = [rows.column(at).chunks for at in range(len(schema))] if rows is not None else [None] * len(schema)
    uncertain = [one for field, chunks in zip(schema, columns, strict=True) for one in _leaves(field.type, chunks)]
    if not any(uncertain):
        return {}
    paths = _paths(schema)
    without = {path for path, is_uncertain in zip(paths, uncertain, strict=True) if is_uncertain}
    return {"write_statistics": [path for path in paths if path not in without]}


def of_delta_rs(table: DeltaTable) -> WriterProperties:
    """Return the options by which delta-rs's own writer rewrites files of a table: it leaves NaN out as Arrow does, and
    does not say whether there is one."""
    none, kept = ColumnProperties(statistics_enabled="NONE"), ColumnProperties(statistics_enabled="PAGE")
    columns = [
        (field.name, any(_leaves(field.type, None)), pa.types.is_nested(field.type))
        for field in pa.schema(table.schema().to_arrow())
    ]
    if any(uncertain and is_nested for _, uncertain, is_nested in columns):
        # delta-rs finds no field within a column by its name.
        named = {name: kept for name, uncertain, is_nested in columns if not uncertain and not is_nested}
        return WriterProperties(compression="ZSTD", default_column_properties=none, column_properties=named)
    return WriterProperties(
        compression="ZSTD", column_properties={name: none for name, uncertain, _ in columns if uncertain}
    )


def _leaves(kind: pa.DataType, chunks: Sequence[pa.Array] | None) -> Iterator[bool]:
    """Yield whether each leaf of a column may have a NaN, in the order of the file's columns."""
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _leaves(kind.field(at).type, None if chunks is None else [chunk.field(at) for chunk in chunks])
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_type, None if chunks is None else [chunk.keys for chunk in chunks])
        yield from _leaves(kind.item_type, None if chunks is None else [chunk.items for chunk in chunks])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(kind.value_type, None if chunks is None else [chunk.flatten() for chunk in chunks])
    else:
        yield pa.types.is_floating(kind) and (
            chunks is None or any(pc.any(pc.is_nan(chunk)).as_py() for chunk in chunks)
        )


def _paths(schema: pa.Schema) -> list[str]:
    """Return the columns' paths as the footer writes them, from an empty file in memory."""
    file = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), file)
    columns = parquet.read_metadata(pa.BufferReader(file.getvalue())).schema
    return [columns.column(at).path for at in range(len(columns))]
