"""Poison: records that would make a parser throw. Each has a fate, and those beside it too; in every format of text, whatever the columns are named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from onlyonce.declare.pipeline import Files, Pipeline
from onlyonce.receive import exchange
from onlyonce.sources.lines import LINE, Lines
from tests.support.bad_input import LINES
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOW = datetime(2026, 11, 1, tzinfo=UTC)
COLUMNS = (
    "id string, at timestamp, value string, reason string, plain double, p decimal(9,2), d date, n timestamp_ntz, f float, "
    "b binary, t tinyint, o boolean"
)
NESTED = ", xs array<struct<a: int, b: map<string, double>>>"
NUMBERS = [
    "1e400", "1e-400", "1E+2147483648", "1e999999999999", "-0", "9" * 5000, "0x1F", "1.7976931348623157E309", "NaN", "٣", "1_0", "1d", "+1", ".5",
]  # fmt: skip
TIMES = [
    "2026-01-01T00:00:00.0000000000000000001Z", "-290308-12-21T19:59:05.224192Z", "+294247-01-10T04:00:54.775807Z", "294248-01-01", "99999999999-01-01",
    "2026-01-01 00:00:00 Nowhere/Zone", "2026-01-01T00:00:00+99:99", "2026-01-01T25:00:00Z", "epoch", "0000-00-00", "2026-W01", "1969-12-31T23:59:59.999999Z",
]  # fmt: skip
CSV = [
    "," * 30_000, "," * 140_000, "x," * 30_000, '"' * 50_001, '"' * 50_000, '"a' + "b" * 5_000_000, "a\0b", "\ufeff", "\r", '"a"b,c', "\\", '\\"', "#",
    *(f"i,{time}" for time in TIMES), *(f"i,2026-01-01,,,{number},{number},{number},{number},{number},{number},{number},{number}" for number in NUMBERS),
    *(f"i,2026-01-01,,,,,{time},{time}" for time in TIMES),
]  # fmt: skip
JSON = [
    *(f'{{"id":"i","at":"2026-01-01","{name}":{number}}}' for name in ("plain", "p", "f", "t", "o", "d", "at", "id") for number in NUMBERS),
    *(f'{{"id":"i","at":"2026-01-01","{name}":"{time}"}}' for name in ("at", "d", "n", "b", "p") for time in TIMES),
    '{"id":"i","at":"2026-01-01","xs":' + "[" * 100_000 + "]" * 100_000 + "}", '{"id":"i","at":"2026-01-01","xs":[{"b":{"":null,"x":{}}}]}',
    '{"id":"i","at":"2026-01-01","' + "k" * 60_000 + '":1}', '{"id":"i","at":"2026-01-01",' + ",".join(f'"k{n}":1' for n in range(50_000)) + "}",
    '{"id":"i","at":"2026-01-01","xs":{"a":1}}', '{"id":"i","at":"2026-01-01","b":"%%%"}', '{"id":"i","at":"2026-01-01","x":' + "9" * 2_000_000 + "}",
]  # fmt: skip


@pytest.mark.parametrize("form", ["csv", "json"])
def test_no_line_stops_a_batch(form: str, spark: SparkSession) -> None:
    """As many records as lines come out; those that are good beside them are kept."""
    texts = [line.raw.decode("utf-8", "replace") for line in LINES.values() if len(line.raw) < 1 << 22]
    texts += CSV if form == "csv" else JSON
    good = (
        "good,2026-01-01,v,r,1,1,2026-01-01,2026-01-01,1,b,1,true"
        if form == "csv"
        else '{"id":"good","at":"2026-01-01","value":"v","reason":"r","plain":1}'
    )
    schema = COLUMNS if form == "csv" else COLUMNS + NESTED
    pipeline: Pipeline = replace(SHOP, schema=schema, source=Files(format=form), record_id=("id",))  # type: ignore[arg-type]
    rows = [(text, None, 7, at) for at, text in enumerate([*texts, good])]
    lines = spark.createDataFrame(rows, LINE)

    found = (
        exchange.records(spark, Lines([], lines), pipeline, NOW)
        .select("id", "value", "reason", "plain", "oo_reason", "oo_raw")
        .collect()
    )

    assert len(found) == len(rows)
    assert all((row.oo_reason is None) != (row.oo_raw is not None) for row in found)
    [kept] = [row for row in found if row.id == "good" and row.value == "v"]
    assert (kept.reason, kept.plain, kept.oo_reason) == ("r", 1.0, None)
