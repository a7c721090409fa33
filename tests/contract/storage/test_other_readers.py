"""What we write of a Delta table's files in footers and in the log, as readers skip files by it that share no code with
ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog

from onlyonce.sinks import maintain
from onlyonce.sinks.delta import delta_files, sink_delta
from onlyonce.sinks.iceberg import sink_iceberg
from onlyonce.tables import arrow_files, opening, own_tables, rewrite
from onlyonce.tables.commit import Commit

NAN = float("nan")
COMMIT = Commit("𠮷/receive", 0, "𠮷/0", 1, "as meant")
SHOPS = ["𠮷野家", "é", "z" * 40, "𠮷" * 40]
"""A string is cut after 32 characters, and its upper bound ends in a character of plane 16."""


def own(path: Path, rows: pa.Table) -> None:
    """Append as to a table of the platform's own."""
    own_tables.append_rows([rows.to_pylist()], path, COMMIT)


def a_teams(path: Path, rows: pa.Table) -> None:
    """Append as the driver does to a team's table."""
    sink_delta.append_rows(rows, path, COMMIT)


def compacted(path: Path, rows: pa.Table) -> None:
    """Rewrite a file of a table of the platform's own."""
    own(path, rows)
    old = rewrite.rewritten_files(DeltaTable(str(path)), [])
    assert rewrite.rewrite(path, old, "𠮷/compact", 1, lambda held: held)


WAYS = pytest.mark.parametrize("way", [own, a_teams, compacted])
Way = Callable[[Path, pa.Table], None]


def table(path: Path, rows: pa.Table, way: Way) -> DeltaTable:
    """Return a new table with the rows."""
    write_deltalake(path, rows.schema.empty_table())
    way(path, rows)
    return DeltaTable(str(path))


def found(table: DeltaTable, condition: str) -> list[Any]:
    """Return the rows that DataFusion finds by the table's log and footers."""
    rows = QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {condition}").read_all()
    return [tuple(row.values()) for row in pa.table(rows).to_pylist()]


@WAYS
@pytest.mark.parametrize("shop", SHOPS)
def test_a_string_of_any_plane_is_found(tmp_path: Path, way: Way, shop: str) -> None:
    """arrow-json reads the escaped pair of a surrogate as another string."""
    held = table(tmp_path / "table", pa.table({"shop": [shop]}), way)

    assert found(held, f"shop = '{shop}'") == [(shop,)]
    log = "".join(file.read_text() for file in (tmp_path / "table" / "_delta_log").glob("*.json"))
    assert "\\ud842" not in log


def test_rows_of_a_small_batch_are_read_back_by_their_partition(tmp_path: Path) -> None:
    """Null and the name of its folder in Hive are two values, and so are the two zeros; a value longer than a file's
    name is one."""
    values = [None, "__HIVE_DEFAULT_PARTITION__", "..", "a/b%=é", "z" * 300, None]
    rows = pa.table({"part": values, "zero": [0.0, -0.0, NAN, 0.0, 0.0, NAN], "n": range(6)})
    write_deltalake(tmp_path / "table", rows.schema.empty_table(), partition_by=["part", "zero"])
    texts = [json.dumps([value, str(zero)]) for value, zero in zip(values, rows["zero"].to_pylist(), strict=True)]
    placed = rows.append_column(delta_files.PARTITION, pa.array(texts))
    sink_delta.append_rows(placed, tmp_path / "table", COMMIT)

    held = DeltaTable(tmp_path / "table")
    assert sorted(map(str, found(held, "true"))) == sorted(map(str, zip(*rows.to_pydict().values(), strict=True)))


@WAYS
def test_a_nan_is_found_where_readers_order_it(tmp_path: Path, way: Way) -> None:
    """NaN comes after every number; a column without one has its bounds, in the log and in the footer."""
    rows = pa.table({"amount": [1.0, NAN], "whole": [1.0, 2.0], "inner": [{"x": NAN, "y": 1.0}, {"x": 3.0, "y": 2.0}]})
    held = table(tmp_path / "table", rows, way)

    assert len(found(held, "amount > 100")) == 1
    assert len(found(held, "whole > 100")) == 0
    stats = pa.table(held.get_add_actions(flatten=True)).to_pylist()[0]
    assert {name: stats.get(f"max.{name}") for name in ("amount", "whole", "inner.x", "inner.y")} == {
        "amount": None,
        "whole": 2.0,
        "inner.x": None,
        "inner.y": 2.0,
    }
    file = next(file for file in held.file_uris())
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet('{file}') WHERE amount > 100").fetchall() == [(1,)]
    footer = parquet.read_metadata(file).row_group(0)
    assert [footer.column(at).statistics is None for at in range(footer.num_columns)] == [True, False, True, False]


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_nan_is_found_after_maintenance(tmp_path: Path, is_nested: bool) -> None:
    """delta-rs compacts by a writer of its own, which leaves NaN out of the bounds."""
    rows = pa.table({"amount": [1.0, NAN], "n": [1, 2], "shop": ["a", "b"], "window_date": [date(2026, 1, 1)] * 2})
    rows = rows.append_column("inner", pa.array([{"x": NAN}, {"x": 1.0}])) if is_nested else rows
    for _ in range(2):
        write_deltalake(tmp_path / "table", rows, mode="append", partition_by=["window_date"])
    maintain.maintain(tmp_path / "table", date(2026, 1, 2), 168, dry_run=False)

    held = DeltaTable(tmp_path / "table")
    assert len(found(held, "amount > 100")) == 2
    assert not is_nested or len(found(held, "inner.x > 100")) == 2
    [stats] = pa.table(held.get_add_actions(flatten=True)).to_pylist()
    assert (stats["num_records"], stats["max.n"], stats["max.shop"], stats["max.amount"]) == (4, 2, "b", None)
    footer = parquet.read_metadata(held.file_uris()[0]).row_group(0)
    assert [footer.column(at).statistics is None for at in range(footer.num_columns)] == [
        True,
        False,
        False,
        *([True] if is_nested else []),
    ]


def test_a_nan_of_an_iceberg_table_is_found(tmp_path: Path) -> None:
    """Engines skip files by the manifest, and row groups by the footer."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=str(tmp_path))
    catalog.create_namespace("sales")
    rows = pa.table(
        {
            "amount": [1.0, NAN],
            "whole": [1.0, 2.0],
            "inner": [{"x": NAN, "y": 1.0}, {"x": 3.0, "y": 2.0}],
            "list": [[NAN], [1.0]],
        }
    )
    table = catalog.create_table("sales.all", rows.schema)
    written = sink_iceberg.of_metadata(table.metadata, table.io)(iter(rows.to_batches()))

    [file] = sink_iceberg.read([row for batch in written for row in batch.to_pylist()])

    assert [table.schema().find_column_name(at) for at in file.upper_bounds] == ["whole"]
    footer = parquet.read_metadata(file.file_path.removeprefix("file://")).row_group(0)
    assert [footer.column(at).path_in_schema for at in range(footer.num_columns) if footer.column(at).statistics] == [
        "whole",
        "inner.y",
    ]


def test_a_nan_that_comes_later_than_the_first_row_group_is_found(tmp_path: Path) -> None:
    """A writer that does not know all rows gives no float column bounds."""
    rows = pa.table({"amount": [1.0], "n": [1]})
    with arrow_files.writer(tmp_path / "file.parquet", rows.schema) as file:
        file.write_table(rows)
        file.write_table(pa.table({"amount": [NAN], "n": [2]}))

    assert duckdb.sql(f"SELECT n FROM read_parquet('{tmp_path}/file.parquet') WHERE amount > 100").fetchall() == [(2,)]
    assert parquet.read_metadata(tmp_path / "file.parquet").row_group(0).column(1).statistics.max == 1


def test_lists_and_maps_have_bounds_without_a_nan(tmp_path: Path) -> None:
    """Each leaf of a column is judged by its own values, also in a slice."""
    kind = pa.map_(pa.string(), pa.float64())
    rows = pa.table({
        "list": [[NAN], [1.0], [2.0]], "named": pa.array([[("a", 1.0)], [("b", NAN)], []], kind), "a.b": [1.0, 2.0, 3.0], "n": [1, 2, 3],
    })  # fmt: skip
    arrow_files.write(tmp_path / "all", rows)
    arrow_files.write(tmp_path / "some", rows.slice(2))

    def bounded(name: str) -> list[str]:
        group = parquet.read_metadata(tmp_path / name).row_group(0)
        return [
            group.column(at).path_in_schema
            for at in range(group.num_columns)
            if group.column(at).statistics is not None
        ]

    assert bounded("all") == ["named.key_value.key", "a.b", "n"]
    assert {"list.list.element", "a.b", "n"} <= {*bounded("some")}


def test_a_note_is_read_back_as_it_was_written() -> None:
    """Names of pipelines may have characters of any plane."""
    assert opening.note(COMMIT.note())["app_id"] == "𠮷/receive"
    assert "𠮷/receive" in COMMIT.note()
