"""How much of what waits a batch of an output takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onlyonce.core.backfill import first_files, records_of_part

COMMITS = [(2, 40), (3, 50), (0, 0), (4, 60), (1, 500), (2, 10)]


@pytest.mark.parametrize(("most_bytes", "most_commits", "files"), [
    (1, 100, 2), (89, 100, 2), (90, 100, 5), (150, 100, 9), (649, 100, 9), (650, 100, 10), (659, 100, 10), (660, 100, None),
    (1000, 1, 2), (1000, 2, 5), (1000, 3, 9), (1000, 4, 10), (1000, 5, None), (0, 0, 2),
])  # fmt: skip
def test_a_batch_takes_whole_commits_as_many_as_fit_and_one_at_least(
    most_bytes: int, most_commits: int, files: int | None
) -> None:
    """None: all that waits fits. A commit without files counts for nothing."""
    assert first_files(COMMITS, most_bytes, most_commits) == files


def test_of_a_long_backlog_no_more_is_looked_at_than_a_batch_takes() -> None:
    """Each look opens a file of the table's log."""
    looked = []

    def waiting() -> Iterator[tuple[int, int]]:
        for number in range(1000):
            looked.append(number)
            yield 1, 10

    assert first_files(waiting(), 30, 1000) == 3
    assert len(looked) == 4
    assert first_files([], 30, 1000) is None


@pytest.mark.parametrize(("waiting", "record_bytes", "most_bytes", "steps", "records"), [
    (100, 10.0, 1000, 9, None), (101, 10.0, 1000, 9, 100), (1000, 10.0, 1000, 4, 250), (1000, 10.0, 1000, 1, None), (5, 10.0, 1, 9, 1), (0, 0.0, 1, 9, None),
])  # fmt: skip
def test_a_part_of_a_first_reading_has_what_fits_and_more_where_there_are_few_steps(
    waiting: int, record_bytes: float, most_bytes: int, steps: int, records: int | None
) -> None:
    """None: all that waits, which is the last part."""
    assert records_of_part(waiting, record_bytes, most_bytes, steps) == records
