"""A commit to an Iceberg table is there once, whatever comes between; its table is made, grows, or is refused.

A catalog on SQLite, without a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import tenacity
from pyiceberg import types
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as spark

from onlyonce.api.pipeline import Iceberg, Output
from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import InvariantBroken, Refused, Retryable, Superseded
from onlyonce.core.ownership import Place
from onlyonce.core.units import UnitId
from onlyonce.operate import erase_search
from onlyonce.sinks.base import content, pinned
from onlyonce.sinks.iceberg import iceberg_catalogs, iceberg_commits, sink_iceberg
from onlyonce.sinks.iceberg.iceberg_commits import Commit
from onlyonce.sinks.iceberg.sink_iceberg import StoredInIceberg
from tests.contract.conformance_iceberg import expire
from tests.support.erasure_places import plants

OUTPUT = Output(name="per_shop", transform="a:b", sink=Iceberg(table="sales.per_shop", catalog="lake"))
PLACE = Place("iceberg:lake:sales.per_shop")
WANTED = spark.StructType([spark.StructField("shop", spark.StringType()), spark.StructField("n", spark.LongType())])


def commit(batch: int = 0, content: str = "content", epoch: int = 1) -> Commit:
    """A batch of the output."""
    return Commit("shop/per_shop/1", "per_shop", batch, epoch, f"shop/per_shop/1/{batch}/per_shop/0", content)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog that pyiceberg's variables describe; nobody waits for others."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(iceberg_commits, "WAIT", tenacity.wait_none())
    with iceberg_catalogs.open_catalog("lake") as found:
        yield found


@pytest.fixture
def table(lake: Catalog) -> Table:
    """The output's table, empty."""
    return made(lake, WANTED)


def made(lake: Catalog, schema: spark.StructType) -> Table:
    """The table for rows of these columns."""
    wanted = sink_iceberg.columns_of(OUTPUT, schema)
    found = sink_iceberg.make_table(lake, PLACE.where, wanted)
    sink_iceberg.fit_table(OUTPUT, found, wanted)
    return found


def files(*rows: dict[str, Any]) -> Callable[[Table], list[DataFile]]:
    """A task that writes these rows."""

    def write(table: Table) -> list[DataFile]:
        told = sink_iceberg.writing(table)(iter([pa.RecordBatch.from_pylist(list(rows))]))
        return sink_iceberg.read(row for batch in told for row in batch.to_pylist())

    return write


def seen(table: Table) -> list[tuple[Any, ...]]:
    """The rows that a reader sees, in order."""
    return sorted(tuple(row.values()) for row in table.refresh().scan().to_arrow().to_pylist())


A, B = {"shop": "a", "n": 1}, {"shop": "b", "n": 2}


def between(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Let something happen between the look at the table and the commit, once."""
    put, left = iceberg_commits._put, [work]

    def after(*given: Any) -> None:
        while left:
            left.pop()()
        put(*given)

    monkeypatch.setattr(iceberg_commits, "_put", after)


def test_a_snapshot_says_which_batch_of_which_incarnation_it_is(table: Table) -> None:
    """In its summary; and the table's property has the same."""
    iceberg_commits.once(table, commit(3), files(A))
    snapshot = table.refresh().current_snapshot()
    assert snapshot
    assert snapshot.summary
    told = {
        name: value for name, value in snapshot.summary.additional_properties.items() if name.startswith("onlyonce.")
    }
    assert told == {
        "onlyonce.incarnation": "shop/per_shop/1", "onlyonce.output": "per_shop", "onlyonce.batch": "3", "onlyonce.epoch": "1",
        "onlyonce.unit": "shop/per_shop/1/3/per_shop/0", "onlyonce.content": "content",
    }  # fmt: skip
    assert iceberg_commits.landed(PLACE, "shop/per_shop/1", "per_shop") == 3


def test_a_commit_gives_the_snapshot_that_has_its_rows(table: Table) -> None:
    """Also when it is there already, and of rows in the place of others, which takes a snapshot that deletes before it;
    none once it has expired."""
    made = iceberg_commits.once(table, commit(0), files(A))
    assert made == table.refresh().current_snapshot().snapshot_id  # type: ignore[union-attr]
    replaced = iceberg_commits.once(table, commit(1), files(B), EqualTo("shop", "a"))
    assert replaced == table.refresh().current_snapshot().snapshot_id != made  # type: ignore[union-attr]
    assert iceberg_commits.once(table, commit(1), files(B), EqualTo("shop", "a"), replayed=True) == replaced
    expire(table)
    iceberg_commits.once(table, commit(2), files(A))
    assert iceberg_commits._snapshot(table.refresh().metadata, commit(0)) is None


def test_a_batch_that_a_twin_commits_between_look_and_commit_is_there_once(
    lake: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is conditional, and what came between is looked at before it is tried again."""
    twin = lake.load_table(PLACE.where)
    between(monkeypatch, lambda: iceberg_commits.once(twin, commit(), files(A)))
    iceberg_commits.once(table, commit(), files(A))
    assert seen(table) == [("a", 1)]


def test_rows_that_others_commit_between_look_and_commit_stay(
    lake: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another output's, a person's: both are there."""
    between(monkeypatch, lambda: lake.load_table(PLACE.where).append(pa.Table.from_pylist([B])))
    iceberg_commits.once(table, commit(), files(A))
    assert seen(table) == [("a", 1), ("b", 2)]


def test_a_table_that_is_made_again_between_look_and_commit_is_refused(
    lake: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one has no property of an earlier batch."""

    def make_again() -> None:
        lake.drop_table(PLACE.where)
        made(lake, WANTED).append(pa.Table.from_pylist([B]))

    between(monkeypatch, make_again)
    with pytest.raises(Refused, match="is another table than the one that the output wrote to"):
        iceberg_commits.once(table, commit(), files(A))
    assert seen(lake.load_table(PLACE.where)) == [("b", 2)]


def column_again(lake: Catalog) -> None:
    """Drop a column and add one of the same name, as a team does: it has another id."""
    for change in ("delete_column", "add_column"):
        with lake.load_table(PLACE.where).update_schema() as schema:
            getattr(schema, change)(("n",), *([LongType()] if change == "add_column" else []))


@pytest.mark.parametrize("moment", ["the tasks write", "the commit is made"])
def test_files_for_other_columns_than_the_table_has_are_not_committed(
    lake: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A reader would see null in a column whose id the files do not have. The next attempt has the new columns."""
    written = files(A)

    def write(there: Table) -> list[DataFile]:
        found = written(there)
        if moment == "the tasks write":
            column_again(lake)
        return found

    if moment == "the commit is made":
        between(monkeypatch, lambda: column_again(lake))
    with pytest.raises(Retryable, match="columns were changed while a batch was written"):
        iceberg_commits.once(table, commit(), write)
    assert seen(lake.load_table(PLACE.where)) == []

    iceberg_commits.once(lake.load_table(PLACE.where), commit(), files(A), replayed=True)
    assert seen(lake.load_table(PLACE.where)) == [("a", 1)]


@pytest.mark.parametrize("kind", [types.FloatType(), types.DoubleType()], ids=str)
def test_a_table_that_is_partitioned_by_floats_is_refused(lake: Catalog, kind: types.IcebergType) -> None:
    """pyiceberg would write a row with 0.0 twice if there is one with -0.0."""
    lake.create_namespace("sales")
    parts = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
    found = lake.create_table(PLACE.where, Schema(types.NestedField(1, "x", kind)), partition_spec=parts)
    with pytest.raises(Refused, match=rf"is partitioned by x, a {kind}"):
        sink_iceberg.refuse_columns(OUTPUT, found)


def test_rows_of_files_that_differ_from_the_unit_are_not_committed(lake: Catalog) -> None:
    """pyiceberg writes both rows into a file for each of two equal partitions; the tasks received them once."""
    lake.create_namespace("sales")
    parts = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
    found = lake.create_table(PLACE.where, Schema(types.NestedField(1, "x", types.DoubleType())), partition_spec=parts)
    rows = pa.table({"x": [0.0, -0.0, 1.0], content.HASH: [1, 2, 3]})
    meant = content.received(
        rows.column_names,
        [
            row[sink_iceberg.TALLY]
            for part in sink_iceberg.writing(found)(iter(rows.to_batches()))
            for row in part.to_pylist()
        ],
    )
    unit = UnitId("shop/per_shop/1", 0, "per_shop", 0)

    with pytest.raises(InvariantBroken, match=r"has 3 rows .* wrote 5 rows .* or wrote them twice"):
        sink_iceberg.written_files(rows, found, partial(pinned.check, unit, meant))


def test_a_batch_whose_snapshots_have_expired_is_not_written_again(table: Table) -> None:
    """The property stays."""
    iceberg_commits.once(table, commit(), files(A))
    expire(table)
    iceberg_commits.once(table, commit(), files(A), replayed=True)
    assert seen(table) == [("a", 1)]


def test_a_replay_finds_the_batch_by_its_snapshot_where_the_property_is_gone(table: Table) -> None:
    """Somebody has put the table's properties back."""
    iceberg_commits.once(table, commit(), files(A))
    with table.transaction() as change:
        change.remove_properties(commit().key)
    iceberg_commits.once(table, commit(), files(A), replayed=True)
    assert seen(table) == [("a", 1)]


def test_other_rows_under_a_batch_that_is_there_stop_it(table: Table) -> None:
    """They are compared, not skipped."""
    iceberg_commits.once(table, commit(), files(A))
    with pytest.raises(InvariantBroken, match="should hold"):
        iceberg_commits.once(table, commit(content="other"), files(B), replayed=True)
    assert seen(table) == [("a", 1)]


def test_a_driver_that_was_overtaken_commits_nothing(table: Table) -> None:
    """The epoch of the last commit is in the property that is compared before each try."""
    iceberg_commits.once(table, commit(0, epoch=2), files(A))
    with pytest.raises(Superseded, match="epoch 2; this is 1"):
        iceberg_commits.once(table, commit(1, epoch=1), files(B))
    assert seen(table) == [("a", 1)]


def test_a_batch_behind_the_newest_of_its_incarnation_stops(table: Table) -> None:
    """One of the two was put back to another moment."""
    iceberg_commits.once(table, commit(5), files(A))
    with pytest.raises(InvariantBroken, match="has batch 5"):
        iceberg_commits.once(table, commit(4), files(B))
    assert seen(table) == [("a", 1)]


def test_a_property_that_somebody_has_changed_stops_the_batch(table: Table) -> None:
    """It is not taken for none."""
    with table.transaction() as change:
        change.set_properties({commit().key: "7"})
    with pytest.raises(InvariantBroken, match="can't be read"):
        iceberg_commits.once(table, commit(), files(A))


def test_others_without_end_are_told_and_leave_nothing_of_the_batch(
    lake: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends, to be tried again."""
    put, other = iceberg_commits._put, lake.load_table(PLACE.where)

    def after(*given: Any) -> None:
        other.append(pa.Table.from_pylist([B]))
        put(*given)

    monkeypatch.setattr(iceberg_commits, "_put", after)
    monkeypatch.setattr(iceberg_commits, "BETWEEN", 3)
    with pytest.raises(Retryable, match="3 times"):
        iceberg_commits.once(table, commit(), files(A))
    assert seen(table) == [("b", 2)] * 3


def test_replaced_rows_go_and_come_in_one_commit(lake: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of others in the same file stay, and those that come between go too where they are of the window."""
    iceberg_commits.once(table, commit(0), files(A, B))
    moments = []
    monkeypatch.setattr(iceberg_commits, "passing", lambda point: moments.append(seen(lake.load_table(PLACE.where))))
    new = {"shop": "a", "n": 10}
    between(
        monkeypatch, lambda: iceberg_commits.once(lake.load_table(PLACE.where), commit(1), files({"shop": "a", "n": 3}))
    )
    backfill = Commit("shop/per_shop/backfill", "per_shop", 0, 1, "unit", "content")
    iceberg_commits.once(table, backfill, files(new), EqualTo("shop", "a"))
    assert seen(table) == [("a", 10), ("b", 2)]
    assert all(
        moment in ([("a", 1), ("b", 2)], [("a", 1), ("a", 3), ("b", 2)], [("a", 10), ("b", 2)]) for moment in moments
    )


def test_rows_are_replaced_by_none(table: Table) -> None:
    """A window that has none any more."""
    iceberg_commits.once(table, commit(0), files(A, B))
    iceberg_commits.once(table, commit(1), lambda there: [], EqualTo("shop", "a"))
    assert seen(table) == [("b", 2)]


def test_a_new_column_is_added_and_old_rows_have_none_of_it(lake: Catalog, table: Table) -> None:
    """At the end of the table."""
    iceberg_commits.once(table, commit(0), files(A))
    grown = made(lake, spark.StructType([spark.StructField("tags", spark.ArrayType(spark.StringType())), *WANTED]))
    iceberg_commits.once(grown, commit(1), files(B | {"tags": ["x", None]}))
    assert seen(grown) == [("a", 1, None), ("b", 2, ["x", None])]


def test_rows_come_into_the_partitions_of_a_table_by_columns_as_they_are(lake: Catalog) -> None:
    """Each file has the rows of one."""
    lake.create_namespace("sales")
    lake.create_table(
        PLACE.where, two(), partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "shop"))
    )
    table = made(lake, WANTED)
    iceberg_commits.once(table, commit(), files(A, B, A))
    assert seen(table) == [("a", 1), ("a", 1), ("b", 2)]
    parts = table.inspect.partitions().to_pylist()
    assert sorted((part["partition"]["shop"], part["record_count"]) for part in parts) == [("a", 2), ("b", 1)]


def two(*, required: bool = False) -> Schema:
    """The columns of the table, as a team makes it."""
    return Schema(
        NestedField(1, "shop", StringType(), required=False), NestedField(2, "n", LongType(), required=required)
    )


def test_what_can_not_be_written_is_refused_before_anything_is(lake: Catalog, table: Table) -> None:
    """Another type; a required column that the rows lack; a type that Iceberg has none for; nothing is added."""
    changed = spark.StructType(
        [spark.StructField("n", spark.StringType()), spark.StructField("more", spark.LongType())]
    )
    with pytest.raises(Refused, match=r"column n is string, but in sales\.per_shop it is long"):
        made(lake, changed)
    with pytest.raises(Refused, match="column gap is interval"):
        made(lake, spark.StructType([spark.StructField("gap", spark.DayTimeIntervalType())]))
    with pytest.raises(Refused, match="column parts has structs in a list or map"):
        made(lake, spark.StructType([spark.StructField("parts", spark.ArrayType(WANTED))]))
    assert table.refresh().schema().column_names == ["shop", "n"]


def test_a_batch_stops_if_its_table_lost_a_column_during_the_run_or_requires_another(
    lake: Catalog, table: Table
) -> None:
    """Its values are not left out; both before there is a unit. Capitals make no other column, and a column of the
    team's own that nothing requires is null."""
    writer = object.__new__(sink_iceberg.IcebergWriter)
    writer._output, writer.place = OUTPUT, PLACE
    rows: Any = SimpleNamespace(columns=["SHOP", "n"])
    with table.update_schema() as change:
        change.add_column("theirs", LongType())
    writer._check(lake.load_table(PLACE.where), rows)
    with table.update_schema() as change:
        change.delete_column("n")
    with pytest.raises(Refused, match=r"sales\.per_shop has no column n any more") as told:
        writer._check(lake.load_table(PLACE.where), rows)
    assert told.value.data == "nothing of this batch was written to the table"
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("n", LongType())
        change.add_column("till", LongType(), required=True)
    with pytest.raises(Refused, match=r"sales\.per_shop requires the column till \(NOT NULL\)") as told:
        writer._check(lake.load_table(PLACE.where), rows)
    assert told.value.data == "nothing of this batch was written to the table"


def test_a_catalog_that_is_not_configured_is_refused() -> None:
    """With what would describe it: pyiceberg's variables describe none whose name has an underscore."""
    with pytest.raises(Refused, match="no Iceberg catalog 'nowhere'") as told:
        iceberg_catalogs.catalog("nowhere")
    assert "PYICEBERG_CATALOG__NOWHERE__URI" in told.value.hint
    with pytest.raises(Refused, match="no Iceberg catalog 'no_where'") as told:
        iceberg_catalogs.catalog("no_where")
    assert "PYICEBERG_CATALOG" not in told.value.hint


def test_a_catalog_that_can_not_be_opened_as_configured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no error that another attempt heals."""
    monkeypatch.setenv("PYICEBERG_CATALOG__ODD__TYPE", "odd")
    with pytest.raises(Refused, match="'odd' can't be opened as it is configured here"):
        iceberg_catalogs.catalog("odd")


def test_a_catalog_that_is_away_is_asked_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command again will do."""
    monkeypatch.setenv("PYICEBERG_CATALOG__AWAY__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__AWAY__URI", "http://127.0.0.1:1")
    with pytest.raises(Retryable, match="of away does not answer"):
        iceberg_catalogs.catalog("away")


def test_a_table_belongs_to_one_output(lake: Catalog, table: Table) -> None:
    """Whoever claims it later is refused, and may have loaded it before it was claimed; its own output may claim it
    again."""
    early = lake.load_table(PLACE.where)
    iceberg_catalogs.claim_table(table, "shop/per_shop of platform 1")
    iceberg_catalogs.claim_table(lake.load_table(PLACE.where), "shop/per_shop of platform 1")
    with pytest.raises(Refused, match="belongs to shop/per_shop of platform 1"):
        iceberg_catalogs.claim_table(lake.load_table(PLACE.where), "shop/per_shop of platform 2")
    iceberg_catalogs.claim_table(early, "shop/other of platform 1")
    with pytest.raises(Refused, match="belongs to shop/other of platform 1"):
        iceberg_catalogs.check_owner(table.refresh(), "shop/per_shop of platform 1")


def test_a_dropped_table_is_gone_with_its_files_and_dropped_twice_is_no_error(table: Table) -> None:
    """As `onlyonce drop --tables` does it."""
    iceberg_commits.once(table, commit(), files(A))
    [file] = [task.file.file_path for task in table.refresh().scan().plan_files()]
    assert iceberg_catalogs.of_target(PLACE)
    iceberg_catalogs.drop(PLACE)
    iceberg_catalogs.drop(PLACE)
    assert not iceberg_catalogs.of_target(PLACE)
    assert not Path(file.removeprefix("file://")).exists()


@plants("snapshots of Iceberg")
def test_each_file_of_each_snapshot_is_searched_for_an_erasure(table: Table) -> None:
    """Rows of the table as it is, rows that older snapshots have, the bounds in manifests, which have the beginning of
    a long value only, and files without a snapshot."""
    who = "a.person.with.a.long.name@example.org"
    iceberg_commits.once(table, commit(0), files({"shop": who, "n": 1}))
    iceberg_commits.once(table, commit(1), files(B), EqualTo("shop", who))
    iceberg_commits.once(table, commit(2), files({"shop": who, "n": 2}))
    [orphan] = files({"shop": who, "n": 3})(table)
    mentions = Mentions(erasure.read_conditions(f"shop = '{who}'", {"shop": "string"}))

    places = {
        file.at: place.goes
        for file in StoredInIceberg(PLACE.text).files()
        if (place := erase_search.search_file(file, mentions))
    }

    current = {task.file.file_path for task in table.refresh().scan().plan_files()}
    data = {at for at in places if at.endswith(".parquet")}
    assert (len(data), len(data & current)) == (3, 1)
    assert [at for at, said in places.items() if "no snapshot has it" in said] == [orphan.file_path]
    assert {at for at, said in places.items() if "delete these rows in your table" in said} == data & current
    assert any(at.endswith(".avro") for at in places)
    assert all("expire_snapshots" in said for at, said in places.items() if at not in {*current, orphan.file_path})
