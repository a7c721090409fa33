"""Folded control rows say what all of them said: any history of a frontier, in any order."""

from __future__ import annotations

import random
from datetime import timedelta

import pyarrow as pa
import pytest

from onlyonce.core.frontier import Frontier, closed_until
from onlyonce.core.windows import Fixed
from onlyonce.operate import compact
from onlyonce.receive.events import FRONTIER_ROW

PARTS = compact.PARTS


def history(made: random.Random) -> list[Frontier]:
    """What batches, closes and silences have told, one after the other; a task knows less than its batch."""
    now, told = Frontier(), []
    for number in range(made.randint(1, 12)):
        kind = made.choice(["batch", "batch", "ended", "silent"])
        if kind == "batch":
            told += [now.after_batch(now.max_event_time)]
            now = now.after_batch(made.choice([None, number * 10**9, made.randint(0, 10**10)]))
        elif kind == "ended":
            now = now.declared_ended()
        else:
            now = now.fallen_silent(made.randint(0, 10**10), 1000)
        told.append(now)
    return told


@pytest.mark.parametrize("seed", range(30))
def test_folded_rows_close_the_windows_that_all_rows_close(seed: int) -> None:
    """By each part of the frontier, and by what an output makes of them; four rows at most."""
    made = random.Random(seed)
    told = history(made)
    made.shuffle(told)
    rows = pa.table({
        "oo_frontier": pa.array([{part: getattr(one, part) for part in PARTS} for one in told], FRONTIER_ROW),
        "oo_batch": pa.array(range(len(told))),
    })  # fmt: skip

    left = [told[number] for number in compact.folded_control_rows(rows)["oo_batch"].to_pylist()]

    assert 1 <= len(left) <= len(PARTS)
    for part in PARTS:
        assert _largest([getattr(one, part) for one in left]) == _largest([getattr(one, part) for one in told])
    window = Fixed(timedelta(hours=1))
    assert _largest([closed_until(one, window, 0) for one in left]) == _largest(
        [closed_until(one, window, 0) for one in told]
    )


def _largest(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
