"""Spark, delta-rs and DuckDB read the same rows of a table after whatever has been committed to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as replaced
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from onlyonce.core.backfill import Span
from onlyonce.sinks import maintain
from onlyonce.sinks.delta import delta_upsert, sink_delta
from onlyonce.tables import commit as tables_commit
from onlyonce.tables import rewrite as tables_rewrite
from tests.support import duckdb_reader

pytestmark = pytest.mark.spark

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "k int, hour int, v string, window_start timestamp, window_date date"
NUMBERS = count()
Row = tuple[int, int, str]


def commit() -> tables_commit.Commit:
    """The next one."""
    return tables_commit.Commit("app", number := next(NUMBERS), f"app/{number}", 1, "")


def test_three_readers_see_the_same_rows_after_each_kind_of_commit(spark: SparkSession, tmp_path: Path) -> None:
    """As the plain list has them: after appends, an upsert with deletes, a replaced span, files that are put together
    in both ways, checkpoints, a vacuum."""
    path = tmp_path / "a table [1]"
    tables_commit.make(path, frame(spark, []).schema, spark, ["window_date"], {})
    there: dict[int, Row] = {}

    def put(rows: list[Row]) -> None:
        there.update({row[0]: row for row in rows})
        sink_delta.append_rows(frame(spark, rows), path, commit())

    def upsert(rows: list[Row], gone: set[int]) -> None:
        there.update({row[0]: row for row in rows})
        for key in gone:
            del there[key]
        given = frame(spark, rows).selectExpr("*", f"k IN ({','.join(map(str, gone))}) AS gone")
        tables_rewrite.change_rows(path, commit(), delta_upsert.Upsert(given, path, ["k"], None, "gone"))

    def replace(hours: tuple[int, int], rows: list[Row]) -> None:
        for key in [row[0] for row in there.values() if hours[0] <= row[1] < hours[1]]:
            del there[key]
        there.update({row[0]: row for row in rows})
        start, stop = (BEGIN + timedelta(hours=hour) for hour in hours)
        span = Span.of(start, stop)
        tables_rewrite.change_rows(path, commit(), delta_upsert.Replace(frame(spark, rows), path, span, "window_date"))

    def rewrite() -> None:
        day = {"window_date": "2026-01-02"}  # the platform's own tables, which are rewritten so, have texts there
        files = [
            replaced(file, partition=day)
            for file in tables_rewrite.rewritten_files(DeltaTable(str(path)), ["k"])
            if str(file.partition["window_date"]) == day["window_date"]
        ]
        assert len(files) > 1
        assert tables_rewrite.rewrite(path, files, "rewritten", 1, lambda rows: rows.sort_by("k"))

    def compact() -> None:
        assert maintain.maintain(path, date(2026, 2, 1), 0, dry_run=False).removed

    steps = [
        lambda: put([(k, k, f"v{k}") for k in range(48)]), lambda: put([(100 + k, 24 + k, "é") for k in range(24)]),
        lambda: upsert([(k, k + 24 * (k % 2), "new") for k in range(10)] + [(900, 3, "")], {0, 900}), checkpoint(path),
        lambda: replace((6, 30), [(200 + hour, hour, "again") for hour in range(6, 30, 2)]),
        lambda: put([(300, 25, "one"), (301, 26, "more")]), rewrite, compact, checkpoint(path),
        lambda: upsert([(300, 1, "moved"), (301, 26, "kept")], {300}),
    ]  # fmt: skip
    for number, step in enumerate(steps):
        step()
        assert read_by_all(spark, path) == dict.fromkeys(("Spark", "delta-rs", "DuckDB"), plain(there)), number
    assert len(there) > 50


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """In one file for each day."""
    given = [(key, hour, value, start := BEGIN + timedelta(hours=hour), start.date()) for key, hour, value in rows]
    return spark.createDataFrame(given, SCHEMA).coalesce(1)


def checkpoint(path: Path) -> Any:
    """Write one, as each writer does now and then."""
    return lambda: DeltaTable(str(path)).create_checkpoint()


def plain(there: dict[int, Row]) -> Counter[tuple[Any, ...]]:
    """The rows as readers give them."""
    starts = {key: BEGIN + timedelta(hours=row[1]) for key, row in there.items()}
    return Counter(
        (*row, int(starts[key].timestamp()) * 1_000_000, str(starts[key].date())) for key, row in there.items()
    )


def read_by_all(spark: SparkSession, path: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """What each reader sees."""
    of_spark = (
        spark.read.format("delta")
        .load(str(path))
        .selectExpr("k", "hour", "v", "unix_micros(window_start)", "cast(window_date AS string)")
    )
    table: pa.Table = DeltaTable(str(path)).to_pyarrow_table()
    micros = table["window_start"].cast(pa.int64()).to_pylist()
    columns = [table[name].to_pylist() for name in ("k", "hour", "v")]
    return {
        "Spark": Counter(map(tuple, of_spark.collect())),
        "delta-rs": Counter(zip(*columns, micros, map(str, table["window_date"].to_pylist()), strict=True)),
        "DuckDB": duckdb_reader.rows(path, "k, hour, v, epoch_us(window_start), CAST(window_date AS VARCHAR)"),
    }
