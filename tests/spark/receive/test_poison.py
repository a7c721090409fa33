"""Poison: records that would make a parser throw have a fate, and those beside them too, in every format of text; and a
record at which receive fails all the same is found and refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onlyonce import settings
from onlyonce.api.pipeline import Files, Pipeline
from onlyonce.context import RunContext
from onlyonce.engine.worker import Batches
from onlyonce.receive import batch_files, exchange
from onlyonce.receive.exchange import Parts, Task
from onlyonce.sources.lines import LINE_COLUMN, Lines
from tests.support.bad_input import LINES, record
from tests.support.platform import Platform
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOW = datetime(2026, 11, 1, tzinfo=UTC)
COLUMNS = (
    "id string, at timestamp, value string, reason string, plain double, p decimal(9,2), d date, n timestamp_ntz, "
    "f float, "
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
    lines = spark.createDataFrame(rows, LINE_COLUMN)

    found = (
        exchange.records(spark, Lines([], lines), pipeline, NOW)
        .select("id", "value", "reason", "plain", "oo_reason", "oo_raw")
        .collect()
    )

    assert len(found) == len(rows)
    assert all((row.oo_reason is None) != (row.oo_raw is not None) for row in found)
    [kept] = [row for row in found if row.id == "good" and row.value == "v"]
    assert (kept.reason, kept.plain, kept.oo_reason) == ("r", 1.0, None)


POISON = ("p1", "p2")


def stumbling(real: Callable[..., Task], folders: set[Any]) -> Callable[..., Task]:
    """Tasks that fail at some records, as no task of ours is known to. Each tells into which folder it writes."""

    def made(*given: Any, **named: Any) -> Task:
        folders.add(given[-1])
        task, poison = real(*given, **named), POISON

        def stumble(parts: Parts) -> Batches:
            return task(looked_at(parts))

        def looked_at(parts: Parts) -> Parts:
            for part in parts:
                records = part() if callable(part) else part
                if {*records.column("id").to_pylist()} & {*poison}:
                    raise ArithmeticError("nobody thought of this record")
                yield records

        return stumble

    return made


@pytest.mark.parametrize(
    "way", ["in the driver", *(pytest.param(way, marks=pytest.mark.slow) for way in ("in tasks", "by exchange"))]
)
def test_a_record_at_which_three_attempts_fail_is_invalid_and_the_others_are_kept(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Two of them in one batch; two runs end with the error, the third one takes in all records, each once.

    What was tried was written where all machines of a cluster see it, and nothing of it is left."""
    platform = new_platform("tests/support/plain.py")
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES="1000000" if way == "in the driver" else "0")
    if way == "by exchange":
        monkeypatch.setattr(RunContext, "blocks", None)
    folders: set[Any] = set()
    for name in ("exactly_once", "without_catalog"):
        monkeypatch.setattr(batch_files, name, stumbling(getattr(batch_files, name), folders))
    ids = [*(f"r{n}" for n in range(11)), "p1", "r11", "p2"]
    platform.put("plain", "lines.jsonl", [record(name).decode() for name in ids])

    for _ in range(2):
        with pytest.raises(Exception, match="nobody thought of"):
            platform.run("plain")
        assert platform.events("plain").query("oo_kind != 'control'").empty
    platform.run("plain", "--close")

    events = platform.events("plain")
    kept, invalid = (events[events["oo_kind"] == kind] for kind in ("kept", "invalid"))
    assert Counter(kept["id"]) == Counter(set(ids) - {*POISON})
    assert Counter(invalid["oo_raw"]) == Counter(record(name).decode() for name in POISON)
    assert invalid["oo_reason"].str.contains("nobody thought of this record").all()
    assert Counter(platform.sql("SELECT id FROM results.rows")["id"]) == Counter(kept["id"])
    tried = {folder for folder in folders if not folder.is_relative_to(settings.data_dir("plain") / "events")}
    assert tried
    assert [
        folder for folder in tried if not folder.is_relative_to(settings.data_dir("plain")) or folder.exists()
    ] == []
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]


def test_a_cause_that_is_no_records_stays_the_error_of_each_run(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails where all records are together, and not with fewer: none of them is to blame, and none is refused."""
    platform = new_platform("tests/support/plain.py")
    real = batch_files.exactly_once

    def never(*given: Any, **named: Any) -> Task:
        raise MemoryError("too much at once")

    monkeypatch.setattr(batch_files, "exactly_once", never)
    platform.put("plain", "lines.jsonl", [record(f"r{n}").decode() for n in range(4)])

    for _ in range(4):
        with pytest.raises(Exception, match="too much at once"):
            platform.run("plain")

    assert platform.sql("SELECT times, refused FROM onlyonce_private.batch_failures").values.tolist() == [[4, []]]
    monkeypatch.setattr(batch_files, "exactly_once", real)
    platform.run("plain", "--close")
    assert Counter(platform.sql("SELECT id FROM results.rows")["id"]) == Counter(f"r{n}" for n in range(4))
