"""What a run says of records that are in no result."""

from __future__ import annotations

from typing import Any

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
