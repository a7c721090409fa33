"""What a run says of records that are in no result."""

from __future__ import annotations

from typing import Any

import pytest

from onlyonce.run import stream


def test_records_in_no_result_are_told_with_the_command_that_shows_them() -> None:
    """Over all queries of the run; a fate without records is not mentioned."""
    fates: list[dict[str, Any]] = [
        {"query": "receive", "in": 9, "invalid": 3, "expired": 0},
        {"query": "a", "late": 1},
        {"query": "b", "late": None},
    ]

    assert stream.left_out("shop@1", fates) == [
        "invalid: 3: they can't be read as declared, and are in no result. `onlyonce invalid shop@1` shows them",
        "late: 1: they came late, and are in no result. `onlyonce late shop@1` shows them",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "invalid", "said"),
    [
        (102, 102, "invalid: all 102 of 102: they can't be read as declared, and are in no result. WHY`onlyonce"),
        (102, 101, "invalid: 101: they can't be read as declared, and are in no result. `onlyonce"),
    ],
)
def test_run_of_invalid_records_only_says_all_and_why(read: int, invalid: int, said: str) -> None:
    """A run that has read nothing has no invalid records."""
    fates: list[dict[str, Any]] = [{"query": "receive", "in": read, "invalid": invalid}, {"query": "a", "in": 3}]

    [warning] = stream.left_out("shop", fates, "WHY" if stream.all_invalid(fates) else "")

    assert warning.startswith(said)
    assert not stream.all_invalid([])
