"""The tables that the platform keeps next to an output's table: deleted keys, and what each window has added. If one is
lost, a new one would be empty, and an older row could come back after its deletion."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce import settings
from onlyonce.commitlog import units
from onlyonce.core.errors import InvariantBroken
from onlyonce.database.connect import run
from onlyonce.run import reset
from tests.contract.conformance_mysql import VARIABLE
from tests.support.ended_runs import ended_at
from tests.support.mariadb import MariaDB
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

DECLARED = """
from datetime import timedelta
from onlyonce.api.pipeline import Delta, Files, MySQL, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed
MINUTE = timedelta(minutes=1)
OF = "tests.spark.sinks.test_kept_tables:"
NEWEST = dict(write="upsert", keys="key", sequence_by="position", delete_when="gone")
PIPELINES = [Pipeline(
    name="shop", schema="id string, key string, at timestamp, position long, gone boolean", source=Files(),
    record_id="id", event_time="at", outputs=(
        Output(name="in_delta", transform=OF + "changes", sink=Delta(**NEWEST)),
        Output(name="in_postgres", transform=OF + "changes", sink=Postgres(table="results.newest", **NEWEST)),
        Output(name="in_mysql", transform=OF + "changes", sink=MySQL(table="newest", connection="TEST_MYSQL", **NEWEST)),
        Output(name="sums", transform=OF + "sums", window=Fixed(MINUTE), watermark_delay=MINUTE, on_backfill="correct",
               sink=Postgres(table="results.sums", write="increment", keys="key")),
    ))]
"""
START = datetime(2026, 1, 1, tzinfo=UTC)
KEPT = [
    ("in_delta", "delta", "in_delta_deleted"),
    ("in_postgres", "postgres", "newest_deleted"),
    ("in_mysql", "mysql", "newest_deleted"),
    ("sums", "postgres", "sums_by_window"),
]
"""Each output with the kind and name of the table that the platform keeps for it."""


def changes(rows: DataFrame) -> DataFrame:
    """Each change of a key."""
    return rows.select("key", "position", "gone")


def sums(rows: DataFrame) -> DataFrame:
    """How many changes each key has."""
    return rows.groupBy("oo_window", "key").agg(F.count(F.lit(1)).alias("changes"))


def change(number: int, key: str, position: int, *, gone: bool = False) -> dict[str, Any]:
    """One record."""
    at = (START + timedelta(minutes=3 * number)).isoformat()
    return {"id": f"c{number}", "key": key, "at": at, "position": position, "gone": gone}


def in_mysql(statement: str) -> list[tuple[Any, ...]]:
    """The rows of a statement in MySQL."""

    def ask(connection: Any) -> list[tuple[Any, ...]]:
        found = connection.exec_driver_sql(statement)
        return list(map(tuple, found)) if found.returns_rows else []

    return run(units.database_of(VARIABLE), ask)


def rename(platform: Platform, kind: str, table: str, name: str) -> None:
    """Give a table another name, as `mv` or ALTER TABLE does it."""
    if kind == "delta":
        folder = settings.tables_dir() / "shop"
        (folder / table).rename(folder / name)
    elif kind == "mysql":
        in_mysql(f"RENAME TABLE {table} TO {name}")
    else:
        platform.sql(f"ALTER TABLE results.{table} RENAME TO {name}")


def check_newest(platform: Platform, wanted: set[tuple[str, int]]) -> None:
    """Each of the three tables has these keys with these positions."""
    assert {(row.key, row.position) for row in platform.table("shop/in_delta").itertuples()} == wanted
    assert multiset(platform.sql("SELECT key, position FROM results.newest")) == Counter(wanted)
    assert Counter(in_mysql("SELECT `key`, position FROM newest")) == Counter(wanted)


@pytest.fixture
def declared(platform: Platform, mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform with this pipeline, whose input has not come yet."""
    (platform.home / "declared.py").write_text(DECLARED)
    platform.give(
        monkeypatch,
        ONLYONCE_PIPELINES=str(platform.home / "declared.py"),
        **{VARIABLE: mariadb.url(mariadb.new_database())},
    )
    return platform


def test_lost_table_of_deleted_keys_or_windows_is_refused(declared: Platform, spark: object) -> None:
    """Nothing is written until it is put back; then an older change of a deleted key changes nothing."""
    declared.put("shop", "0.jsonl", [change(0, "a", 5), change(1, "b", 1)])
    declared.run("shop")
    declared.put("shop", "1.jsonl", [change(2, "a", 9, gone=True)])
    declared.run("shop")
    check_newest(declared, {("b", 1)})
    for number, (output, kind, table) in enumerate(KEPT):
        declared.put("shop", f"2-{number}.jsonl", [change(3 + number, "a", 5 + number)])
        rename(declared, kind, table, "aside")
        if output == "in_postgres":
            reset.new(f"shop/{output}", yes=True)  # the batches of the incarnation before vouch for the table too

        with pytest.raises(InvariantBroken, match=rf"{table} is gone; it keeps") as refused:
            declared.run("shop")

        assert f"drop shop --output {output} --tables" in refused.value.hint
        rename(declared, kind, "aside", table)
    declared.run("shop")

    check_newest(declared, {("b", 1)})
    assert declared.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty


def test_kept_table_is_made_again_before_the_first_batch(
    declared: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends there has deleted no key."""
    declared.put("shop", "0.jsonl", [change(0, "a", 5, gone=True), change(1, "b", 1)])
    assert ended_at(declared, monkeypatch, "output-before-begin")
    shutil.rmtree(settings.tables_dir() / "shop" / KEPT[0][-1])

    declared.run("shop")

    check_newest(declared, {("b", 1)})
