"""Calls of the clock and of random numbers in the text of a function."""

from __future__ import annotations

import pytest

from onlyonce.core.changing_calls import changing_calls

HEAD = """import datetime as dt
import random, time, uuid
import numpy as np
from datetime import datetime
from uuid import uuid4 as new
from random import Random
"""
CALLS = {
    "datetime.now()": ["datetime.now()"],
    "dt.datetime.now(dt.UTC)": ["dt.datetime.now()"],
    "dt.date.today()": ["dt.date.today()"],
    "time.time() + random.random()": ["random.random()", "time.time()"],
    "new()": ["new()"],
    "np.random.rand(3)": ["np.random.rand()"],
    "helper()": ["uuid.uuid4()"],
    "time.perf_counter()": [],
    "Random(7).random()": [],
    "datetime.fromisoformat('2026-01-01')": [],
    "rows.now()": [],
    "other()": [],
}


@pytest.mark.parametrize("call, found", CALLS.items(), ids=CALLS)
def test_calls_that_change_are_found(call: str, found: list[str]) -> None:
    """Also in a function of the module that is named; not in one that is not."""
    text = f"{HEAD}\n\ndef helper():\n    return uuid.uuid4()\n\n\ndef unused():\n    return time.time()\n\n\n"
    text += f"def f(rows):\n    return {call}\n"

    calls = sorted(changing_calls(text, "f"))

    assert sorted(call for _, call, _, _ in calls) == found
    assert all(line in (10, 18) for line, *_ in calls)


def test_import_within_a_function_counts() -> None:
    """A class and its methods too."""
    text = "class C:\n    def f(self):\n        import time\n        return [time.time_ns() for _ in ()]\n"

    assert [line for line, *_ in changing_calls(text, "C")] == [4]
