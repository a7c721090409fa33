"""The data files that a task of receive writes, and the spill in which its records wait, without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from onlyonce.core.batch import to_time
from onlyonce.core.frontier import Frontier
from onlyonce.core.records import FORMS, RecordPlaces
from onlyonce.receive import batch_files, events
from onlyonce.receive.batch_files import Spill
from onlyonce.receive.events import EventFiles, Stamp
from onlyonce.receive.exchange import CODE, records_of
from onlyonce.receive.unit import DUPLICATE, EXPIRED, INVALID, KEPT, SEED
from onlyonce.sources.values.parse import PLACE, PLACED

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KNOWN = Frontier(max_event_time=1_000_000)
STAMP = Stamp(NOW, "shop/receive/1", 7, KNOWN, places=RecordPlaces({5: "orders/3"}, "offset"))
RECORD = pa.schema(
    [
        ("a.b", pa.string()), ("oo_high", pa.int64()), ("oo_low", pa.int64()), ("oo_event_time", pa.timestamp("us", "UTC")),
        ("oo_payload", pa.int64()), ("oo_reason", pa.string()), ("oo_raw", pa.string()), ("oo_unknown", pa.string()),
        (PLACED, pa.struct([(name, pa.int64()) for name in PLACE])), (CODE, pa.int8()),
    ]
)  # fmt: skip


def records(*names: str) -> pa.RecordBatch:
    """One record for each name."""
    rows = [
        {"a.b": name, "oo_high": n, "oo_low": -n, "oo_event_time": NOW, PLACED: dict(zip(PLACE, (5, n), strict=True))}
        for n, name in enumerate(names)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD)


def written(folder: Path, paths: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The rows of all files, by their folder."""
    assert sorted(map(str, folder.rglob("*.parquet"))) == sorted(paths)
    return {Path(path).parent.name: parquet.ParquetFile(path).read().to_pylist() for path in paths}


@pytest.mark.parametrize("counts", FORMS)
def test_each_invalid_record_is_named_by_its_place(tmp_path: Path, counts: str) -> None:
    """One by one or a column at once: also a whole file, one of compressed content, none of the batch, and no place."""
    places = RecordPlaces({5: "7/orders/3", 6: "with {braces}", 8: "b.gz"}, counts, {8})
    at = [(5, 0), (6, 1 << 40), (8, 4), (5, -1), (9, 2), (6, -20), None, (5, 12)]
    column = pa.array([one and dict(zip(PLACE, one, strict=True)) for one in at], RECORD.field(PLACED).type)

    files = EventFiles(tmp_path, replace(STAMP, places=places), 0)

    one_by_one = [places.of(*one) if one else None for one in at]
    assert files._placed(column).to_pylist() == [one and str(one) for one in one_by_one]
    assert files._placed(column[:0]).to_pylist() == []


def test_each_record_is_in_the_file_of_its_fate_and_a_duplicate_in_none(tmp_path: Path) -> None:
    """With what the batch has stamped on all of them; the control row tells the frontier after it, the others that
    before."""
    after, fates = Frontier(max_event_time=5_000_000), np.array([KEPT, DUPLICATE, INVALID, SEED, KEPT], np.int8)
    with EventFiles(tmp_path, STAMP, 3) as files:
        batch_files._write(files, records("a", "twin", "bad", "seed", "b"), fates, after)
    found = written(tmp_path, files.paths)

    assert {kind: [row["a.b"] for row in rows] for kind, rows in found.items()} == {
        "oo_kind=kept": ["a", "b"], "oo_kind=invalid": ["bad"], "oo_kind=control": ["seed"],
    }  # fmt: skip
    assert [row.get(PLACED) for rows in found.values() for row in rows if PLACED in row] == [
        "topic orders, partition 3, offset 2"
    ]
    for kind, rows in found.items():
        for row in rows:
            assert (row["oo_ingestion_time"], row["oo_incarnation"], row["oo_batch"], row["oo_partition"]) == (
                NOW,
                "shop/receive/1",
                7,
                3,
            )
            max_event_time = after.max_event_time if kind == "oo_kind=control" else KNOWN.max_event_time
            assert row["oo_frontier"] == {
                "max_event_time": to_time(max_event_time),
                "ended": None,
                "silent_max_event_time": None,
                "silent_clock": None,
            }
            assert CODE not in row


def test_an_expired_record_says_why_it_is_one(tmp_path: Path) -> None:
    """Nobody can tell any more whether it is a duplicate."""
    with EventFiles(tmp_path, STAMP, 0) as files:
        batch_files._write(files, records("old"), np.array([EXPIRED], np.int8))

    [row] = written(tmp_path, files.paths)["oo_kind=expired"]
    assert row["oo_reason"] == batch_files.BEFORE_HORIZON


def test_nothing_to_write_is_no_file(tmp_path: Path) -> None:
    """Of duplicates alone as of no record at all."""
    with EventFiles(tmp_path, STAMP, 0) as files:
        batch_files._write(files, records("twin"), np.array([DUPLICATE], np.int8))
        batch_files._write(files, records(), np.array([], np.int8))

    assert written(tmp_path, files.paths) == {}


@pytest.mark.parametrize(("limit", "most"), [("ROWS", 10), ("BYTES", 1)])
def test_many_batches_are_one_file_in_bounded_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """In their order; what waits to be written is never more than one group."""
    monkeypatch.setattr(events, limit, most)
    names = [[f"{batch}-{n}" for n in range(7)] for batch in range(5)]
    with EventFiles(tmp_path, STAMP, 0) as files:
        for some in names:
            batch_files._write(files, records(*some), np.zeros(7, np.int8))

    [path] = files.paths
    assert parquet.read_metadata(path).num_row_groups == (3 if limit == "ROWS" else 5)
    assert [row["a.b"] for row in written(tmp_path, files.paths)["oo_kind=kept"]] == list(chain.from_iterable(names))


def test_two_attempts_of_a_task_write_beside_each_other(tmp_path: Path) -> None:
    """One that was given up and its successor: no file of either is the other's."""
    both: list[str] = []
    for _ in range(2):
        with EventFiles(tmp_path, STAMP, 0) as files:
            batch_files._write(files, records("a"), np.array([KEPT], np.int8))
        both += files.paths

    assert len(set(both)) == 2


def test_a_spool_gives_back_what_passes_once_and_leaves_what_can_be_opened_again() -> None:
    """In any order, as often as it is asked; of what is on disk already it keeps no copy."""
    given = [records(*(str(n) for n in range(size))) for size in (3, 0, 1000, 1)]
    with Spill() as spill:
        kept = [spill.kept(batch, batch) for batch in given]
        block = partial(records, "a")
        for _ in range(2):
            assert [records_of(part) for part in reversed(kept)] == given[::-1]
        assert spill.kept(block, block()) is block
