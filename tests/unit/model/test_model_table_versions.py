"""What a version of a Delta table has for a reader, by the actions of its log: files, or a refusal by its number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onlyonce.core import table_versions
from onlyonce.core.errors import Refused
from onlyonce.core.table_versions import BY_ROW, DELETE, FEED, INSERT, DataFile

VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


def add(path: str, **more: Any) -> dict[str, Any]:
    """A file that a version adds."""
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    """One that it removes."""
    return {"remove": {"path": path, "dataChange": True, **more}}


def appended(*actions: dict[str, Any], ignore_deletes: bool = False) -> list[DataFile]:
    """What version 7 appends."""
    return table_versions.appended("t", 7, actions, ignore_deletes=ignore_deletes)


def changed(*actions: dict[str, Any], feed: bool = True) -> list[DataFile]:
    """What version 7 changes."""
    return table_versions.changed("t", 7, actions, lambda: feed)


def test_files_are_named_as_they_are_on_disk_with_their_partition() -> None:
    """The log has their names as in a URL."""
    [found] = appended(add("day=2026-01-01/a%20b%25.parquet", partitionValues={"day": "2026-01-01", "shop": None}))

    assert found == DataFile(7, "day=2026-01-01/a b%.parquet", (("day", "2026-01-01"), ("shop", None)))


def test_rows_that_were_there_before_are_not_new() -> None:
    """A version may do both."""
    moved = [add("big", dataChange=False), remove("small", dataChange=False)]

    assert appended(*moved) == []
    assert [file.path for file in appended(*moved, add("new"))] == ["new"]
    assert changed(*moved) == []


def test_the_feed_of_a_version_says_all_that_it_changes() -> None:
    """Its files are those of the feed; without any, what it adds is inserted and what it removes is deleted."""
    assert [(file.path, file.change) for file in changed({"cdc": {"path": "c"}}, add("a"), remove("b"))] == [
        ("c", BY_ROW)
    ]
    assert [(file.path, file.change) for file in changed(add("a"), remove("b"))] == [("b", DELETE), ("a", INSERT)]
    assert [(file.path, file.change) for file in changed(add("a"), feed=False)] == [("a", INSERT)]


def test_a_file_that_is_added_and_removed_has_two_places() -> None:
    """Its rows are inserted in one version and deleted in one, or the same."""
    assert len({file.identity for file in changed(remove("a"), add("a"))}) == 2
    assert DataFile(7, "a", ()).identity != DataFile(8, "a", ()).identity


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "delete_when": (lambda: appended(remove("a")), "version 7 deletes rows"),
    "rewrites": (lambda: appended(remove("a"), add("b")), "version 7 rewrites rows"),
    "rewrites, deletes ignored": (
        lambda: appended(remove("a"), add("b"), ignore_deletes=True),
        "ignore_deletes does not help",
    ),
    "no word on data": (lambda: appended({"remove": {"path": "a"}}), "version 7 deletes rows"),
    "a vector": (lambda: appended(add("a", deletionVector=VECTOR)), "version 7 has files with deletion vectors"),
    "a vector in place of rows": (
        lambda: appended(remove("a"), add("a", deletionVector=VECTOR)),
        "version 7 rewrites rows",
    ),
    "changes by a vector": (
        lambda: changed(remove("a"), add("a", deletionVector=VECTOR)),
        "version 7 has files with deletion vectors",
    ),
    "what a vector had left": (
        lambda: changed(remove("a", deletionVector=VECTOR)),
        "version 7 has files with deletion vectors",
    ),
    "no feed": (lambda: changed(remove("a"), feed=False), "start=8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_lose_rows_is_refused_by_the_version(name: str) -> None:
    """With what it means and the way on."""
    make, said = REFUSED[name]
    with pytest.raises(Refused) as refused:
        make()
    assert said in str(refused.value)
    assert "version" in refused.value.data
    assert refused.value.hint


def test_an_ignored_delete_has_no_rows() -> None:
    """Only if nothing else comes with it."""
    assert appended(remove("a"), ignore_deletes=True) == []


def test_a_commit_has_the_time_that_its_writer_gave_it() -> None:
    """The table's own where it has one."""
    assert table_versions.committed_ms([{"commitInfo": {"timestamp": 5}}]) == 5
    assert table_versions.committed_ms([{"commitInfo": {"timestamp": 5, "inCommitTimestamp": 6}}]) == 6
    assert table_versions.committed_ms([add("a")]) == 0


def test_what_all_rows_share_is_beside_them() -> None:
    """The columns of a change too, unless the file has them for each row."""
    file = DataFile(7, "a", (("day", "2026-01-01"),), DELETE)
    plain = [("day", "2026-01-01", "date")]
    at = [("_commit_version", "7", "bigint"), ("_commit_timestamp", "1970-01-01T00:00:00.005000Z", "timestamp")]

    assert table_versions.beside(file, {"day": "date"}, None) == plain
    assert table_versions.beside(file, {"day": "date"}, 5) == [*plain, ("_change_type", "delete", "string"), *at]
    assert table_versions.beside(DataFile(7, "a", (), BY_ROW), {}, 5) == at


@pytest.mark.parametrize(
    ("told", "on"), [({}, False), ({FEED: "false"}, False), ({FEED: "true"}, True), ({FEED: "TRUE"}, True)]
)
def test_property_is_on_as_delta_reads_it(told: dict[str, str], on: bool) -> None:
    """Small letters or capitals."""
    assert table_versions.is_on(told, FEED) is on
