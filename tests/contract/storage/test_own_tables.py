"""Commits to the platform's own tables, without Spark: once whoever tries, in order, with what files are skipped by."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from onlyonce.commitlog.batches import Received
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken, Retryable, Superseded
from onlyonce.core.locations import Location
from onlyonce.database.statements import make_home
from onlyonce.failpoints import FailPoint
from onlyonce.receive import batch_files, events
from onlyonce.tables import arrow_files, attempt_files, opening, own_tables, statistics
from onlyonce.tables.commit import SKIPPING, Commit, Own
from tests.support.together import together

SCHEMA = pa.schema([("kind", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("note", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """An empty table, partitioned by kind, skipped by two columns."""
    path = tmp_path / "table"
    write_deltalake(path, SCHEMA.empty_table(), partition_by=["kind"], configuration={SKIPPING: "n,at"})
    return path


def commit(version: int, content: str = "as meant") -> Commit:
    """A commit of one transaction id."""
    return Commit("app", version, f"app/{version}", 1, content)


def row(n: int) -> dict[str, object]:
    """One row of a partition."""
    return {"n": n, "at": datetime(2026, 1, 1, 0, 0, n, 1500, tzinfo=UTC), "note": None}


def numbers(path: Path) -> Counter[int]:
    """What the table holds."""
    return Counter(DeltaTable(str(path)).to_pyarrow_table()["n"].to_pylist())


def test_a_commit_is_there_once_however_often_it_is_tried(table: Path) -> None:
    """The second try gives the version of the first, and writes nothing."""
    first = own_tables.append_rows([[row(1)], [row(2)]], table, commit(1), {"kind": "a"})
    files = set(table.rglob("*.parquet"))

    assert own_tables.append_rows([[row(1)], [row(2)]], table, commit(1), {"kind": "a"}) == first
    assert set(table.rglob("*.parquet")) == files
    assert numbers(table) == Counter([1, 2])


def test_of_drivers_at_the_same_instant_one_commits_and_the_others_find_it(table: Path) -> None:
    """The same transaction, ten times by four at once; then one that means something else is told so."""
    for version in range(10):

        def attempt(version: int = version) -> int:
            return own_tables.append_rows([[row(version)]], table, commit(version), {"kind": "a"})

        versions = together(*[attempt] * 4)
        assert len(versions) == 4
        assert len(set(versions)) == 1

    assert numbers(table) == Counter(range(10))
    with pytest.raises(InvariantBroken, match="should hold app/9"):
        own_tables.append_rows([[row(55)]], table, commit(9, "another"), {"kind": "a"})


@pytest.mark.parametrize("stopped", ["before it has read the table", "before its commit"])
def test_a_driver_that_was_overtaken_commits_no_batch_behind_a_fence(
    table: Path, monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    """It has checked its epoch, and committed its units, when a newer driver takes them back."""
    old, batch = Own(table), stored_names.transaction(RECEIVE, stored_names.EVENTS_BY)
    left = [partial(own_tables.fence, Own(table), RECEIVE, 2)]

    def wake(point: str) -> None:
        if left and point == "table-before-commit":
            left.pop()()

    if stopped == "before its commit":
        monkeypatch.setattr(own_tables, "passing", wake)
    else:
        left.pop()()
        old.look()
    with pytest.raises(Superseded, match="a newer driver of shop/receive/1"):
        _appended(old, Commit(batch, 5, "the batch", 1, "offsets"), 1)
    assert numbers(table) == Counter()
    assert left == []

    own_tables.fence(Own(table), RECEIVE, 2)  # the newer driver itself, again
    _appended(Own(table), Commit(batch, 5, "the batch", 2, "offsets"), 2)
    _appended(Own(table), Commit(batch, 6, "the next one", 2, "offsets"), 3)
    assert numbers(table) == Counter([2, 3])


def test_a_driver_lost_behind_its_fence_leaves_the_fence_alone(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver that it has overtaken stays out; the next one fences again, and commits the batch."""
    batch = stored_names.transaction(RECEIVE, stored_names.EVENTS_BY)

    def lose(point: str) -> None:
        if point == "receive-after-fence":
            raise FailPoint(point)

    with monkeypatch.context() as armed:
        armed.setattr(own_tables, "passing", lose)
        with pytest.raises(FailPoint):
            own_tables.fence(Own(table), RECEIVE, 2)
    with pytest.raises(Superseded):
        _appended(Own(table), Commit(batch, 5, "the batch", 1, "offsets"), 1)

    batch_files.fence_batch(Own(table), Driver(RECEIVE, 1, 3, "run"), 5)
    _appended(Own(table), Commit(batch, 5, "the batch", 3, "offsets"), 3)
    assert numbers(table) == Counter([3])


def test_units_of_a_batch_that_an_overtaken_driver_has_committed_are_not_taken_back(table: Path) -> None:
    """The next attempt ends it."""
    batch = stored_names.transaction(RECEIVE, stored_names.EVENTS_BY)
    _appended(Own(table), Commit(batch, 5, "the batch", 1, "offsets"), 1)
    newer = Driver(RECEIVE, 1, 2, "run")
    with pytest.raises(Retryable, match="was overtaken has committed batch 5"):
        batch_files.fence_batch(Own(table), newer, 5)
    batch_files.fence_batch(Own(table), newer, 6)


RECEIVE = stored_names.incarnation("shop", "receive", 1)


def _appended(to: Own, commit: Commit, n: int) -> None:
    def write(folder: Location) -> list[Location]:
        at = folder / "kind=a" / "part-0.parquet"
        arrow_files.write(at, pa.Table.from_pylist([row(n)], schema=SCHEMA.remove(0)))
        return [at]

    own_tables.append(write, to, commit, fenced_of=RECEIVE)


def test_commits_of_other_transactions_between_do_not_disturb(table: Path) -> None:
    """Thirty transaction ids by three threads at once: each commits, none twice, and is told the version that has its
    rows."""

    def mine(first: int) -> list[int]:
        return [
            own_tables.append_rows([[row(n)]], table, Commit(f"app-{n}", 1, f"app-{n}/1", 1, ""), {"kind": "a"})
            for n in range(first, first + 10)
        ]

    told = [version for versions in together(*[partial(mine, first) for first in (0, 10, 20)]) for version in versions]
    assert numbers(table) == Counter(range(30))
    assert [opening.noted(table, version)["app_id"] for version in told] == [f"app-{n}" for n in range(30)]


def test_the_files_of_a_commit_are_in_the_order_of_their_rows(table: Path) -> None:
    """A manifest is streamed one file at a time: its batches must come as they were numbered."""
    own_tables.append_rows([[row(n)] for n in (7, 3, 5)], table, commit(1), {"kind": "a"})

    log = (table / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    places = [line.split('"path":"')[1].split('"')[0] for line in log if '"add"' in line]
    assert [parquet.read_table(table / place, partitioning=None)["n"].to_pylist() for place in places] == [
        [7],
        [3],
        [5],
    ]


def test_what_files_are_skipped_by_holds_every_value(tmp_path: Path) -> None:
    """Least and largest bound all rows of all row groups, times in whole milliseconds; a column of nulls has their
    count only."""
    rows = pa.table(
        {"n": [5, -3, None, 9], "at": [row(n)["at"] for n in (1, 4, 2, 3)], "empty": pa.nulls(4, pa.int64())}
    )
    parquet.write_table(rows, tmp_path / "file", row_group_size=2)

    found = statistics.of(parquet.read_metadata(tmp_path / "file"), [("n",), ("at",), ("empty",), ("unknown",)])

    assert found == {
        "numRecords": 4,
        "minValues": {"n": -3, "at": "2026-01-01T00:00:01.001Z"},
        "maxValues": {"n": 9, "at": "2026-01-01T00:00:04.002Z"},
        "nullCount": {"n": 1, "at": 0, "empty": 4},
    }


@pytest.mark.parametrize(
    ("value", "largest"), [("x" * 40, True), ("x" * 32 + chr(0x10FFFF) * 2, False), ("\U0002f842" * 40, True)]
)
def test_a_largest_string_is_never_below_the_value(tmp_path: Path, value: str, largest: bool) -> None:
    """A long string's beginning is followed by the last character that there is; if the value has that one too, nothing
    is said."""
    parquet.write_table(pa.table({"n": [value]}), tmp_path / "file")
    found = statistics.of(parquet.read_metadata(tmp_path / "file"), [("n",)])["maxValues"]
    assert [bound >= value for bound in found.values()] == [True] * largest


def test_string_that_is_not_utf8_has_no_statistics(tmp_path: Path) -> None:
    """A file of staged rows with such a string is committed; the sink refuses its row later, by name."""
    strings = pa.array([b"a", b"\xff"]).view(pa.string())
    parquet.write_table(pa.table({"s": strings, "n": [1, 2]}), tmp_path / "file")

    found = statistics.of(parquet.read_metadata(tmp_path / "file"), [("s",), ("n",)])

    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"n": 1}, {"n": 2}, {"s": 0, "n": 0})


def test_a_largest_time_is_never_below_the_value(tmp_path: Path) -> None:
    """A time in the last possible millisecond can't be rounded up, so nothing is said of its column."""
    for value, wanted in ((datetime.max, {}), (datetime(9999, 12, 31), {"at": "9999-12-31T00:00:00.000Z"})):
        parquet.write_table(pa.table({"at": [value.replace(tzinfo=UTC)]}), tmp_path / "file")
        assert statistics.of(parquet.read_metadata(tmp_path / "file"), [("at",)])["maxValues"] == wanted


def test_the_last_moment_that_there_is_can_be_committed(table: Path) -> None:
    """It has no bound; a record of it is no reason for a run to stop."""
    own_tables.append_rows([[row(1) | {"at": datetime.max.replace(tzinfo=UTC)}]], table, commit(1), {"kind": "a"})

    assert numbers(table) == Counter([1])


def test_a_commit_of_nothing_takes_its_transaction(table: Path) -> None:
    """As of a batch whose files have no lines."""
    assert own_tables.append_rows([], table, commit(1), {"kind": "a"}) == 1
    assert DeltaTable(str(table)).transaction_version("app") == 1


def test_a_filter_of_delta_rs_finds_rows_in_a_table_that_is_skipped_by_nothing(tmp_path: Path) -> None:
    """As in a manifest, whose batches are looked up by number."""
    path = tmp_path / "manifest"
    write_deltalake(path, SCHEMA.empty_table())
    own_tables.append_rows([[row(1), row(2)], [row(3)]], path, commit(1))

    assert DeltaTable(str(path)).to_pyarrow_table(filters=[("n", "=", 2)])["n"].to_pylist() == [2]


def test_the_kept_rows_of_batches_are_counted_by_the_files_of_their_commits(tmp_path: Path) -> None:
    """Of a commit with two files; not those of other kinds, of other commits, nor what no commit names."""
    path = tmp_path / "events"
    schema = pa.schema([("oo_kind", pa.string()), ("n", pa.int64())])
    write_deltalake(path, schema.empty_table(), partition_by=["oo_kind"])

    def batch(version: int, kind: str, files: list[list[int]]) -> Received:
        rows = [[{"n": n} for n in file] for file in files]
        held = own_tables.append_rows(rows, path, commit(version), {"oo_kind": kind})
        return Received("shop/receive/1", version, sum(map(len, files)), held, compacted=False)

    first, invalid = batch(0, "kept", [[1, 2, 3], [4]]), batch(1, "invalid", [[5]])
    later = batch(2, "kept", [[6, 7]])
    stray = path / "killed" / "oo_kind=kept" / "part.parquet"
    stray.parent.mkdir(parents=True)
    parquet.write_table(pa.table({"n": [8]}), stray)

    assert events.count(events.kept_files(path, [first, invalid])) == 4
    assert events.count(events.kept_files(path, [first, invalid, later])) == 6
    assert events.kept_files(path, [invalid]) == []


def test_what_killed_attempts_have_left_is_swept_and_what_may_still_be_committed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a batch that is in the table only the named files stay; those of a batch that is not in it stay, however old:
    a driver that was stopped may go on.

    What was written before folders told whose they are stays too."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    events_of = tmp_path / "data" / "shop" / "events"
    write_deltalake(events_of, SCHEMA.empty_table(), partition_by=["kind"], configuration={SKIPPING: "n,at"})

    def attempt(version: int, n: int) -> None:
        meant = Commit("shop/receive/1/events", version, f"shop/receive/1/{version}/events", 1, "as meant")
        own_tables.append_rows([[row(n)]], events_of, meant, {"kind": "a"})

    def killed(version: int, n: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(own_tables, "passing", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                attempt(version, n)

    killed(0, 0)
    attempt(0, 0)
    killed(1, 1)
    (events_of / ("0" * 32)).mkdir()
    (events_of / ("0" * 32) / "part.parquet").touch()
    assert attempt_files.sweep_attempts("shop", 1, []) == 0
    assert [attempt_files.sweep_attempts("shop", 0, []), attempt_files.sweep_attempts("shop", 0, [])] == [1, 0]
    assert sorted(len(list(folder.rglob("*.parquet"))) for folder in events_of.glob("[0-9]*")) == [1, 1, 1]
    attempt(1, 1)
    assert attempt_files.sweep_attempts("shop", 0, []) == 1
    assert numbers(events_of) == Counter([0, 1])


@pytest.mark.parametrize("manifest", ["files", "ranges", "source_batches", "sources/east/files"])
def test_sweep_removes_what_killed_drivers_left_in_manifests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    """A file of a killed driver stays until the transaction that it was written for is in the manifest."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    path = tmp_path / "data" / "shop" / manifest
    write_deltalake(path, SCHEMA.empty_table())
    app_id = f"shop/{path.name}"

    def append(number: int) -> None:
        own_tables.append_rows([[row(number)]], path, Commit(app_id, number, f"{app_id}/{number}", 1, "as meant"))

    append(1)
    with monkeypatch.context() as patch:
        patch.setattr(own_tables, "passing", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            append(2)
    assert attempt_files.sweep_attempts("shop", 0, []) == 0
    append(2)
    assert [attempt_files.sweep_attempts("shop", 1, []), attempt_files.sweep_attempts("shop", 0, [])] == [0, 1]
    assert numbers(path) == Counter([1, 2])
