"""A Delta table as a source: what is read of its versions, by which places, and what is refused, by its number."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce.core.errors import Refused
from onlyonce.core.locations import stored_location
from onlyonce.sources import delta_log, record_id
from tests.support import tables
from tests.support.tables import NOTHING, append, behind, compact, ids, of, pages, rows, take


def test_a_file_that_comes_back_is_of_another_version(tmp_path: Path) -> None:
    """RESTORE adds the file under its old name again: its rows are other records."""
    pipeline = of(tmp_path, ignore_deletes=True)
    append(tmp_path, ["a", "b"])
    DeltaTable(str(tmp_path)).delete()
    DeltaTable(str(tmp_path)).restore(0)

    found, _ = take(pipeline)

    assert ids(pipeline, found) == {"a": 2, "b": 2}
    assert len({(row["oo_file"], row["oo_position"]) for row in rows(pipeline, found)}) == 4


def test_no_batch_has_a_file_twice(tmp_path: Path) -> None:
    """What can't be read of a batch is known by its path: two entries would be one refusal."""
    pipeline = of(tmp_path, ignore_deletes=True)
    append(tmp_path, ["a", "b"])
    DeltaTable(str(tmp_path)).delete()
    DeltaTable(str(tmp_path)).restore(0)
    append(tmp_path, ["c"])
    found, _ = take(pipeline)

    cut = list(delta_log.batched_versions(found, 10))

    assert [len(group) for group in cut] == [1, 2]
    assert [file for group in cut for file in group] == found


def test_a_row_is_asked_for_by_version_file_and_number(tmp_path: Path) -> None:
    """The id is the one that receive makes of its place."""
    pipeline = of(tmp_path)
    append(tmp_path, ["a", "b"], partition_by=["shop"])
    found, _ = take(pipeline)
    [row] = rows(pipeline, found[:1])

    asked = record_id.asked(pipeline, [found[0].identity, "0"])

    assert asked.ids == [record_id.of_place(row["oo_file"], row["oo_position"])]
    assert found[0].identity == f"0/{Path(found[0].path).relative_to(tmp_path)}"


def test_partition_columns_come_from_the_log(tmp_path: Path) -> None:
    """Of each type that the table has them in; a null too."""
    records = pa.Table.from_pylist(tables.sales(["a", "b", "c"]), tables.SCHEMA)
    partitioned = records.set_column(1, "shop", pa.array(["x y", None, "ü/z"]))
    write_deltalake(str(tmp_path), partitioned, partition_by=["shop", "cents"])
    pipeline = of(tmp_path)

    found, _ = take(pipeline)

    assert {row["id"]: (row["shop"], row["cents"]) for row in rows(pipeline, found)} == {
        "a": ("x y", 0),
        "b": (None, 1),
        "c": ("ü/z", 2),
    }
    assert {row["oo_rest"] for row in rows(pipeline, found)} == {None}


def test_a_start_leaves_earlier_versions_out(tmp_path: Path) -> None:
    """The named version is read."""
    append(tmp_path, ["a"])
    at = append(tmp_path, ["b"])
    pipeline = of(tmp_path, start=at)

    assert ids(pipeline, take(pipeline)[0]) == {"b": 1}


def test_a_log_that_was_cut_behind_what_is_read_is_no_loss(tmp_path: Path) -> None:
    """Only entries that were not read are missed."""
    pipeline = of(tmp_path)
    append(tmp_path, ["a"])
    _, read = take(pipeline)
    append(tmp_path, ["b"])
    (tmp_path / "_delta_log" / f"{0:020}.json").rename(tmp_path / "away")
    _checkpoint_without_json(tmp_path)

    assert ids(pipeline, take(pipeline, read)[0]) == {"b": 1}


def test_versions_without_rows_are_noted_before_they_are_cut_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they span a page: the next look begins behind them, and their batch has no rows."""
    monkeypatch.setattr(delta_log, "PAGE", 2)
    pipeline = of(tmp_path)
    append(tmp_path, ["a"])
    _, read = take(pipeline)
    for _ in range(2):
        append(tmp_path, [])

    found, later = take(pipeline, read)

    assert [file.lines for file in found] == [0]
    assert later.until == 3
    assert rows(pipeline, found) == []
    delta_log.check_table_there(pipeline, found[0])


def test_a_row_that_does_not_fit_makes_its_file_invalid(tmp_path: Path) -> None:
    """As a Parquet file; the files beside it are read."""
    append(tmp_path, ["a"])
    pipeline = replace(of(tmp_path), schema="id string, shop long, at timestamp, cents long, weight double")

    [found], _ = take(pipeline)

    assert "column shop is string" in str(found.refusal)


def _checkpoint_without_json(path: Path) -> None:
    (path / "away").rename(path / "_delta_log" / f"{0:020}.json")
    DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{0:020}.json").unlink()


def _delete(path: Path) -> None:
    DeltaTable(str(path)).delete("id = 'a'")


def _truncate(path: Path) -> None:
    DeltaTable(str(path)).delete()


def _update(path: Path) -> None:
    DeltaTable(str(path)).update(updates={"cents": "cents + 1"})


def _overwrite(path: Path) -> None:
    write_deltalake(str(path), pa.Table.from_pylist(tables.sales(["z"]), tables.SCHEMA), mode="overwrite")


@pytest.mark.parametrize(
    ("change", "ignore_deletes", "said"),
    [
        (_delete, False, "version 2 rewrites rows"), (_delete, True, "version 2 rewrites rows"), (_truncate, False, "version 2 deletes rows"),
        (_update, False, "version 2 rewrites rows"), (_overwrite, True, "version 2 rewrites rows"),
    ],
)  # fmt: skip
def test_a_version_that_deletes_or_rewrites_is_refused_and_what_came_before_is_read(
    change: Callable[[Path], None], ignore_deletes: bool, said: str, tmp_path: Path
) -> None:
    """Once what came before it is registered; never passed over."""
    append(tmp_path, ["a", "b"])
    append(tmp_path, ["c"])
    change(tmp_path)
    append(tmp_path, ["d"])
    pipeline = of(tmp_path, ignore_deletes=ignore_deletes)

    found = next(pages(pipeline, NOTHING))

    assert ids(pipeline, found) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(Refused, match=said):
        take(pipeline, behind(found, NOTHING))


def test_ignore_deletes_passes_over_a_version_that_only_deletes(tmp_path: Path) -> None:
    """And what is appended later is read."""
    append(tmp_path, ["a"])
    _truncate(tmp_path)
    append(tmp_path, ["b"])
    pipeline = of(tmp_path, ignore_deletes=True)

    assert ids(pipeline, take(pipeline)[0]) == {"a": 1, "b": 1}


def _made_again(path: Path) -> None:
    shutil.rmtree(path)
    for name in ("x", "y", "z"):
        append(path, [name])


def _put_back(path: Path) -> None:
    (path / "_delta_log" / f"{1:020}.json").unlink()


def _vacuumed(path: Path) -> None:
    append(path, ["c"])
    append(path, ["d"])
    compact(path)
    DeltaTable(str(path)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def _log_cut(path: Path) -> None:
    for name in ("c", "d"):
        append(path, [name])
    DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{2:020}.json").unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_made_again, "is another table than the one"), (_put_back, "was put back to an older state"),
        (_vacuumed, "which version 2 of the table has added, does not exist"), (_log_cut, "version 2 is not read, and its log now begins"),
        (shutil.rmtree, "does not exist"),
    ],
)  # fmt: skip
def test_what_would_lose_rows_is_refused(change: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    """Another table, an older one, files that VACUUM took, entries that the log has no more, no table at all."""
    path = tmp_path / "t"
    append(path, ["a"])
    append(path, ["b"])
    pipeline = of(path)
    _, read = take(pipeline)
    change(path)

    with pytest.raises(Refused, match=said):
        take(pipeline, read)


def test_a_data_file_that_goes_between_registry_and_batch_is_refused(tmp_path: Path) -> None:
    """Never one invalid record in the place of its rows."""
    append(tmp_path, ["a"])
    pipeline = of(tmp_path)
    [file], _ = take(pipeline)
    delta_log.check_table_there(pipeline, file)
    Path(file.path).unlink()

    with pytest.raises(Refused, match="which version 0 of the table has added, does not exist"):
        delta_log.check_table_there(pipeline, file)


def test_a_start_behind_the_table_is_refused(tmp_path: Path) -> None:
    """The next version is a start; a later one is a mistake."""
    append(tmp_path, ["a"])

    assert take(of(tmp_path, start=1))[0] == []
    with pytest.raises(Refused, match=r"start=2, and .* is at version 0"):
        take(of(tmp_path, start=2))


def test_versions_of_a_table_that_was_replaced_in_its_log_are_refused(tmp_path: Path) -> None:
    """They are of another table, with an id of its own."""
    append(tmp_path, ["a"])
    entry = tmp_path / "_delta_log" / f"{0:020}.json"
    append(tmp_path, ["b"])
    now = str(DeltaTable(str(tmp_path)).metadata().id)
    entry.rename(tmp_path / "away")
    _checkpoint_without_json(tmp_path)
    entry.write_text('{"metaData":{"id":"other","partitionColumns":[],"schemaString":"{}"}}')

    with pytest.raises(Refused, match=f"with version 0 it was another table than it is now .id other, now {now}"):
        take(of(tmp_path))


def test_a_table_with_column_mapping_is_refused(tmp_path: Path) -> None:
    """Its files have other names for the columns."""
    append(tmp_path, ["a"])
    entry = tmp_path / "_delta_log" / f"{0:020}.json"
    entry.write_text(
        entry.read_text().replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}')
    )

    with pytest.raises(Refused, match="column mapping"):
        take(of(tmp_path))


def test_unread_versions_without_rows_do_not_hide_later_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much waits behind the last version that is looked at is not known, and so it is not 0."""
    monkeypatch.setattr(delta_log, "MOST_UNREAD", 1)
    append(tmp_path, [])
    append(tmp_path, ["a"])

    found = delta_log.unread_versions(of(tmp_path), tmp_path, NOTHING)

    assert (found.records, found.bytes, found.detail) == (None, None, {"versions": 2})


def test_a_stored_place_is_read_as_it_was_stored() -> None:
    """A URL keeps its two slashes, and a path its `~`."""
    for text in ("s3://bucket/table", "/data/~x/table", "~/table"):
        assert str(stored_location(text)) == text
