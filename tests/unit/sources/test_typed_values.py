"""Avro's types come from the schema, and nested columns fit, or are counted, as those at the top do."""

from __future__ import annotations

import zlib
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from onlyonce.core.records import Damaged
from onlyonce.scaffold import guessed_types
from onlyonce.sources import avro_files
from onlyonce.sources.listing import FileAt
from onlyonce.sources.values import coercion

YEAR_10000 = 253_402_300_800
UNUSUAL: list[tuple[Any, str, list[Any], list[Any]]] = [
    # the type in Avro, the declared type, the values, what is read
    ({"type": "map", "values": "long"}, "map<string,bigint>", [{"a": 1}, {}], [[("a", 1)], []]),
    (["int", "string"], "string", [7, "x"], ["7", "x"]),
    (["null", "boolean", "string"], "string", [True, None], ["true", None]),
    ({"type": "string", "logicalType": "uuid"}, "string", [UUID(int=7)], ["00000000-0000-0000-0000-000000000007"]),
    ({"type": "array", "items": {"type": "map", "values": "string"}}, "array<map<string,string>>", [[{"a": "b"}]], [[[("a", "b")]]]),
    ({"type": "record", "name": "p", "fields": [{"name": "a", "type": "int"}]}, "struct<a:bigint>", [{"a": 1}], [{"a": 1}]),
    (["null", "int"], "int", [None, None], [None, None]),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, "decimal(12,2)", [], []),
]  # fmt: skip


def write(path: Path, kind: Any, values: list[Any]) -> FileAt:
    """Write a file of one column."""
    with path.open("wb") as file:
        fastavro.writer(
            file,
            {"type": "record", "name": "r", "fields": [{"name": "c", "type": kind}]},
            [{"c": value} for value in values],
            codec="deflate",
        )
    return FileAt(str(path))


def read(at: FileAt, kind: str) -> list[Any]:
    """Return the values as the declared type."""
    field = coercion.declared(f"c {kind}").field("c")
    return [
        value
        for batch in avro_files.records(at, ["c"], 3)
        for value in coercion.cast(batch.column("c"), field).to_pylist()
    ]


@pytest.mark.parametrize(
    ("kind", "declared", "values", "wanted"),
    UNUSUAL,
    ids=["map", "int or string", "boolean or string", "uuid", "maps", "record", "nulls", "decimal"],
)
def test_avro_of_a_usual_kind_is_read(
    tmp_path: Path, kind: Any, declared: str, values: list[Any], wanted: list[Any]
) -> None:
    """Maps, unions of two types and uuids too."""
    assert read(write(tmp_path / "a", kind, values), declared) == wanted


@pytest.mark.parametrize(
    ("logical", "factor"),
    [("timestamp-millis", 1000), ("timestamp-micros", 1_000_000), ("local-timestamp-millis", 1000)],
)
def test_a_time_after_9999_is_one_value_of_its_file(tmp_path: Path, logical: str, factor: int) -> None:
    """The file is read, and the record is judged by its year."""
    at = write(tmp_path / "a", {"type": "long", "logicalType": logical}, [])
    with Path(at.path).open("r+b") as file:
        schema = {"type": "record", "name": "r", "fields": [{"name": "c", "type": "long"}]}
        numbers = [0, YEAR_10000 * factor, (1 << 63) - 1]
        content = b"".join(_encoded(schema, number) for number in numbers)
        file.seek(0)
        header = file.read()
        file.write(_block(header[-16:], len(numbers), content))
    batch = next(avro_files.records(at, None, 9))
    declared = coercion.declared(f"c {'timestamp_ntz' if 'local' in logical else 'timestamp'}")
    [rows] = coercion.fit(batch, ["c"], declared, coercion.Place("row %s", 7, 1 << 20), 0)
    assert [reason and reason.rpartition("(")[2] for reason in rows.column("oo_refused").to_pylist()] == [
        None,
        *["its year is not in 1 to 9999)"] * 2,
    ]
    assert rows.column("c").cast(pa.int64()).to_pylist() == [0, None, None]


def _encoded(schema: Any, number: int) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, {"c": number})
    return out.getvalue()


def _block(sync: bytes, count: int, content: bytes) -> bytes:
    packed = zlib.compress(content)[2:-4]
    plain = {"type": "record", "name": "r", "fields": [{"name": "c", "type": "long"}]}
    return _encoded(plain, count) + _encoded(plain, len(packed)) + packed + sync


@pytest.mark.parametrize(("there", "declared"), [
    (pa.list_(pa.string()), "array<int>"), (pa.map_(pa.string(), pa.string()), "map<string,bigint>"), (pa.struct([("a", pa.string())]), "struct<a:date>"),
    (pa.list_(pa.struct([("a", pa.bool_())])), "array<struct<a:int>>"), (pa.list_(pa.int32()), "map<string,int>"), (pa.struct([("a", pa.int32())]), "array<int>"),
])  # fmt: skip
def test_a_part_of_a_column_fits_as_a_column_does(there: pa.DataType, declared: str) -> None:
    """A string is never read as a number or a time, at any depth."""
    with pytest.raises(Damaged, match="does not fit the declared"):
        coercion.cast(pa.array([], there), coercion.declared(f"c {declared}").field("c"))


def test_unknown_fields_of_structs_are_counted() -> None:
    """At any depth, and a declared field that is missing is null."""
    there = pa.schema(
        [
            ("c", pa.list_(pa.struct([("a", pa.int32()), ("x", pa.struct([("y", pa.int32()), ("z", pa.int32())]))]))),
            ("d", pa.struct([("e", pa.int32())])),
        ]
    )
    declared = coercion.declared("c array<struct<a:int,b:int,x:struct<y:int>>>")
    [batch] = coercion.fit(
        pa.RecordBatch.from_pylist([{"c": [{"a": 1, "x": {"y": 2, "z": 3}}], "d": None}], there),
        there.names,
        declared,
        coercion.Place("row %s", 7, 1 << 20),
        0,
    )
    assert batch.to_pylist()[0] | {"oo_file": 0} == {
        "oo_line": None,
        "oo_refused": None,
        "oo_file": 0,
        "oo_position": 0,
        "oo_rest": "d, c.x.z",
        "c": [{"a": 1, "b": None, "x": {"y": 2}}],
    }


@pytest.mark.parametrize(("cells", "kind"), [
    (["1152921504606846976"], "long"), (["9223372036854775808"], "string"), (["9007199254740993", "1.5"], "string"), (["7", "1.5"], "double"), (["007"], "string"), (["1e400"], "string"),
])  # fmt: skip
def test_init_proposes_a_type_that_takes_each_value(cells: list[str], kind: str) -> None:
    """An id of 19 digits is no double."""
    assert guessed_types.types_of_csv(cells) == kind
    if cells != ["007"] and cells != ["1e400"]:
        assert guessed_types.types_of_json([float(cell) if "." in cell else int(cell) for cell in cells]) == kind


@pytest.mark.parametrize(
    "outer", [pa.list_, pa.large_list, lambda one: pa.list_(one, 2)], ids=["list", "large", "fixed"]
)
def test_nanoseconds_in_lists_are_rounded_as_in_a_column(outer: Any) -> None:
    """A list of a fixed size too, also a slice of one."""
    there = pa.array([[1500, 2500], None, [-1, 0]], outer(pa.timestamp("ns", "UTC")))[1:]
    found = coercion.cast(there, coercion.declared("c array<timestamp>").field("c"))
    assert found.cast(pa.list_(pa.int64())).to_pylist() == [None, [-1, 0]]
