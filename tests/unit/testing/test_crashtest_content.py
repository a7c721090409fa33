"""What a crash test compares of files and requests: every row, in its file, floats as floats."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from onlyonce.sinks.files import sink_files
from onlyonce.sinks.files.file_stores import PENDING
from onlyonce.testing import crash_results

ROWS = pa.table(
    {"id": ["a", "b", "c"], "at": ["2026-01-01 00:00:00", "2026-01-02 00:00:00", "no time"], "weight": [0.1, 0.2, 1.0]}
)
SAME = pa.table({**{name: ROWS[name] for name in ("id", "at")}, "weight": [0.1, 0.2 * (1 + 1e-15), 1.0]})
OTHER = pa.table({**{name: ROWS[name] for name in ("id", "at")}, "weight": [0.1, 0.2001, 1.0]})
KINDS = ("jsonl", "text", "csv", "parquet", "avro")


def files(folder: Path, kind: str, *tables: pa.Table) -> pa.Table:
    """A file of each table's rows, and one without rows."""
    (folder / PENDING).mkdir(parents=True)
    winners = []
    for number, table in enumerate([*tables, ROWS.slice(0, 0)]):
        if kind in sink_files.LINES:
            texts = [str(row).replace("'", '"') for row in table.to_pylist()]
            table = pa.table({"line": pa.array(texts, pa.string())})
        with (folder / PENDING / f"t{number}").open("wb") as file:
            sink_files.format_of(kind)(file, table.schema, iter(table.to_batches() if table.num_rows else []))
        winners.append((f"t{number}", f"shard-{number}", table.num_rows))
    return crash_results.content_of_files(folder, kind, winners)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rows_in_another_order_are_the_same(kind: str, tmp_path: Path) -> None:
    """Of all formats; each row once, an empty file as one row of its own."""
    one = files(tmp_path / "one", kind, ROWS, ROWS.slice(0, 1))
    other = files(tmp_path / "other", kind, ROWS.take([2, 0, 1]), ROWS.slice(0, 1))
    assert one.num_rows == 5
    assert crash_results.difference("files", one, other) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_lost_twice_or_in_another_file_is_seen(kind: str, tmp_path: Path) -> None:
    """By its row and its file's name."""
    one = files(tmp_path / "one", kind, ROWS, ROWS)
    changed = {
        "lost": (ROWS.slice(1), ROWS),
        "twice": (ROWS.take([0, 0, 1, 2]), ROWS),
        "moved": (ROWS.slice(1), ROWS.take([0, 0, 1, 2])),
    }
    for name, tables in changed.items():
        assert crash_results.difference("files", one, files(tmp_path / name, kind, *tables)) is not None, name


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "avro"])
def test_a_float_differs_when_it_is_another_and_not_by_its_last_digit(kind: str, tmp_path: Path) -> None:
    """A sum in another order is no loss."""
    one = files(tmp_path / "one", kind, ROWS)
    assert crash_results.difference("files", one, files(tmp_path / "same", kind, SAME)) is None
    assert crash_results.difference("files", one, files(tmp_path / "other", kind, OTHER)) is not None


def test_of_a_writer_of_ones_own_the_rows_of_each_file_are_counted(tmp_path: Path) -> None:
    """Nobody but its owner can read them."""
    found = crash_results.content_of_files(tmp_path, "mine:write", [("t0", "shard-0", 3), ("t1", "shard-1", 0)])
    assert found.to_pydict() == {"rows": [3, 0], crash_results.FILE: ["shard-0", "shard-1"]}


def test_requests_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    """The order of the columns is not compared, their values and keys are."""

    def requests(*payloads: str) -> pa.Table:
        return crash_results.content_of_payloads(
            pa.table({"key": ["k"] * len(payloads), "payload": pa.array(payloads, pa.string())})
        )

    one = requests('{"id":"a","weight":0.5}', '{"id":"b","weight":null}')
    assert (
        crash_results.difference("sent", one, requests('{"id":"b","weight":null}', '{"weight":0.5,"id":"a"}')) is None
    )
    assert crash_results.difference("sent", one, requests('{"id":"a","weight":0.5}')) is not None
    assert requests().num_rows == 0
