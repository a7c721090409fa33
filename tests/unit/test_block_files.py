"""Blocks in files: each at the place that is told of it, and no folder of an attempt outlives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.model.errors import Retryable
from jobs.spark import block_files

GIVEN = [b"first", b"", b"the third, longer than the others"]


def stored(folder: Path, *batches: Sequence[bytes | None]) -> list[pa.RecordBatch]:
    """The same batches with places for blocks."""
    made = [pa.RecordBatch.from_pydict({"block": pa.array(blocks, pa.binary())}) for blocks in batches]
    return list(block_files.into(folder, lambda lines: lines)(iter(made)))


def blocks_of(batches: list[pa.RecordBatch]) -> Iterator[bytes | None]:
    """What is at each place."""
    for batch in batches:
        for place in batch.column("block"):
            yield block_files.fetched(place).to_pybytes() if place.is_valid else None


def test_a_block_is_what_is_at_its_place(tmp_path: Path) -> None:
    """Of several batches of one task, which go to one file, with lines among them; and of several tasks in one folder."""
    one, other = stored(tmp_path, GIVEN[:2], [None, None], GIVEN[2:]), stored(tmp_path, GIVEN)

    assert [*blocks_of(one)] == [*GIVEN[:2], None, None, *GIVEN[2:]]
    assert [*blocks_of(other)] == GIVEN
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("gone", ["taken away", "cut"])
def test_a_block_that_is_not_there_whole_is_never_taken_for_a_shorter_one(tmp_path: Path, gone: str) -> None:
    """The batch fails, and is tried again from its input."""
    batches = stored(tmp_path, GIVEN)
    (file,) = tmp_path.iterdir()
    if gone == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()

    with pytest.raises(Retryable, match="records on their way to their task are gone"):
        list(blocks_of(batches))


def test_a_folder_is_gone_with_its_attempt_however_that_ends(tmp_path: Path) -> None:
    """And two attempts at once have two folders."""
    with block_files.folder(tmp_path, 3) as one, block_files.folder(tmp_path, 3) as other:
        assert one != other
        stored(one, GIVEN)
    with pytest.raises(ZeroDivisionError), block_files.folder(tmp_path, 3):
        _ = 1 / 0

    assert list((tmp_path / "3").iterdir()) == []


def test_what_drivers_of_earlier_epochs_have_left_is_cleared_away(tmp_path: Path) -> None:
    """Theirs only: the own epoch's is of this run, and a later one's of the driver that has taken over."""
    for epoch in (1, 2, 3, 10):
        (tmp_path / str(epoch) / "left").mkdir(parents=True)

    block_files.clear(tmp_path / "not there", 3)
    block_files.clear(tmp_path, 3)

    assert {path.name for path in tmp_path.iterdir()} == {"3", "10"}
