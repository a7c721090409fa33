"""What a reason shows of a record, by Spark's columns: as Python shows it, and nothing that the record's raw line has
not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.api.pipeline import Kafka
from onlyonce.core import line_values
from onlyonce.engine import encoding
from onlyonce.sources import lines
from onlyonce.sources.values import parse
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

EACH = [
    chr(code) for code in (*range(0x100), *range(0x2000, 0x2070), 0xD7FF, 0xE000, 0xFEFF, 0xFFFF, 0x1F600, 0x10FFFF)
]
HOSTILE = [
    *EACH,
    *(f"a{one}b" for one in EACH),
    "",
    "\\x1b[31m",
    "$0 \\1 (?i) ]",
    "\x1b]0;owned\x07" + "x" * 60,
    "\u202e" * 60,
    *("é" * count for count in (39, 40, 41)),
    *("\U0001f600" * count for count in (20, 39, 40, 41)),
    "x" * 39 + "\x1b",
    "x" * 40 + "\x1b",
]
"""Each character that is hidden, and its neighbours; strings around the length that is shown, in and outside of the
basic plane."""


def test_a_column_is_shown_as_python_shows_a_value(spark: Any) -> None:
    """Whatever the characters and the length."""
    frame = spark.createDataFrame([(one,) for one in HOSTILE], "text string")

    found = {row.text: row.shown for row in frame.select("text", parse.shown(F.col("text")).alias("shown")).collect()}

    assert found == {one: line_values.shown(one) for one in HOSTILE}


def test_payload_is_the_same_each_time_whatever_keys_a_map_has(spark: Any) -> None:
    """A replay compares it. Where Spark has always written the keys in one way, it stays as it was."""
    frame = spark.range(3).selectExpr(
        "cast(NULL AS string) AS oo_line",
        "map(encode(cast(id AS string), 'utf-8'), 1) AS bytes",
        "array(map(array(id), 1)) AS arrays",
        "map(struct(encode(cast(id AS string), 'utf-8')), 1) AS structs",
        "map(timestamp_seconds(id), 1) AS times",
        "named_struct('d', map(date_from_unix_date(cast(id AS int)), 1)) AS days",
    )
    schema = frame.drop("oo_line").schema
    for name in schema.names:
        kind = StructType([schema[name]])
        rows = frame.select(parse.content_column(kind), parse.line_column(kind))
        assert rows.collect() == rows.collect(), name

    for name in ("times", "days"):
        as_it_was = F.to_json(F.struct(name), encoding.TIMES)
        now = parse.content_column(StructType([schema[name]]))
        assert frame.filter(now != F.xxhash64(F.lit(True), as_it_was)).isEmpty()


def test_a_reason_has_no_value_of_a_header(spark: Any) -> None:
    """An erasure finds an invalid record by its raw line, which is the message's value."""
    topic = Kafka(topic="sales", servers="nowhere:9092", headers=("at",))
    sales = replace(SHOP, source=topic, schema="id string, at string")
    told = [('{"id": "a"}', None, 0, 0, "2026-01-01T00:00:00Z"), ('{"id": "b"}', None, 0, 1, "o'neil")]
    rows = spark.createDataFrame(told, f"{lines.LINE_COLUMN}, {parse.BESIDE}at string")

    found = parse.records(rows, sales, datetime(2026, 1, 2, tzinfo=UTC)).select("oo_reason", "oo_raw").collect()

    assert [tuple(row) for row in found] == [(None, None), ("the event time at is no timestamp", '{"id": "b"}')]
