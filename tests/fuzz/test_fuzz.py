"""Hostile lines have the values that the page of values says: our readers agree with a reader that was written from the
page alone."""

from __future__ import annotations

import pytest

from onlyonce.core import conversions
from tests.fuzz import compare, hostile, hostile_columns, many

FEW = range(0, len(hostile.SEEDS), 10)
MILLION = range(1_000_000 // hostile.LINES)


def test_committed_seeds_touch_each_cell_of_the_table() -> None:
    """Each declared type with each source form."""
    touched = frozenset[hostile.Cell]().union(*(hostile.block(seed).cells for seed in hostile.SEEDS))
    assert sorted(hostile.CELLS - touched) == []


def test_committed_seeds_touch_each_cell_of_columns() -> None:
    """Each declared type with each type of Arrow's, and each fate that one of its values can have."""
    touched = set[hostile_columns.Cell]().union(*(hostile_columns.column(seed).cells for seed in hostile_columns.SEEDS))
    assert sorted(hostile_columns.CELLS - touched) == []
    assert sorted(conversions.SCALARS.keys() - {declared for declared, _, _ in touched}) == []


def test_hostile_columns_are_read_as_the_page_says() -> None:
    columns = [hostile_columns.column(seed) for seed in hostile_columns.SEEDS]
    different = [(one, hostile_columns.ours(one), hostile_columns.wanted(one)) for one in columns]
    assert [(one, ours, wanted) for one, ours, wanted in different if repr(ours) != repr(wanted)] == []


@pytest.mark.parametrize("seed", FEW)
def test_hostile_lines_are_read_as_the_page_says(seed: int) -> None:
    assert compare.differences(hostile.block(seed)) == []


def test_committed_seeds_are_among_the_million() -> None:
    assert set(hostile.SEEDS) <= set(MILLION)


@pytest.mark.whole
@pytest.mark.parametrize("begin", MILLION[:: many.PART])
def test_a_million_hostile_lines_are_read_as_the_page_says(begin: int) -> None:
    """In this process, a part after another: processes of its own hung once beside two other sessions of tests."""
    part = MILLION[begin : begin + many.PART]
    assert [(seed, found) for seed in part if (found := compare.differences(hostile.block(seed)))] == []
