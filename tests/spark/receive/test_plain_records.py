"""Lines become records in blocks by Arrow, all others as rows: which of them it was shows in no column of any
record."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from onlyonce.api.messages import Avro, Kafka
from onlyonce.api.pipeline import Files
from onlyonce.sources.lines import LINE_COLUMN, Lines
from onlyonce.sources.values import fast_json, parse
from tests.support.arrivals import records_of
from tests.support.bad_input import LINES
from tests.support.shop import SHOP
from tests.unit.sources import test_arrow_lines

pytestmark = pytest.mark.spark

NOW = datetime(2026, 6, 1, tzinfo=UTC)
KINDS = {
    "id": "string", "at": "timestamp", "odd (name).*": "string", "yes": "boolean", "tiny": "tinyint", "small": "smallint",
    "whole": "int", "large": "bigint", "real": "double", "day": "date",
}  # fmt: skip
INTEGERS = [
    "0", "-0", "7", "-7", "99", "127", "128", "-129", "32767", "99999", "2147483648", "9" * 18, "9" * 19, "07", "1.0", "1e2",
]  # fmt: skip
VALUES = {
    "string": ['""', '"a"', '"a}b"', '"é€😀"', '"a\\n"', '"\\u0000"', '"\\ud83d\\ude00"', "5", "true", '[1]', '{"a":1}', '"a\tb"', '" 2026 "'],
    "boolean": ["true", "false", '"true"', "1", "TRUE"],
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), INTEGERS),
    "double": ["0", "-0", "-0.0", "0.1", "123456789012345.123456789", "1e300", "1e999", "NaN", '"NaN"', "5", "-1.5e-3", ".5", "1.", '"1.5"'],
    "date": ['"2026-03-01"', '"2024-02-29"', '"0999-01-01"', '"9999-12-31"', '"2026-3-1"', '"2026-03-01T00:00:00Z"', "5", '"today"'],
    "timestamp": [
        '"2026-03-01T12:00:00Z"', '"2026-03-01 12:00:00.5"', '"2026-03-01T12:00:00.123456+05:30"', '"2026-03-29T02:30:00"',
        '"2026-03-01T12:00:00-17:59"', '"2026-03-01T12:00:00+18:00"', '"2026-03-01T12:00:00+19:00"', '"2026-03-01T12:00:00.1234567Z"',
        '"1000-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"', '"0001-01-01T00:00:00Z"', '"2026-03-01T24:00:00Z"',
        '"2026-03-01T12:00:60Z"', '"2026-03-01"', '"12:30"', "1772366400", "1772366400000", '"2026-03-01T12:00:00 UTC"', '"yesterday"',
    ],
}  # fmt: skip
NO_SUCH_DAY = {"at": '"2026-02-30T00:00:00Z"', "day": '"2026-02-30"'}


def usual(kind: str) -> str:
    """The first value of a type, which is plain."""
    return VALUES[kind][0] if kind != "string" else '"a"'


def line(chance: random.Random, *, odd: float) -> str:
    """A record: a key may be missing, null, or of any value that its type has a case for."""
    pairs = []
    for name, kind in KINDS.items():
        drawn = chance.random()
        value = chance.choice([None, "null", *VALUES[kind]]) if drawn < odd else usual(kind)
        if value is not None:
            pairs.append(f"{json.dumps(name)}{chance.choice([':', ': ', ' : '])}{value}")
    if chance.random() < odd / 4:
        pairs.append('"more":1')
    chance.shuffle(pairs)
    return (
        chance.choice(["{", "{ "])
        + chance.choice([",", ", ", " , "]).join(pairs)
        + chance.choice(["}"] * 8 + [" }", "} ", "}{", ""])
    )


def found(spark: SparkSession, lines: list[bytes], schema: str, record_id: tuple[str, ...] = ("id",)) -> Counter[Any]:
    """The records of these lines, all columns."""
    pipeline = replace(SHOP, schema=schema, record_id=record_id, aliases=ALIASES if schema == SCHEMA else {})
    raw = [(bytearray(one), 7, at) for at, one in enumerate(lines)]
    values = spark.createDataFrame(raw, "raw binary, oo_file long, oo_position long").coalesce(1)
    shaped = values.selectExpr(
        "cast(raw as string) AS oo_line", "cast(NULL as string) AS oo_refused", "oo_file", "oo_position"
    )
    return Counter(map(repr, records_of(spark, Lines([], shaped), pipeline, NOW)))


ALIASES = {"odd_name": "odd (name).*"}
SCHEMA = ", ".join(f"{'odd_name' if name in ALIASES.values() else name} {kind}" for name, kind in KINDS.items())


@pytest.fixture
def row_by_row(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Leave all lines to Spark's parser from now on."""
    return lambda: monkeypatch.setattr(fast_json, "plain_record_reader", lambda *given: None)


@pytest.mark.parametrize("refused", [False, True], ids=["blocks-read", "blocks-refused"])
@pytest.mark.parametrize(("seed", "record_id"), [(1, ("id",)), (2, ()), (3, ("id", "yes", "large", "day", "at"))])
def test_arrow_and_sparks_parser_give_the_same_records(
    spark: SparkSession, row_by_row: Callable[[], None], seed: int, record_id: tuple[str, ...], refused: bool
) -> None:
    """Lines by chance, of every type and edge; a block that Arrow refuses whole is Spark's, also its good lines."""
    chance = random.Random(seed)
    lines = [line(chance, odd=chance.choice([0, 0.05, 0.5])).encode() for _ in range(3000)]
    if refused:
        lines += [f'{{"id":"x","{name}":{value}}}'.encode() for name, value in NO_SUCH_DAY.items()]
        lines += [b'{"id":"a","id":"b","at":"2026-03-01T12:00:00Z"}']
    plain_ones = fast_json.read_plain(pa.array(lines, pa.binary()).cast(pa.string()), KINDS)[0].true_count
    assert plain_ones == 0 if refused else 500 < plain_ones < 2500

    here = found(spark, lines, SCHEMA, record_id)
    row_by_row()
    there = found(spark, lines, SCHEMA, record_id)

    assert here == there


@pytest.mark.parametrize(("seed", "record_id"), [(3, ("id",)), (7, ())])
def test_nested_and_hostile_lines_have_the_same_records_in_blocks(
    spark: SparkSession, row_by_row: Callable[[], None], seed: int, record_id: tuple[str, ...]
) -> None:
    """Lines of every type that Arrow reads, most of them in blocks, and the same lines as rows."""
    kinds = test_arrow_lines.KINDS
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, _, kind in kinds]
    columns = StructType.fromJson({"type": "struct", "fields": fields})
    schema = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in columns)
    lines = test_arrow_lines.block(seed, 300)[0]
    texts = pa.array(lines, pa.binary()).view(pa.string())
    assert 2 * len(fast_json.read_plain_records(texts, {name: kind for name, _, kind in kinds})[0]) > len(lines)

    here = found(spark, lines, schema, record_id)
    row_by_row()
    there = found(spark, lines, schema, record_id)

    assert here == there


@pytest.mark.parametrize("seed", [4, 5])
def test_lines_of_one_layout_have_the_records_of_sparks_parser(
    spark: SparkSession, row_by_row: Callable[[], None], seed: int
) -> None:
    """Keys in one order, with the same white space, and values of every edge: most of the lines are cut into them, some
    are not plain."""
    chance = random.Random(seed)
    names = chance.sample([*KINDS], len(KINDS))
    lines = []
    for number in range(3000):
        values = {
            name: chance.choice(VALUES[kind]) if chance.random() < 0.05 else usual(kind) for name, kind in KINDS.items()
        }
        values["id"] = f'"{number}"' if chance.random() < 0.9 else values["id"]
        lines.append(("{" + ", ".join(f'"{name}": {values[name]}' for name in names) + "}").encode())
    lines_of_template = fast_json.read_by_template(pa.array(lines, pa.binary()).cast(pa.string()), KINDS)
    assert lines_of_template is not None
    assert len(lines_of_template.rows) > 1500

    here = found(spark, lines, SCHEMA)
    row_by_row()

    assert here == found(spark, lines, SCHEMA)


def test_times_in_seconds_are_read_as_sparks_parser_reads_them(
    spark: SparkSession, row_by_row: Callable[[], None]
) -> None:
    """A producer that sends numbers as times; one too large, and a text, among them are left to Spark's parser."""
    times = ["0", "1772366400", "-1772366400", "99999999999", "1772366400000", '"2026-03-01T12:00:00Z"', "1.5", "null"]
    lines = [f'{{"id":"{n}","at":{time}}}'.encode() for n, time in enumerate(times)]

    here = found(spark, lines, "id string, at timestamp")
    row_by_row()

    assert here == found(spark, lines, "id string, at timestamp")


def test_bad_lines_beside_plain_ones_have_the_fates_that_they_have_alone(
    spark: SparkSession, row_by_row: Callable[[], None]
) -> None:
    """Every kind of bad line, bytes that are no UTF-8 among them, and a line too long for a block."""
    texts = [
        b"x" * fast_json.LONGEST,
        b"\xed\xa0\x80",
        b"\xed\xa0\xbd\xed\xb8\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\x80",
        b"\xff",
    ]
    more = [b'{"id":"' + text + b'","at":"2026-03-01T12:00:00Z"}' for text in texts]
    lines = [*(one.raw for one in LINES.values() if len(one.raw) < 1 << 20), *more]

    here = found(spark, lines, "id string, at timestamp, amount long, note string")
    row_by_row()

    assert here == found(spark, lines, "id string, at timestamp, amount long, note string")


def test_a_message_whose_columns_all_come_from_its_key_and_headers_is_a_record(spark: SparkSession) -> None:
    """Nothing is read from its value, whatever that is."""
    topic = Kafka(topic="t", servers="localhost:1", key="id", headers=("at",))
    pipeline = replace(SHOP, schema="id string, at string", source=topic)
    rows = [('{"more":1}', "a", "2026-01-01T00:00:00Z"), ("{}", "b", "2026-01-02T00:00:00Z")]

    found = records_of(spark, messages(spark, rows, "id", "at"), pipeline, NOW)

    assert [(row.id, row.at, row.oo_reason) for row in found] == [(key, at, None) for _, key, at in rows]


def messages(spark: SparkSession, rows: list[Any], *beside: str) -> Lines:
    """Messages of (value, what is beside it…)."""
    columns = "".join(f", {parse.BESIDE}{name} string" for name in beside)
    found = [(value, None, 7, at, *more) for at, (value, *more) in enumerate(rows)]
    return Lines([], spark.createDataFrame(found, LINE_COLUMN + columns))


def test_a_key_takes_the_place_of_a_field_in_a_block_as_in_a_row(
    spark: SparkSession, row_by_row: Callable[[], None]
) -> None:
    """A value with that field is no plain line: it has one that is not declared for it.

    A message without a key is invalid.
    """
    pipeline = replace(SHOP, schema="id string, at timestamp", source=Kafka(topic="t", servers="localhost:1", key="id"))
    values = ['{"at":"2026-03-01T12:00:00Z"}', '{"at":"2026-03-01T12:00:00Z","id":"y"}', '{"at":1772366400}', "{}"]
    rows = [(value, key) for value in values for key in ("a", "é", None)]

    here = records_of(spark, messages(spark, rows, "id"), pipeline, NOW)
    row_by_row()
    there = records_of(spark, messages(spark, rows, "id"), pipeline, NOW)

    assert Counter(map(repr, here)) == Counter(map(repr, there))
    assert [row.id for row in there if row.oo_reason is None] == ["a", "é"] * 3


BESIDE_VALUES: dict[str, list[Any]] = {
    "string": ["", "a", None],
    "boolean": [True, False, None],
    "bigint": [0, -7, 2**63 - 1, None],
    "date": [date(1969, 12, 31), date(2026, 3, 1), None],
    "timestamp": [datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 12, 0, 10, 120, UTC), None],
    "timestamp_ntz": [datetime(2026, 3, 1, 12), datetime(2026, 3, 1, 12, 0, 10, 120), None],
    "float": [1.0, 0.1, None],
    "double": [1.0, -0.0, 1e22, float("nan"), None],
    "decimal(12,2)": [Decimal("1.50"), Decimal("0.00"), None],
    "decimal(38,18)": [Decimal("1E-18"), Decimal("0E-18"), None],
    "struct<a: int, b: double>": [(1, 1.0), (None, None), None],
    "array<string>": [["a", None], [], None],
}
"""Values of a column that comes from a message's key."""


@pytest.mark.parametrize("kind", BESIDE_VALUES)
def test_key_column_of_each_type_gives_one_record(
    spark: SparkSession, row_by_row: Callable[[], None], kind: str
) -> None:
    """A replay may read a message in a block or as a row: all columns of its record are the same."""
    by_key = Avro(registry="http://localhost:1", columns="key")
    topic = Kafka(topic="t", servers="localhost:1", key=by_key)
    schema = f"id string, at timestamp, key {kind}, key_schema_id int"
    pipeline = replace(SHOP, schema=schema, source=topic)
    value = '{"id":"a","at":"2026-03-01T12:00:00Z"}'
    columns = f"{LINE_COLUMN}, {parse.BESIDE}key {kind}, {parse.BESIDE}key_schema_id int"
    rows = [(value, None, 7, at, given, 4) for at, given in enumerate(BESIDE_VALUES[kind])]
    lines = Lines([], spark.createDataFrame(rows, columns))

    here = records_of(spark, lines, pipeline, NOW)
    row_by_row()
    there = records_of(spark, lines, pipeline, NOW)

    assert Counter(map(repr, here)) == Counter(map(repr, there))
    assert [row.oo_reason for row in here] == [None] * len(rows)
    assert len({row.oo_payload for row in here}) == len(rows)


def test_messages_that_differ_in_their_headers_alone_have_an_order(
    spark: SparkSession, row_by_row: Callable[[], None]
) -> None:
    """So which of them is kept does not depend on the order in which a batch is read; a missing header is no empty
    one."""
    topic = Kafka(topic="t", servers="localhost:1", headers=("one", "other"))
    pipeline = replace(SHOP, schema="id string, at timestamp, one string, other string", source=topic)
    beside = [(None, None), ("", None), (None, ""), ("x", None), (None, "x"), ("x", "y"), ("y", "x"), ("=x", None)]
    rows = [('{"id":"a","at":"2026-03-01T12:00:00Z"}', *texts) for texts in beside]

    here = records_of(spark, messages(spark, rows, "one", "other"), pipeline, NOW)
    row_by_row()
    there = records_of(spark, messages(spark, rows, "one", "other"), pipeline, NOW)

    assert Counter(map(repr, here)) == Counter(map(repr, there))
    assert len({row.oo_payload for row in here}) == len(beside)
    assert len({(row.oo_high, row.oo_low) for row in here}) == 1


def test_rows_of_columns_that_differ_in_one_value_have_an_order(spark: SparkSession) -> None:
    """No row is written as JSON for it; a null is no empty string and no other column's null, and 0.0 is not -0.0."""
    columns = (
        "id string, at timestamp, one string, other string, real double, part struct<a: int>, extra map<string, int>"
    )
    same: tuple[Any, ...] = (None, None, None, None, None)
    values: list[tuple[Any, ...]] = [
        same,
        ("", None, *same[2:]),
        (None, "", *same[2:]),
        ("x", None, *same[2:]),
        (None, "x", *same[2:]),
        (None, None, 0.0, None, None),
        (None, None, -0.0, None, None),
    ]
    values += [(*same[:3], (None,), None), (*same[:3], (1,), None), (*same[:4], {}), (*same[:4], {"a": None})]
    rows = [(None, None, 7, at, None, "a", NOW, *more) for at, more in enumerate(values)]
    lines = Lines([], spark.createDataFrame(rows, f"{LINE_COLUMN}, oo_rest string, {columns}"))

    found = records_of(spark, lines, replace(SHOP, schema=columns, source=Files(format="parquet")), NOW)

    assert [row.oo_reason for row in found] == [None] * len(values)
    assert len({row.oo_payload for row in found}) == len(values)
    assert len({(row.oo_high, row.oo_low) for row in found}) == 1


@pytest.mark.usefixtures("spark")
def test_a_schema_with_other_types_is_left_to_the_tables_reader() -> None:
    """Arrow reads no maps and no Base64 from a line, and of a double no id is made in two ways."""
    for kind in ("binary", "map<string, int>", "array<binary>", "struct<a: map<string, int>>"):
        assert _reader(schema=f"id string, at timestamp, a {kind}") is None
    assert _reader(schema="id string, at timestamp, real double", record_id=("real",)) is None
    assert _reader(schema="id string, at string") is None
    assert _reader(source=Files(format="parquet")) is None
    for source in (Files(), Files(format="csv")):
        assert (
            _reader(schema="id string, at timestamp, a decimal(9,2), b float, c timestamp_ntz", source=source)
            is not None
        )
    assert _reader(schema="id string, at timestamp, a array<struct<b: decimal(9,2)>>") is not None


def _reader(**declared: Any) -> fast_json.Reader | None:
    return fast_json.plain_record_reader(replace(SHOP, **declared), NOW, 2)
