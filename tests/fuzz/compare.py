"""Reads blocks of lines as a run reads them, and by the reference reader, and returns the lines for which the two
differ.

Both ways of a run are compared: the block with Arrow first (`plain_records`, then `parse_lines.rows`), and line by line
by the conversion table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from onlyonce.sources.values import arrow_lines, fast_json, parse
from onlyonce.sources.values.parse import MORE, REASON, RECORD, Reader
from tests.fuzz import reference_reader
from tests.fuzz.hostile import Block

CUT_OFF = b"\r"
"""What a line keeps of CR LF. The reference reader gets a line without its end; a JSON line may end in any white
space."""
MARK = parse.BYTE_ORDER_MARK.encode()


VALUE = "valueType"


class Difference(NamedTuple):
    """A line for which a reader of ours differs from the reference reader."""

    way: str
    line: bytes
    columns: str
    ours: str
    reference: str


class Ways(NamedTuple):
    """What reads the lines of a block: the types for tasks, and the readers of the rest."""

    kinds: dict[str, Any]
    reader: Reader
    shape: pa.StructType


def differences(block: Block) -> list[Difference]:
    """Return where a run and the reference reader differ on the lines of a block."""
    ways, names = _ways(block.layout, json.dumps(block.columns)), [name for name, _ in block.columns]
    wanted = [shown(block.columns, *_reference(block, line)) for line in block.lines]
    found = []
    for way, rows in (("run", _as_in_a_run(block, ways)), ("table", _by_table(block.lines, ways))):
        for line, (values, more), reference in zip(block.lines, rows, wanted, strict=True):
            ours = shown(block.columns, None if values is None else dict(zip(names, values, strict=True)), more)
            if ours != reference:
                found.append(Difference(way, line, json.dumps(block.columns), ours, reference))
    return found


def _reference(block: Block, line: bytes) -> tuple[dict[str, Any] | None, bool]:
    # A byte order mark at the beginning is no part of a line.
    line = line.removeprefix(MARK)
    if block.layout == "json":
        found = reference_reader.read_json(line, block.columns)
    else:
        found = reference_reader.read_csv(line.removesuffix(CUT_OFF), block.columns)
    return found.values, found.more


@cache
def _ways(layout: str, declared: str) -> Ways:
    columns = json.loads(declared)
    shape = StructType.fromJson(
        {
            "type": "struct",
            "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns],
        }
    )
    simple = [field.dataType.simpleString() for field in shape.fields]
    gives = StructType(
        [StructField(REASON, StringType()), StructField(MORE, BooleanType()), StructField(RECORD, shape)]
    )
    written = json.dumps([(name, name, plain, kind) for (name, kind), plain in zip(columns, simple, strict=True)])
    kinds = {
        name: plain if isinstance(kind, str) else kind for (name, kind), plain in zip(columns, simple, strict=True)
    }
    return Ways(kinds, parse.reader_of(written, tuple(shape.names), layout), to_arrow_type(gives, timezone="UTC"))


Values = tuple[Sequence[Any] | None, bool]


def _as_in_a_run(block: Block, ways: Ways) -> list[Values]:
    """Return what a task makes of lines: it reads what it can by Arrow, and leaves the others."""
    found: list[Values] = [(None, False)] * len(block.lines)
    rest = np.arange(len(block.lines))
    if all(arrow_lines.declared(kind) is not None for kind in ways.kinds.values()):
        rows, columns = fast_json.read_plain_records(_as_spark_gives(block.lines), ways.kinds, block.layout)
        for row, *values in zip(rows.tolist(), *map(_values, columns), strict=True):
            found[row] = values, False
        rest = np.delete(rest, rows)
    if len(rest):
        left = _unmarked([block.lines[row] for row in rest])
        for row, one in zip(rest.tolist(), _rows(parse.rows(left, ways.reader, ways.shape)), strict=True):
            found[row] = one
    return found


def _values(column: pa.Array) -> list[Any]:
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):  # a time that Python has not
        return [f"{count} {column.type}" for count in column.cast(pa.int64()).to_pylist()]


def _by_table(lines: list[bytes], ways: Ways) -> list[Values]:
    return list(_rows(parse.by_table(_unmarked(lines), ways.reader.read, ways.shape)))


def _unmarked(lines: list[bytes]) -> pa.Array:
    # As `parse` does by an expression of Spark.
    return pa.array([line.removeprefix(MARK) for line in lines], pa.binary())


def _as_spark_gives(lines: list[bytes]) -> pa.Array:
    # A string of Spark's reaches Python as it is, whatever its bytes.
    octets = pa.array(lines, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(octets), octets.buffers(), octets.null_count)


def _rows(found: pa.StructArray) -> Iterator[Values]:
    record = found.field(RECORD)
    columns = [record.field(at).to_pylist() for at in range(record.type.num_fields)]
    for reason, more, *values in zip(
        found.field(REASON).to_pylist(), found.field(MORE).to_pylist(), *columns, strict=True
    ):
        yield (None if reason is not None else values), more


def shown(columns: Sequence[tuple[str, Any]], values: dict[str, Any] | None, more: bool) -> str:
    """Return a record as characters: the same ones only for the same values."""
    if values is None:
        return "invalid"
    written = ", ".join(f"{name}={_shown(kind, values[name])}" for name, kind in columns)
    return f"{written}; more" if more else written


def _shown(kind: Any, value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(kind, str):
        return (
            value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, Decimal) else repr(value)
        )
    if kind["type"] == "array":
        return f"[{', '.join(_shown(kind['elementType'], one) for one in value)}]"
    if kind["type"] == "map":
        pairs = sorted(dict(value).items())
        return f"map({', '.join(f'{key!r}: {_shown(kind[VALUE], one)}' for key, one in pairs)})"
    return f"({', '.join(_shown(one['type'], value[one['name']]) for one in kind['fields'])})"
