"""Which commits to `events` may be compacted, and which files go together: tables of cases."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from onlyonce.core.retention import SMALL_BYTES, TARGET_BYTES, Reader, files_together, whole_buckets_from

READ_ALL = Reader("all", 3, 20, 20, 21)


@pytest.mark.parametrize(
    ("reader", "upto"),
    [
        (Reader("has read all and nothing is open", 3, 20, 20, 0), 20),
        (Reader("may repeat its last batch", 3, 12, 20, 0), 12),
        (Reader("repeats its first batch as a whole", 0, -1, 15, 0), 15),
        (Reader("has not begun, and reads all there is", None, -1, -1, 0), 20),
        (Reader("a new incarnation that goes on at a version", None, -1, -1, 9), 7),
        (Reader("its oldest open window began long ago", 3, 20, 20, 6), 4),
        (Reader("reads from the first commit on", 3, 20, 20, 1), -1),
        (Reader("reads in parts what there was at 15", 2, 4, 6, 5, 15), 3),
        (Reader("the same, with nothing open", 2, 4, 6, 0, 15), 15),
        (READ_ALL, 19),
    ],
    ids=lambda value: value.query if isinstance(value, Reader) else str(value),
)
def test_a_commit_that_may_be_read_by_itself_is_not_compacted(reader: Reader, upto: int) -> None:
    """By the last batch of a query, and by where a new incarnation of it would begin; the one that holds it is named."""
    assert whole_buckets_from(20, [reader]) == (upto, reader.query if upto < 20 else None)
    assert whole_buckets_from(3, [reader])[0] <= 3


@pytest.mark.parametrize(("starts_from", "upto"), [(6, 20), (13, 20), (14, 12)])
def test_a_new_incarnation_that_would_begin_with_what_is_compacted_holds_nothing(starts_from: int, upto: int) -> None:
    """It takes the table as it is.

    One that begins behind that reads commit by commit, from the one before its first on.
    """
    assert whole_buckets_from(20, [Reader("new", 3, 20, 20, starts_from)], compacted=12)[0] == upto


@dataclass(frozen=True)
class Of:
    """A file of some size."""

    bytes: int


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([1], []),
        ([1, 1], [[1, 1]]),
        ([1, SMALL_BYTES, 1], [[1, 1]]),
        ([SMALL_BYTES - 1] * 5, [[SMALL_BYTES - 1] * 2] * 2),
        ([80, 10, 10], [[80, 10, 10]]),
        ([81, 10, 10], [[10, 10]]),
        ([10, 1000, 81, 10], [[10, 10]]),
    ],
)
def test_small_files_go_together_as_far_as_one_may_hold_them(sizes: list[int], groups: list[list[int]]) -> None:
    """In their order; one alone, a large one, and one that is large beside the rest stay as they are."""
    found = files_together([Of(size) for size in sizes])
    assert [[file.bytes for file in group] for group in found] == groups
    assert all(sum(group) <= TARGET_BYTES for group in groups)


def test_a_row_is_written_again_seldom_however_often_files_come() -> None:
    """A thousand times a small file, put together each time: few files, and each byte was written some twenty times and
    not five hundred."""
    there, written = [], 0
    for _ in range(1000):
        there.append(Of(100))
        for group in files_together(there):
            there = [file for file in there if not any(file is one for one in group)]
            there.append(Of(sum(file.bytes for file in group)))
            written += there[-1].bytes
    assert sum(file.bytes for file in there) == 100_000
    assert len(there) < 10
    assert written < 30 * 100_000
