"""Partition columns of a team's Delta table: each row is read back once with its value, by readers that share no code
with ours."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.core.errors import Refused
from onlyonce.sinks.delta import delta_files, delta_upsert, sink_delta
from onlyonce.tables import commit as tables_commit
from onlyonce.tables import rewrite
from tests.support import duckdb_reader

pytestmark = pytest.mark.spark

CASE = Path(__file__).parents[2] / "cases/delta-partition-values/values"

STRINGS = [
    "plain", "a/b", "x=1", "50%", "%2F", "über", "  lead", "a:b", "{x}", "#h", "q?", "back\\s", '"q"', "o'c", "null", "..", ".", "a\nb", "𠮷", "long" * 100,
    "2026-01-01 00:00:00", "C:\\", "__HIVE_DEFAULT_PARTITION__",
]  # fmt: skip
VALUES = {
    "string": ["'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'" for text in STRINGS],
    "double": ["double('NaN')", "0D", "-0D", "double('-Infinity')", "1e10D", "0.1D"],
    "float": ["float('NaN')", "0F", "-0F", "0.1F"],
    "decimal(10,2)": ["-1.50", "-0.05", "0.00", "12345678.90"],
    "decimal(30,12)": ["0.000000000001", "-0.000000000001", "0"],
    "date": ["DATE'0001-01-01'", "DATE'0999-12-31'", "DATE'1500-02-28'", "DATE'9999-12-31'"],
    "timestamp": [
        "TIMESTAMP'0999-12-31 01:02:03.000004'",
        "TIMESTAMP'0001-01-01 00:00:00'",
        "TIMESTAMP'1500-01-01 00:00:00.5'",
        "TIMESTAMP'2026-01-01 00:00:00'",
    ],
    "timestamp_ntz": ["TIMESTAMP_NTZ'0999-12-31 01:02:03.000004'", "TIMESTAMP_NTZ'2026-01-01 00:00:00'"],
    "boolean": ["true", "false"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "binary": ["X'616263'"],
}
"""Values of each type, as SQL."""
NAMES = {f"p{number}": kind for number, kind in enumerate(VALUES)}


def rows_of(spark: SparkSession) -> DataFrame:
    """Return rows in which each value of each type occurs, and null."""
    number = max(map(len, VALUES.values())) + 1
    columns = [["NULL", *values, *["NULL"] * number][:number] for values in VALUES.values()]
    rows = ", ".join(f"({at}, {', '.join(row)})" for at, row in enumerate(zip(*columns, strict=True)))
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(n, {', '.join(NAMES)})")
    return frame.selectExpr(
        "CAST(n AS int) AS n", *[f"CAST({name} AS {kind}) AS {name}" for name, kind in NAMES.items()]
    )


def by_tasks(rows: DataFrame, path: Path, commit: tables_commit.Commit) -> None:
    """Append by Spark's tasks."""
    sink_delta.append_rows(rows, path, commit)


def by_the_driver(rows: DataFrame, path: Path, commit: tables_commit.Commit) -> None:
    """Append as a small batch."""
    sink_delta.append_rows(sink_delta.stored_batch(rows, DeltaTable(str(path))).toArrow(), path, commit)


def commit(number: int) -> tables_commit.Commit:
    """Return a commit of its own."""
    return tables_commit.Commit("app", number, f"app/{number}", 1, "")


def read(path: Path) -> dict[str, Counter[Any]]:
    """Return the rows as DataFusion (delta-rs) and DuckDB read them, by the text of their values."""
    columns = ", ".join(f"arrow_cast({name}, 'Utf8') AS {name}" for name in NAMES)
    table = QueryBuilder().register("t", DeltaTable(str(path))).execute(f"SELECT n, {columns} FROM t").read_all()
    return {
        "delta-rs": Counter(tuple(row.values()) for row in pa.table(table).to_pylist()),
        "DuckDB": duckdb_reader.rows(path, ", ".join(["n", *(f"CAST({name} AS VARCHAR)" for name in NAMES)])),
    }


def test_a_partition_value_is_read_back_once(spark: SparkSession, tmp_path: Path) -> None:
    """As from a table that is not partitioned, whoever writes it; an upsert of the same keys finds each row."""
    rows = rows_of(spark).cache()
    plain = tmp_path / "plain"
    tables_commit.make(plain, rows.schema, spark, [], {})
    by_tasks(rows, plain, commit(0))
    wanted = read(plain)
    assert len(wanted["DuckDB"]) == rows.count()
    assert {row[1] for row in wanted["delta-rs"]} == {None, *STRINGS}

    for write in (by_tasks, by_the_driver):
        path = tmp_path / write.__name__
        tables_commit.make(path, rows.schema, spark, [*NAMES], {})
        write(rows, path, commit(0))
        assert read(path) == wanted
        rewrite.change_rows(path, commit(1), delta_upsert.Upsert(rows, path, ["n", *NAMES]))
        assert read(path) == wanted


@pytest.mark.parametrize("value", ["''", "X''", "X'FF'"])
def test_a_value_that_no_reader_gets_back_is_refused(spark: SparkSession, tmp_path: Path, value: str) -> None:
    """Delta's protocol reads an empty string in a partition column as null."""
    rows = spark.sql(f"SELECT 1 AS n, {value} AS p")
    tables_commit.make(tmp_path / "table", rows.schema, spark, ["p"], {})
    output: Any = SimpleNamespace(name="o", sink=SimpleNamespace(write="append"))
    with pytest.raises(Refused, match="partition column p"):
        delta_files.check_fit(output, tmp_path / "table", rows, rows)


@pytest.mark.whole  # its values are among STRINGS
def test_values_of_the_reported_case_are_read_back_once(spark: SparkSession, tmp_path: Path) -> None:
    """`tests/cases/delta-partition-values`: each row with its value, once, also after an upsert; the empty string is
    refused."""
    lines = (CASE / "input/r.jsonl").read_text().splitlines()
    given = [(record["id"], record["part"], record["n"]) for record in map(json.loads, lines)]
    rows = spark.createDataFrame(given, "id string, part string, n long")
    fits = rows.filter("part IS NULL OR part <> ''").cache()
    output: Any = SimpleNamespace(name="o", sink=SimpleNamespace(write="append"))
    for write in (by_tasks, by_the_driver):
        path = tmp_path / write.__name__
        tables_commit.make(path, rows.schema, spark, ["part"], {})
        with pytest.raises(Refused, match="partition column part"):
            delta_files.check_fit(output, path, rows, rows)
        for number, raised in enumerate((0, 100)):
            if number:
                rewrite.change_rows(
                    path,
                    commit(1),
                    delta_upsert.Upsert(fits.withColumn("n", F.expr(f"n + {raised}")), path, ["id", "part"]),
                )
            else:
                write(fits, path, commit(0))
            wanted = Counter((name, part, n + raised) for name, part, n in given if part != "")
            assert Counter(duckdb_reader.rows(path, "id, part, n")) == wanted
            held = QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT id, part, n FROM t").read_all()
            assert Counter(tuple(row.values()) for row in pa.table(held).to_pylist()) == wanted
