"""A commit to Delta is there once, whatever comes between and whatever the table has forgotten. Without a JVM."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
import tenacity
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from onlyonce.model.errors import Refused, Retryable
from onlyonce.sinks import delta_table
from onlyonce.storage import delta

COMMIT = delta.Commit("shop/per_shop/1/per_shop", 0, "shop/per_shop/1/0/per_shop/0", 1, "content")
CONFLICT = (
    "[DELTA_CONCURRENT_APPEND.ROW_LEVEL_CHANGES] ConcurrentAppendException: Files were added by a concurrent update"
)


class Writer:
    """Writes one row under the transaction of `COMMIT`, after as many conflicts as it is told."""

    def __init__(self, path: Path, conflicts: int = 0) -> None:
        self.path, self.conflicts, self.calls = path, conflicts, 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls <= self.conflicts:
            raise RuntimeError(CONFLICT)
        done = CommitProperties(
            custom_metadata={"userMetadata": COMMIT.note()},
            app_transactions=[Transaction(COMMIT.app_id, COMMIT.version, int(time.time() * 1000))],
        )
        write_deltalake(str(self.path), pa.table({"n": [1]}), mode="append", commit_properties=done)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty table; nobody waits for others."""
    monkeypatch.setattr(delta, "WAIT_FOR_OTHERS", tenacity.wait_none())
    path = tmp_path / "table"
    write_deltalake(str(path), pa.table({"n": pa.array([], pa.int64())}))
    return path


def rows(path: Path) -> list[int]:
    """The rows of the table."""
    found: list[int] = DeltaTable(str(path)).to_pyarrow_table()["n"].to_pylist()
    return found


def test_a_write_that_others_came_between_is_tried_again(table: Path) -> None:
    """A backfill beside a MERGE is no error of the stream's run."""
    write = Writer(table, conflicts=delta.CONFLICTS - 1)
    delta.once(table, COMMIT, write)
    assert rows(table) == [1]


def test_others_that_come_between_for_ever_are_a_matter_of_time(table: Path) -> None:
    """Bounded; then the same command again, and not Delta's own exception."""
    with pytest.raises(Retryable, match="others committed"):
        delta.once(table, COMMIT, Writer(table, conflicts=delta.CONFLICTS))
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
