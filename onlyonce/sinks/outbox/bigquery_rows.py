"""The rows of the outbox as the Arrow batches that BigQuery's Storage Write API takes. Pure.

A row is a line of JSON, and Arrow's own reader makes columns of many lines at once, by the types of the table. A name
that the table lacks, or a value of another kind, is an error, never left out.

Who calls it: `bigquery_stream`. Errors: Refused for a type that does not travel, and for rows that the table can't
hold.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from onlyonce.model.errors import Refused
from onlyonce.model.sinks.delivery import Row

TYPES = {
    "STRING": pa.string(),
    "JSON": pa.string(),
    "GEOGRAPHY": pa.string(),
    "INT64": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOL": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATETIME": pa.timestamp("us"),
    "DATE": pa.date32(),
    "NUMERIC": pa.decimal128(38, 9),
    "BIGNUMERIC": pa.decimal256(76, 38),
}
REQUEST_BYTES = 5_000_000
"""A request may have 10 MB; an Arrow batch is about as large as its JSON."""


def schema_of(fields: Iterable[Any], table: str) -> pa.Schema:
    """The columns of a table as Arrow has them, by its schema in BigQuery. Raises Refused."""
    return pa.schema([pa.field(field.name, _type(field, field.name, table, inside=False)) for field in fields])


def _type(field: Any, path: str, table: str, *, inside: bool) -> pa.DataType:
    kind = field.type_.name
    if kind == "STRUCT":
        found: Any = pa.struct([(f.name, _type(f, f"{path}.{f.name}", table, inside=True)) for f in field.fields])
    else:
        found = TYPES.get(kind)
    if found is None or (kind == "DATE" and (inside or field.mode.name == "REPEATED")):
        raise Refused(
            f"column {path} of {table} is {kind}, which does not travel from JSON to a write stream",
            data="nothing was sent; the rows wait in the outbox",
            hint="make it a STRING of the table, or send by insert ids: BigQuery(…)",
        )
    return pa.list_(found) if field.mode.name == "REPEATED" else found


def requests(rows: Iterable[Row], schema: pa.Schema, unit: str) -> Iterator[pa.RecordBatch]:
    """The rows in their order, in batches of at most REQUEST_BYTES of JSON, or of one row. Raises Refused."""
    lines: list[str] = []
    size = 0
    for row in rows:
        length = len(row.payload.encode())
        if lines and size + length > REQUEST_BYTES:
            yield _batch(lines, schema, unit)
            lines, size = [], 0
        lines.append(row.payload)
        size += length
    if lines:
        yield _batch(lines, schema, unit)


def _batch(lines: list[str], schema: pa.Schema, unit: str) -> pa.RecordBatch:
    # Arrow's reader knows no dates: they are read as texts.
    read = pa.schema([pa.field(f.name, pa.string() if pa.types.is_date(f.type) else f.type) for f in schema])
    options = json.ParseOptions(explicit_schema=read, unexpected_field_behavior="error")
    text = "\n".join(lines).encode()
    try:
        table = json.read_json(io.BytesIO(text), json.ReadOptions(use_threads=False, block_size=len(text) + 1), options)
        columns = [
            pc.cast(table.column(f.name), f.type) if pa.types.is_date(f.type) else table.column(f.name) for f in schema
        ]
    except pa.ArrowInvalid as error:
        raise Refused(
            f"unit {unit}: the table can't hold its rows: {' '.join(str(error).split())}",
            data="nothing of this unit is in the table; it waits in the outbox, and all after it",
            hint="add the column to the table, or give it the type of the rows (NaN and bytes do not travel); "
            "then: onlyonce deliver",
        ) from error
    [batch] = pa.Table.from_arrays(columns, schema=schema).combine_chunks().to_batches()
    return batch
