"""Which closed buckets get a filter together, over any history of a catalog."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlyonce.core import gc
from onlyonce.core.gc import FULL_FILTER, STEP, Chunks, Range, wanted_ranges

Known = dict[Range, set[int]]


def collected(chunks: dict[int, Chunks], known: Known, floor: int, newest: int) -> Known:
    """The filters after a collection that has made all that it wants, each in the place of those over parts of its
    range."""
    there = {block: hashes for block, hashes in known.items() if block[1] >= floor}
    for block in wanted_ranges(chunks, there, floor, newest):
        there = {other: hashes for other, hashes in there.items() if not block[0] <= other[0] <= other[1] <= block[1]}
        there[block] = {one for bucket, some in chunks.items() if block[0] <= bucket <= block[1] for one in some}
    return there


def asked(chunks: dict[int, Chunks], known: Known) -> int:
    """How many filters a look-up asks: those over ranges with a chunk that is there, and those of all other chunks."""
    alone = {one for some in chunks.values() for one in some}
    ranges = sum(bool(hashes & alone) for hashes in known.values())
    return ranges + len(alone.difference(*known.values()))


@given(
    gaps=st.lists(st.integers(1, 3), min_size=1, max_size=700), horizon=st.integers(10, 1500), every=st.integers(1, 9),
    start=st.integers(0, 5000),
)  # fmt: skip
def test_a_look_up_asks_a_number_of_filters_that_grows_with_the_logarithm_of_the_buckets(
    gaps: list[int], horizon: int, every: int, start: int
) -> None:
    """Of a stream with one chunk a bucket, collected every so many buckets: seven of each length at either end."""
    chunks: dict[int, Chunks] = {}
    known: Known = {}
    newest = start
    for number, gap in enumerate(gaps):
        newest += gap
        chunks[newest] = {number: 10}
        if number % every == 0 or number == len(gaps) - 1:
            chunks = {bucket: some for bucket, some in chunks.items() if bucket >= newest - horizon}
            known = collected(chunks, known, newest - horizon, newest)

    levels = math.ceil(math.log(max(chunks) - min(chunks) + 1 or 1, STEP)) + 1
    assert asked(chunks, known) <= 2 * (STEP - 1) * levels + 1


chunks_by_bucket = st.dictionaries(
    st.integers(0, 300),
    st.dictionaries(st.integers(0, 10**6), st.integers(1, FULL_FILTER // 3), max_size=3),
    max_size=60,
)


@given(chunks_by_bucket, st.integers(0, 100), st.integers(0, 310))
def test_blocks_are_closed_live_not_too_large_apart_and_made_once(
    chunks: dict[int, Chunks], floor: int, newest: int
) -> None:
    """Whatever chunks there are."""
    made = wanted_ranges(chunks, {}, floor, newest)

    for first, last in made:
        inside = {one: ids for bucket, some in chunks.items() if first <= bucket <= last for one, ids in some.items()}
        assert floor <= first < last < newest
        assert len(inside) > 1
        assert sum(inside.values()) <= FULL_FILTER
    assert all(one[1] < two[0] for one, two in zip(sorted(made), sorted(made)[1:], strict=False))
    known = collected(chunks, {}, floor, newest)
    assert known.keys() == set(made)
    assert wanted_ranges(chunks, known, floor, newest) == []


@pytest.mark.parametrize(
    ("changed", "again"),
    [({3: {99: 5}}, True), ({3: {}}, False), ({9: {99: 5}}, False)],
    ids=["a chunk that the filter has not", "a chunk went", "another block's"],
)
def test_a_block_is_made_again_when_it_has_a_chunk_that_is_not_in_its_filter(
    changed: dict[int, Chunks], again: bool
) -> None:
    """Its ids were changed, or came late. What is gone does no harm."""
    chunks = {bucket: {bucket: 5} for bucket in range(8)}
    known = collected(chunks, {}, 0, 50)

    assert known.keys() == {(0, 7)}
    assert wanted_ranges(chunks | changed, known, 0, 50) == ([(0, 7)] if again else [])


def test_a_block_that_the_floor_has_reached_is_not_made_again_and_goes_on_answering() -> None:
    """Else each collection would make it again."""
    chunks = {bucket: {bucket: 5} for bucket in range(64)}
    known = collected(chunks, {}, 0, 64)
    assert known.keys() == {(0, 63)}

    left = {bucket: some for bucket, some in chunks.items() if bucket >= 30}
    assert wanted_ranges(left, known, 30, 64) == []
    assert asked(left, known) == 1


def test_the_longest_block_is_of_years() -> None:
    """So the number of levels is no bound that a horizon meets."""
    assert STEP**gc.LEVELS / (6 * 24 * 365) > 4
