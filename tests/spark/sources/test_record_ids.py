"""A record has one id, whatever format it came in: the strings of its values are those that the page states, for each
type."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from onlyonce.api import ddl
from onlyonce.api.pipeline import Files
from onlyonce.sources import record_id
from onlyonce.sources.values import coercion
from tests.spark.sources.test_formats import read
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
VALUES: dict[str, list[tuple[str, Any, str]]] = {
    # type → (as a line has it, the value, its string)
    "string": [("a\u00e9", "a\u00e9", "a\u00e9"), ("007", "007", "007"), ("", "", "")],
    "boolean": [("true", True, "true"), ("false", False, "false"), ("true", True, "true")],
    "tinyint": [("-7", -7, "-7"), ("0", 0, "0"), ("127", 127, "127")],
    "smallint": [("-7", -7, "-7"), ("0", 0, "0"), ("32767", 32767, "32767")],
    "int": [("-7", -7, "-7"), ("0", 0, "0"), ("2147483647", 2**31 - 1, "2147483647")],
    "bigint": [("-7", -7, "-7"), ("0", 0, "0"), ("1152921504606846976", 2**60, "1152921504606846976")],
    "float": [("0.1", 0.10000000149011612, "0x1.99999a0000000p-4"), ("-0.0", -0.0, "0x0.0p+0"), ("2.5e3", 2500.0, "0x1.3880000000000p+11")],
    "double": [("0.1", 0.1, "0x1.999999999999ap-4"), ("-0.0", -0.0, "0x0.0p+0"), ("2e22", 2e22, "0x1.0f0cf064dd592p+74")],
    "decimal(12,2)": [("1.5", Decimal("1.50"), "1.50"), ("-0.00", Decimal("0.00"), "0.00"), ("12e3", Decimal("12000.00"), "12000.00")],
    "decimal(38,18)": [("1e-18", Decimal("1e-18"), "0.000000000000000001"), ("0", Decimal("0E-18"), "0.000000000000000000"), ("-2", Decimal("-2.000000000000000000"), "-2.000000000000000000")],
    "date": [("0001-01-01", date(1, 1, 1), "0001-01-01"), ("2026-03-01", date(2026, 3, 1), "2026-03-01"), ("9999-12-31", date(9999, 12, 31), "9999-12-31")],
    "timestamp": [
        ("2026-03-01T12:00:00.120+02:00", datetime(2026, 3, 1, 10, 0, 0, 120000, UTC), "2026-03-01 10:00:00.12"), ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01 00:00:00"),
        ("1969-12-31T23:59:59.999999Z", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "1969-12-31 23:59:59.999999"),
    ],
    "timestamp_ntz": [
        ("2026-03-01T12:00:00.000001", datetime(2026, 3, 1, 12, 0, 0, 1), "2026-03-01 12:00:00.000001"), ("2026-03-01", datetime(2026, 3, 1), "2026-03-01 00:00:00"),
        ("0001-01-01 10:10", datetime(1, 1, 1, 10, 10), "0001-01-01 10:10:00"),
    ],
}  # fmt: skip
UNQUOTED = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(12,2)", "decimal(38,18)")
NAMES = {kind: f"c{number}" for number, kind in enumerate(VALUES)}
SCHEMA = ", ".join(f"{name} {kind}" for kind, name in NAMES.items())
COLUMNS = replace(SHOP, schema=f"{SCHEMA}, at timestamp", record_id=tuple(NAMES.values()))
STRINGS = replace(COLUMNS, schema=", ".join(f"{name} string" for name in NAMES.values()) + ", at timestamp")
ROWS = range(3)
WANTED = {
    (found.high, found.low)
    for found in (
        record_id.of_values(STRINGS, {NAMES[kind]: values[row][2] for kind, values in VALUES.items()}) for row in ROWS
    )
}
"""The ids of the strings themselves."""


def table() -> pa.Table:
    """The rows in Arrow."""
    shape = coercion.declared(COLUMNS.schema)
    return pa.table(
        [
            *(
                pa.array([value for _, value, _ in VALUES[kind]], shape.field(name).type)
                for kind, name in NAMES.items()
            ),
            pa.array([AT] * 3, shape.field("at").type),
        ],
        schema=shape,
    )


def in_json(path: Path) -> None:
    """Write lines of JSON."""
    lines = []
    for row in ROWS:
        fields = [
            f'"{NAMES[kind]}":{values[row][0] if kind in UNQUOTED else json.dumps(values[row][0])}'
            for kind, values in VALUES.items()
        ]
        lines.append("{" + ",".join([*fields, f'"at":"{AT.isoformat()}"']) + "}\n")
    path.write_text("".join(lines))


def in_csv(path: Path) -> None:
    """Write lines of CSV."""
    path.write_text(
        "".join(
            ",".join([*(f'"{values[row][0]}"' for values in VALUES.values()), AT.isoformat()]) + "\n" for row in ROWS
        )
    )


def in_parquet(path: Path) -> None:
    """Write Parquet."""
    parquet.write_table(table(), path)


def in_avro(path: Path) -> None:
    """Write Avro."""

    def kind_of(kind: str) -> Any:
        logical = {"date": "date", "timestamp": "timestamp-micros", "timestamp_ntz": "local-timestamp-micros"}
        if kind.startswith("decimal"):
            precision, scale = map(int, kind[8:-1].split(","))
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        plain = {"boolean": "boolean", "string": "string", "float": "float", "double": "double", "bigint": "long"}
        return (
            {"type": "int" if kind == "date" else "long", "logicalType": logical[kind]}
            if kind in logical
            else plain.get(kind, "int")
        )

    fields = [{"name": name, "type": kind_of(kind)} for name, kind in ddl.types(COLUMNS.schema).items()]
    with path.open("wb") as file:
        fastavro.writer(
            file, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), table().to_pylist()
        )


FORMATS: dict[str, tuple[Any, Callable[[Path], None]]] = {
    "json": (Files(), in_json), "csv": (Files(format="csv"), in_csv), "parquet": (Files(format="parquet"), in_parquet), "avro": (Files(format="avro"), in_avro),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_an_id_is_of_the_values_and_not_of_the_format(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Each format, with a column of each type in the id."""
    source, write = FORMATS[name]
    write(tmp_path / f"a.{ {'json': 'jsonl'}.get(name, name) }")

    found, _ = read(spark, replace(COLUMNS, source=source), tmp_path)

    assert [row.oo_reason for row in found] == [None] * 3
    assert {(row.oo_high, row.oo_low) for row in found} == WANTED


def test_a_value_as_a_person_writes_it_is_found() -> None:
    """`onlyonce trace` makes the id from values as CSV has them."""
    asked = [
        record_id.of_values(COLUMNS, {NAMES[kind]: values[row][0] for kind, values in VALUES.items()}) for row in ROWS
    ]
    assert {(one.high, one.low) for one in asked} == WANTED
