"""A commit to Delta is there once, whatever comes between and whatever the table has forgotten. Without a JVM."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from onlyonce.model.errors import Refused, Retryable
from onlyonce.sinks.delta import delta_table
from onlyonce.storage import delta, own_tables

COMMIT = delta.Commit("shop/per_shop/1/per_shop", 0, "shop/per_shop/1/0/per_shop/0", 1, "content")

class Writer:
    """Writes one row under the transaction of `COMMIT`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> None:
        done = CommitProperties(
            custom_metadata={"userMetadata": COMMIT.note()},
            app_transactions=[Transaction(COMMIT.app_id, COMMIT.version, int(time.time() * 1000))],
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

    def passing(_: str) -> None:
        if left:
            left.pop()
            raise CommitFailedError("others were first")

    monkeypatch.setattr(own_tables, "passing", passing)
    own_tables.append_rows([[{"n": 1}]], table, COMMIT)


def test_a_write_that_others_came_between_is_tried_again(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill beside a stream is no error of the stream's run."""
    beside_others(table, monkeypatch, own_tables.BETWEEN - 1)
    assert rows(table) == [1]


def test_others_that_come_between_for_ever_are_a_matter_of_time(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded; then the same command again, and not Delta's own exception."""
    with pytest.raises(Retryable, match="others committed"):
        beside_others(table, monkeypatch, own_tables.BETWEEN)
    assert rows(table) == []


def test_a_replay_finds_its_commit_though_the_table_has_forgotten_the_transaction(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where delta.setTransactionRetentionDuration was short: the history tells."""
    delta.once(table, COMMIT, Writer(table))
    monkeypatch.setattr(delta, "version", lambda path, app_id: None)
    delta.once(table, COMMIT, Writer(table), replayed=True)
    assert rows(table) == [1]


def test_a_table_that_forgets_its_transactions_is_refused(table: Path) -> None:
    """Before anything is written, with the statement that mends it."""
    delta_table.check_remembers(table, "per_shop")
    DeltaTable(str(table)).alter.set_table_properties(
        {delta_table.FORGETS: "interval 1 hours"}, raise_if_not_exists=False
    )
    with pytest.raises(Refused, match="forgets its transactions after interval 1 hours") as refused:
        delta_table.check_remembers(table, "per_shop")
    assert "UNSET TBLPROPERTIES" in refused.value.hint
