"""A test of a user's gives the tables of lookups, and is told where one is missing or wrong."""

from __future__ import annotations

from typing import Any

import pytest

from onlyonce.core.errors import Refused
from onlyonce.testing import run
from tests.support.looks_up import PIPELINES

pytestmark = pytest.mark.spark

ROWS = [{"id": str(n), "shop": shop, "at": "2026-01-01T00:00:10Z", "cents": n} for n, shop in enumerate("aab")]


def test_functions_get_the_tables_that_a_test_gives(spark: object) -> None:
    """As they come, by window, and in an output made from another; a table with a key twice is refused, as a run
    would."""
    cities: Any = [{"shop": "a", "city": "x"}]
    result = run(PIPELINES[0], ROWS, close=True, lookups={"cities": cities})
    assert sorted((row["id"], row["city"]) for row in result.output("each")) == [("0", "x"), ("1", "x"), ("2", None)]
    assert {(row["city"], row["sales"]) for row in result.output("per_city")} == {("x", 2), (None, 1)}
    assert {(row["shop"], row["city"]) for row in result.output("named")} == {("a", "x"), ("b", None)}
    for given, what in (
        ({}, "looks up cities"),
        ({"city": cities}, "no lookup 'city'"),
        ({"cities": cities * 2}, "2 rows have"),
    ):
        with pytest.raises(Refused, match=what):
            run(PIPELINES[0], ROWS, lookups=given)
