"""A commit to Delta is there once, whatever comes between and whatever the table has forgotten. Without a JVM."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from onlyonce.api.pipeline import Delta, Output
from onlyonce.core.errors import InvariantBroken, Refused, Retryable
from onlyonce.core.locations import Location
from onlyonce.sinks.delta import sink_delta
from onlyonce.tables import arrow_files, commit, opening, own_tables, rewrite
from onlyonce.tables.commit import Appended
from onlyonce.tables.table_files import Held
from tests.support.delta_history import clean_history

COMMIT = commit.Commit("shop/per_shop/1/per_shop", 0, "shop/per_shop/1/0/per_shop/0", 1, "content")
TRIES = 5


class Writer:
    """Writes one row under the transaction of a commit."""

    def __init__(self, path: Path, commit: commit.Commit = COMMIT) -> None:
        self.path, self.commit = path, commit

    def __call__(self) -> None:
        done = CommitProperties(
            custom_metadata={"userMetadata": self.commit.note()},
            app_transactions=[Transaction(self.commit.app_id, self.commit.version, int(time.time() * 1000))],
        )
        write_deltalake(str(self.path), pa.table({"n": [1]}), mode="append", commit_properties=done)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """An empty table."""
    path = tmp_path / "table"
    write_deltalake(str(path), pa.table({"n": pa.array([], pa.int64())}))
    return path


def rows(path: Path) -> list[int]:
    """The rows of the table."""
    found: list[int] = DeltaTable(str(path)).to_pyarrow_table()["n"].to_pylist()
    return found


def beside_others(table: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """One row under the transaction of `COMMIT`, while so many tries of it come too late."""
    left = [None] * times
    monkeypatch.setattr(own_tables, "BETWEEN", TRIES)

    def passing(_: str) -> None:
        if left:
            left.pop()
            raise CommitFailedError("others were first")

    monkeypatch.setattr(own_tables, "passing", passing)
    own_tables.append_rows([[{"n": 1}]], table, COMMIT)


def test_a_write_that_others_came_between_is_tried_again(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill beside a stream is no error of the stream's run."""
    beside_others(table, monkeypatch, TRIES - 1)
    assert rows(table) == [1]


def test_others_that_come_between_for_ever_are_a_matter_of_time(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded; then the same command again, and not Delta's own exception."""
    with pytest.raises(Retryable, match="others committed"):
        beside_others(table, monkeypatch, TRIES)
    assert rows(table) == []


def test_a_replay_finds_its_commit_though_the_table_has_forgotten_the_transaction(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where delta.setTransactionRetentionDuration was short: the history tells."""
    commit.once(table, COMMIT, Writer(table))
    monkeypatch.setattr(commit, "version", lambda path, app_id: None)
    commit.once(table, COMMIT, Writer(table), replayed=True)
    assert rows(table) == [1]


@pytest.mark.parametrize("replayed", [False, True])
def test_a_commit_counts_after_the_history_was_cleaned(table: Path, *, replayed: bool) -> None:
    """As a team's own log retention does: the transaction is in the checkpoint."""
    for _ in range(2):
        commit.once(table, COMMIT, Writer(table), replayed=replayed)
    clean_history(table)
    assert commit.once(table, COMMIT, Writer(table), replayed=replayed) is None
    assert rows(table) == [1]


def test_an_older_batch_that_no_history_has_is_no_commit(table: Path) -> None:
    """A later transaction does not show that the rows of an earlier batch were written."""
    commit.once(table, replace(COMMIT, version=3), Writer(table, replace(COMMIT, version=3)))
    clean_history(table)
    with pytest.raises(InvariantBroken, match="no commit of 0 in its history"):
        commit.once(table, COMMIT, Writer(table))
    assert rows(table) == [1]


def test_a_commit_of_other_rows_is_no_commit(table: Path) -> None:
    """As long as the history has it."""
    commit.once(table, COMMIT, Writer(table))
    with pytest.raises(InvariantBroken, match="not in the table as meant"):
        commit.once(table, replace(COMMIT, content="other"), Writer(table))


def constrain(table: Path) -> None:
    """Give the table a constraint that the rows break."""
    DeltaTable(str(table)).alter.add_constraint({"small": "n < 1"})


def make_again(table: Path, versions: int = 2) -> None:
    """Put another table of the same form in the table's place, with so many versions.

    The data files stay, as they do in a store.
    """
    shutil.rmtree(table / "_delta_log")
    for _ in range(versions):
        write_deltalake(str(table), pa.table({"n": pa.array([], pa.int64())}), mode="append")


@pytest.mark.parametrize("kind", ["append", "change"])
@pytest.mark.parametrize("when", ["before the try", "during the try"])
@pytest.mark.parametrize(
    ("alter", "refused"), [(constrain, Retryable), (make_again, Refused)], ids=["altered", "made again"]
)
def test_rows_that_were_checked_for_another_form_are_not_committed(
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    alter: Callable[[Path], None],
    refused: type[Exception],
    kind: str,
    when: str,
) -> None:
    """The table has a constraint by then which the rows may break, or it is another table of the same form, which has
    no transaction of earlier batches."""
    checked, left = opening.form(opening.table(table)), [None]
    opened = Appended(table)

    def passing(_: str) -> None:
        if when == "during the try" and left:
            left.pop()
            alter(table)

    class Add:
        """Puts one row into a table."""

        def files(self, _: DeltaTable) -> list[Held]:
            return []

        def write(self, _: DeltaTable, __: Sequence[Held], folder: Location) -> rewrite.Change:
            return rewrite.Change([], written(folder))

    def written(folder: Location) -> list[Location]:
        arrow_files.write(folder / "part-0.parquet", pa.table({"n": [1]}))
        return [folder / "part-0.parquet"]

    if when == "before the try":
        alter(table)
        opened.look()
    monkeypatch.setattr(own_tables if kind == "append" else rewrite, "passing", passing)
    writes = {
        "append": lambda: own_tables.append(written, opened, COMMIT, form=checked),
        "change": lambda: rewrite.change_rows(table, COMMIT, Add(), form=checked),
    }
    with pytest.raises(
        refused, match=r"changed while a batch was written|is another table than the one that the output wrote to"
    ):
        writes[kind]()
    assert rows(table) == []


@pytest.mark.parametrize("versions", [1, 3, 4])
def test_a_look_sees_that_a_table_was_made_again(table: Path, versions: int) -> None:
    """With a log that is shorter than the old one, as long, or longer: a commit under the old log's next version would
    be lost, or in a table that nothing was checked for."""
    make_again(table, 3)
    opened = Appended(table)
    make_again(table, versions)
    there = DeltaTable(str(table))
    assert (opened.look().table.version(), opened.table.metadata().id) == (there.version(), there.metadata().id)


def test_a_table_that_forgets_its_transactions_is_refused(table: Path) -> None:
    """Before anything is written, with the statement that mends it."""
    output = Output(name="per_shop", transform="m:f", sink=Delta())
    sink_delta.check_table(opening.table(table), table, output)
    DeltaTable(str(table)).alter.set_table_properties(
        {sink_delta.FORGETS: "interval 1 hours"}, raise_if_not_exists=False
    )
    with pytest.raises(Refused, match="forgets its transactions after interval 1 hours") as refused:
        sink_delta.check_table(opening.table(table), table, output)
    assert "UNSET TBLPROPERTIES" in refused.value.hint
