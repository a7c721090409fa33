"""Writes rows as the bytes of one file.

A format is a function of (binary file, schema, record batches), called once for each file.

Without batches each format writes a valid empty file. JSON lines and text are given one column of finished lines, which
Spark has made.

Who calls it: `onlyonce.sinks.files.files_unit`. Errors: Refused if a writer is missing, or if a text has a line break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from onlyonce.declare.resolve import named
from onlyonce.model.errors import Refused
from onlyonce.sinks import csv_rows
from onlyonce.storage import footers

Batches = Iterator[pa.RecordBatch]
Format = Callable[[BinaryIO, pa.Schema, Batches], None]
LINES = ("jsonl", "text")
"""The formats that get one column of lines."""


def of(name: str) -> Format:
    """The format of that name, or a user's own ('module:function')."""
    if ":" not in name:
        return FORMATS[name]
    found: Format = named(
        name, f"FileSink: the writer {name!r}",
        hint="it is 'module:function', the module importable from the folder of the declarations or installed",
    )  # fmt: skip
    return found


def _lines(file: BinaryIO, schema: pa.Schema, batches: Batches) -> None:
    for batch in batches:
        lines = batch.column(0)
        if pc.any(pc.match_substring_regex(lines, "[\r\n]")).as_py():
            raise Refused(
                "FileSink: a row of text holds a line break, so it would be read as two",
                data="nothing of this unit was written",
                hint="replace line breaks in the transform, or write format='jsonl'",
            )
        # One join in Arrow for all lines of a batch; null is an empty line.
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), pc.fill_null(lines, ""))
        file.write(pc.binary_join(whole, "\n")[0].as_buffer())
        file.write(b"\n")


def _csv(file: BinaryIO, schema: pa.Schema, batches: Batches) -> None:
    with csv_rows.writer(file, schema, header=True) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _parquet(file: BinaryIO, schema: pa.Schema, batches: Batches) -> None:
    with parquet.ParquetWriter(file, schema, **footers.form(schema)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _avro(file: BinaryIO, schema: pa.Schema, batches: Batches) -> None:
    import fastavro

    declared: Any = {"type": "record", "name": "row", "fields": [_avro_field(field) for field in schema]}
    # fastavro has no columns; its own loop is compiled.
    fastavro.writer(file, declared, chain.from_iterable(batch.to_pylist() for batch in batches), codec="deflate")


FORMATS: dict[str, Format] = {"jsonl": _lines, "text": _lines, "csv": _csv, "parquet": _parquet, "avro": _avro}

_AVRO: dict[pa.DataType, Any] = {
    pa.string(): "string", pa.bool_(): "boolean", pa.int8(): "int", pa.int16(): "int", pa.int32(): "int",
    pa.int64(): "long", pa.float32(): "float", pa.float64(): "double", pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip


def _avro_field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": ["null", avro_type(field.name, field.type)], "default": None}


def avro_type(name: str, kind: pa.DataType) -> Any:
    """A column's type in Avro. Raises Refused for one that has none here."""
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind not in _AVRO:
        raise Refused(
            f"FileSink: column {name} is {kind}, which Avro files don't hold here", hint="to_json() makes it text"
        )
    return _AVRO[kind]
