"""Calls of the clock and of random numbers in the text of a function."""

from __future__ import annotations

import pytest

from onlyonce.core.changing_calls import changing_calls, lines_of_call

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


@pytest.mark.parametrize(
    ("expression", "called"),
    [
        ("rows.filter(F.rand() < 0.5)", "rand"),
        ("rows.groupBy('shop').agg(\n    F.collect_list('cents'),\n)", "collect_list"),
        ("(rows\n    .dropDuplicates(['shop'])\n    .select('id'))", "Deduplicate"),
        ("rows.where('cents > 1').where(\n    'now() > at')", "now"),
        ("rows.select(\n    F.spark_partition_id())", "SPARK_PARTITION_ID"),
        ("helper(rows)", "uuid"),
        ("rows.filter('x')", "rand"),
    ],
)
def test_line_of_a_call_of_spark_is_found(expression: str, called: str) -> None:
    """In a chain of several lines too, in SQL, and in a helper of the module; none if it is not there."""
    text = f"def helper(rows):\n    return rows.select(F.uuid())\n\n\ndef f(rows):\n    return {expression}\n"
    found = list(lines_of_call(text, "f", called))

    expected = {"helper(rows)": [2], "rows.filter('x')": []}.get(expression, [6 + ("\n" in expression)])
    assert found == expected
