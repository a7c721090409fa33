"""Blocks in files: each at the place that is told of it, and no folder of an attempt outlives it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.core.errors import Retryable
from onlyonce.engine.worker import GONE
from onlyonce.receive import exchange
from onlyonce.receive.exchange import Block

GIVEN = [b"first", b"", b"the third, longer than the others"]


def stored(folder: Path, *batches: Sequence[bytes | str]) -> list[dict[str, Any]]:
    """What a task tells whose reader gives these batches, of blocks or of lines that are left."""
    made = []
    for one in batches:
        of_lines = isinstance(one[0], str)
        made.append(
            pa.RecordBatch.from_pydict(
                {
                    "oo_line": pa.array(one if of_lines else [None] * len(one), pa.string()),
                    "block": pa.array([None] * len(one) if of_lines else one, pa.binary()),
                    "target": pa.array([None if of_lines else at for at in range(len(one))], pa.int32()),
                }
            )
        )
    return [
        row
        for batch in exchange.write_blocks_into(folder, lambda lines: lines)(iter(made))
        for row in batch.to_pylist()
    ]


def blocks_of(told: list[dict[str, Any]]) -> list[tuple[int, bytes]]:
    """What is at each place, with its target."""
    return [(row["target"], Block(**row).fetched().to_pybytes()) for row in told if row["target"] is not None]


def lines_of(told: list[dict[str, Any]]) -> list[str]:
    """The lines that were left."""
    files = [row["file"] for row in told if row["target"] is None]
    return [
        line
        for file in files
        for batch in exchange.left_in_blocks(file)
        for line in batch.column("oo_line").to_pylist()
    ]


def test_a_block_is_what_is_at_its_place(tmp_path: Path) -> None:
    """Of several batches of one task, which go to one file, and of several tasks in one folder."""
    one, other = stored(tmp_path, GIVEN[:2], GIVEN[2:]), stored(tmp_path, GIVEN)

    assert blocks_of(one) == [(0, GIVEN[0]), (1, GIVEN[1]), (0, GIVEN[2])]
    assert blocks_of(other) == [*enumerate(GIVEN)]
    assert len(list(tmp_path.iterdir())) == 2


def test_lines_that_are_left_are_in_a_file_of_their_task(tmp_path: Path) -> None:
    """All of them in their order, between the blocks; a task that leaves none has no such file."""
    one, other = stored(tmp_path, ["a", "b"], GIVEN, ["c"]), stored(tmp_path, GIVEN)

    assert (lines_of(one), lines_of(other)) == (["a", "b", "c"], [])
    assert blocks_of(one) == blocks_of(other) == [*enumerate(GIVEN)]
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("gone", ["taken away", "cut"])
def test_a_block_that_is_not_there_whole_is_never_taken_for_a_shorter_one(tmp_path: Path, gone: str) -> None:
    """The batch fails, and is tried again from its input."""
    told = stored(tmp_path, GIVEN)
    (file,) = tmp_path.iterdir()
    if gone == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()

    with pytest.raises(Retryable, match=GONE):
        blocks_of(told)


@pytest.mark.parametrize("gone", ["taken away", "cut"])
def test_lines_that_are_not_there_whole_fail_the_batch(tmp_path: Path, gone: str) -> None:
    """However much of their file is left: none of it is taken for all of it."""
    told = stored(tmp_path, ["a", "b"], ["c"])
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.unlink()
        if gone == "cut":
            file.write_bytes(whole[:size])
        with pytest.raises(Retryable, match=GONE):
            lines_of(told)
        file.write_bytes(whole)


def test_a_folder_is_gone_with_its_attempt_however_that_ends(tmp_path: Path) -> None:
    """And two attempts at once have two folders."""
    with exchange.block_folder(tmp_path, 3) as one, exchange.block_folder(tmp_path, 3) as other:
        assert one != other
        stored(one, GIVEN)
    with pytest.raises(ZeroDivisionError), exchange.block_folder(tmp_path, 3):
        _ = 1 / 0

    assert list((tmp_path / "3").iterdir()) == []


def test_what_fails_after_its_folder_was_cleared_away_is_told_as_that(tmp_path: Path) -> None:
    """Whatever a task has met then; what fails while the folder is there is told as it is."""

    def write_beside_a_newer_driver() -> None:
        with exchange.block_folder(tmp_path, 1) as mine:
            exchange.clear_blocks(tmp_path, 2)
            (mine / "block").write_bytes(b"")

    with pytest.raises(Retryable, match=GONE) as told:
        write_beside_a_newer_driver()
    assert isinstance(told.value.__cause__, FileNotFoundError)
    with pytest.raises(FileNotFoundError), exchange.block_folder(tmp_path, 3) as mine:
        (mine / "there").read_bytes()


def test_what_drivers_of_earlier_epochs_have_left_is_cleared_away(tmp_path: Path) -> None:
    """Theirs only: the own epoch's is of this run, and a later one's of the driver that has taken over."""
    for epoch in (1, 2, 3, 10):
        (tmp_path / str(epoch) / "left").mkdir(parents=True)

    exchange.clear_blocks(tmp_path / "not there", 3)
    exchange.clear_blocks(tmp_path, 3)

    assert {path.name for path in tmp_path.iterdir()} == {"3", "10"}
