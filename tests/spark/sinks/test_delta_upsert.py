"""Rows of a Delta table are replaced as Spark's own MERGE and replaceWhere would do it, row by row; what a table asks
more is refused by its name."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from onlyonce.core.backfill import Span
from onlyonce.core.errors import Refused
from onlyonce.sinks.delta import delta_upsert, sink_delta
from onlyonce.tables import commit as tables_commit
from onlyonce.tables import opening, rewrite
from tests.support import sparks_writer

pytestmark = pytest.mark.spark

SCHEMA = "`the.key` string, share double, part string, position int, value string, inner struct<a:int>"
KEYS = ["the.key", "share"]
NUMBERS = count()


def commit() -> tables_commit.Commit:
    """The next one."""
    return tables_commit.Commit("app", number := next(NUMBERS), f"app/{number}", 1, "")


def batch(chance: random.Random, *, gone: bool) -> list[tuple[Any, ...]]:
    """Rows with keys of their own: texts and doubles, with nulls among them."""
    keys = {
        (chance.choice([None, *"abcdefgh"]), chance.choice([0.0, 1.5, float("nan"), None]))
        for _ in range(chance.randrange(1, 12))
    }
    keys = {(key, "nan" if share != share else share): (key, share) for key, share in keys}.values()  # type: ignore[assignment] # a NaN is no other NaN
    rows = [
        (*key, chance.choice("xy%"), chance.choice([None, *range(9)]), f"v{next(NUMBERS)}", chance.choice([None, (1,)]))
        for key in keys
    ]
    return [(*row, chance.random() < 0.4) for row in rows] if gone else rows


def rows_of(spark: SparkSession, path: Path) -> Counter[str]:
    """What Spark reads; doubles as text, since a NaN is not equal to itself, and one zero is another's."""
    return Counter(map(str, spark.read.format("delta").load(str(path)).collect()))


@pytest.mark.parametrize(
    ("kind", "by"),
    [
        ("delete_when", ["part"]),
        *(
            pytest.param(kind, by, marks=pytest.mark.whole)
            for kind, by in (("plain", []), ("newest", ["part"]), ("delete_when", []))
        ),
    ],
)
def test_an_upsert_is_that_of_a_merge(spark: SparkSession, tmp_path: Path, kind: str, by: list[str]) -> None:
    """Batch after batch: keys that are null, NaN or spelled with a dot, columns that a batch does not have, rows that
    move from one part to another."""
    chance = random.Random(f"{kind}{by}")
    ours, sparks = tmp_path / "ours [1]", tmp_path / "sparks"
    for path in (ours, sparks):
        tables_commit.make(path, spark.createDataFrame([], SCHEMA).schema, spark, by, {})
    newer = None if kind == "plain" else delta_upsert.as_new(["position"])
    gone = "gone" if kind == "delete_when" else None
    for number in range(4):
        rows = spark.createDataFrame(batch(chance, gone=gone is not None), SCHEMA + (", gone boolean" if gone else ""))
        if number == 2:
            rows = rows.drop("inner")
        rewrite.change_rows(ours, commit(), delta_upsert.Upsert(rows, ours, KEYS, newer, gone))
        sparks_writer.merge(rows, sparks, KEYS, newer, gone)
        assert rows_of(spark, ours) == rows_of(spark, sparks)
    assert len(rows_of(spark, ours)) > 3
    assert DeltaTable(str(ours)).to_pyarrow_table().num_rows == rows_of(spark, ours).total()


def test_only_files_with_a_key_of_the_batch_are_written_again(spark: SparkSession, tmp_path: Path) -> None:
    """Of those whose bounds hold it as well."""
    path = tmp_path / "table"
    tables_commit.make(path, spark.createDataFrame([], "k int, v int").schema, spark, [], {})
    for keys in ([1, 5], [2, 6], [10, 20]):
        sink_delta.append_rows(
            spark.createDataFrame([(k, 0) for k in keys], "k int, v int").coalesce(1), path, commit()
        )
    before = {*DeltaTable(str(path)).file_uris()}
    rewrite.change_rows(
        path, commit(), delta_upsert.Upsert(spark.createDataFrame([(5, 1), (7, 1)], "k int, v int"), path, ["k"])
    )
    assert len(before - {*DeltaTable(str(path)).file_uris()}) == 1
    rewrite.change_rows(
        path, commit(), delta_upsert.Upsert(spark.createDataFrame([(5, 2)], "k int, v int"), path, ["k"])
    )
    assert rows_of(spark, path) == Counter(
        f"Row(k={k}, v={v})" for k, v in ((1, 0), (5, 2), (7, 1), (2, 0), (6, 0), (10, 0), (20, 0))
    )


WINDOWED = "window_start timestamp, window_date date, n int"


@pytest.mark.parametrize(
    ("hours", "by"),
    [
        ((6, 30), ["window_date"]),
        *(
            pytest.param(hours, by, marks=pytest.mark.whole)
            for hours, by in (((0, 48), ["window_date"]), ((6, 30), []), ((30, 31), []))
        ),
    ],
    ids=str,
)
def test_a_span_is_replaced_as_by_replace_where(
    spark: SparkSession, tmp_path: Path, by: list[str], hours: tuple[int, int]
) -> None:
    """Whole days, and parts of them; rows without a window stay."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    ours, sparks = tmp_path / "ours", tmp_path / "sparks"

    def frame(starts: list[int | None], n: int) -> DataFrame:
        times = [None if hour is None else begin + timedelta(hours=hour) for hour in starts]
        rows = spark.createDataFrame([(time, n) for time in times], "window_start timestamp, n int")
        return rows.selectExpr("window_start", "to_date(window_start) AS window_date", "n").coalesce(1)

    for path in (ours, sparks):
        tables_commit.make(path, frame([], 0).schema, spark, by, {})
        for starts in (range(72), [None, 5], [6, 29, 47], [12]):
            sink_delta.append_rows(frame(list(starts), 0), path, commit())
    first, last = (begin + timedelta(hours=hour) for hour in hours)
    new = frame(list(range(*hours, 2)), 1)
    rewrite.change_rows(ours, commit(), delta_upsert.Replace(new, ours, Span.of(first, last), "window_date"))
    sparks_writer.replace(
        new, sparks, f"window_start >= TIMESTAMP'{first.isoformat()}' AND window_start < TIMESTAMP'{last.isoformat()}'"
    )
    assert rows_of(spark, ours) == rows_of(spark, sparks)


ASKS: dict[str, tuple[str, dict[str, str], str | None, str | None]] = {
    "generated": ("n int, big bigint GENERATED ALWAYS AS (CAST(n AS BIGINT))", {}, None, None),
    "mapped": ("n int, big bigint", {"delta.columnMapping.mode": "name"}, "column mapping", "column mapping"),
    "tracked": ("n int, big bigint", {"delta.enableRowTracking": "true"}, "row tracking", "row tracking"),
    "timed": (
        "n int, big bigint",
        {"delta.enableInCommitTimestamps": "true"},
        "in-commit timestamps",
        "in-commit timestamps",
    ),
    "identity": ("n int, big bigint GENERATED BY DEFAULT AS IDENTITY", {}, "identity", "identity"),
    "default": (
        "n int, big bigint DEFAULT 3",
        {"delta.feature.allowColumnDefaults": "supported"},
        "default values",
        "default values",
    ),
    "vectors": ("n int, big bigint", {"delta.enableDeletionVectors": "true"}, None, "deletion vectors"),
    "feed": ("n int, big bigint", {"delta.enableChangeDataFeed": "true"}, None, "a change data feed"),
    "appends": ("n int, big bigint", {"delta.appendOnly": "true"}, None, "delta.appendOnly"),
    "checkpoints": ("n int, big bigint", {"delta.checkpointPolicy": "v2"}, None, None),
    "compacted": ("n int, big bigint", {"delta.autoOptimize.autoCompact": "true"}, None, None),
    "bounded text": ("n int, big bigint, word varchar(9)", {}, None, None),
    "padded text": ("n int, big bigint, word char(9)", {}, "char(9)", "char(9)"),
    "manifest": (
        "n int, big bigint",
        {"delta.compatibility.symlinkFormatManifest.enabled": "true"},
        "a symlink manifest",
        "a symlink manifest",
    ),
    "widened": ("n int, big bigint", {"delta.enableTypeWidening": "true"}, "type widening", "type widening"),
    "unknown": (
        "n int, big bigint",
        {"delta.universalFormat.enabledFormats": ""},
        "universalFormat",
        "universalFormat",
    ),
}


@pytest.mark.parametrize("asks", ASKS)
def test_what_a_table_asks_of_a_writer_is_honoured_or_refused_by_its_name(
    spark: SparkSession, tmp_path: Path, asks: str
) -> None:
    """For appends and for changes; and delta-rs takes each commit that is not refused."""
    columns, properties, *refused = ASKS[asks]
    path = tmp_path / "table"
    said = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta" + (f" TBLPROPERTIES ({said})" if said else ""))
    rows = spark.createDataFrame([(1, 1)], "n int, big bigint").drop(*(["big"] if asks == "generated" else []))
    writes = (
        lambda: sink_delta.append_rows(rows, path, commit()),
        lambda: rewrite.change_rows(path, commit(), delta_upsert.Upsert(rows, path, ["n"])),
    )
    for name, write in zip(refused, writes, strict=True):
        before = opening.table(path).version()
        if name:
            with pytest.raises(Refused, match=name.replace("(", r"\(").replace(")", r"\)")):
                write()
        else:
            write()
        assert opening.table(path).version() == before + (not name)
    wanted = 0 if refused[0] else 1
    found = spark.read.format("delta").load(str(path)).select("n", "big").collect()
    assert [tuple(row) for row in found] == [(1, 1)] * wanted
