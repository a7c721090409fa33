"""The look-up of ids, vectorised, against plain Python: sets, sorting and a loop."""

from __future__ import annotations

import random
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.catalog.filters import Ids, first_of_each, member, merge, pack, unpack

QUICK = settings(max_examples=100, deadline=None)
# Few different halves, so that equal high halves with other low halves are the rule; and the ends of the range.
halves = st.one_of(st.integers(0, 3), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
pairs = st.lists(st.tuples(halves, halves), max_size=40)
rows = st.lists(
    st.tuples(halves, halves, st.integers(-3, 3), st.sampled_from([-(2**63), -1, 0, 2**63 - 1])), max_size=30
)


def ids(of: list[tuple[int, int]]) -> Ids:
    """Two arrays of halves."""
    return np.array([h for h, _ in of], dtype=np.uint64), np.array([w for _, w in of], dtype=np.uint64)


@QUICK
@given(pairs, pairs)
def test_member_is_what_a_set_says(chunk: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    """For ids that are there and ids that are not, repeated or not; an empty chunk holds nothing."""
    # Half of the wanted ones are there.
    wanted = wanted + chunk[::2]

    found = member(unpack(pack(ids(chunk))), ids(wanted))

    assert found.tolist() == [pair in set(chunk) for pair in wanted]


@QUICK
@given(st.sets(st.integers(0, 60), max_size=40), st.lists(st.integers(0, 61), max_size=40))
def test_a_long_run_of_equal_high_halves_is_searched_to_its_end(low: set[int], wanted: list[int]) -> None:
    """The low half decides, also in the last place of the chunk."""
    chunk = unpack(pack(ids([(7, n) for n in low] + [(9, 0)])))

    assert member(chunk, ids([(7, n) for n in wanted])).tolist() == [n in low for n in wanted]
    assert not member(chunk, ids([(8, n) for n in wanted] + [(9, 1), (10, 0)])).any()


@QUICK
@given(pairs)
def test_packed_ids_are_sorted_big_endian_and_come_back(chunk: list[tuple[int, int]]) -> None:
    """16 bytes an id; the bytes sort as the ids do, and any other program can read them."""
    packed = pack(ids(chunk))

    assert packed == b"".join(struct.pack(">QQ", *pair) for pair in sorted(chunk))
    high, low = unpack(packed)
    assert list(zip(high.tolist(), low.tolist(), strict=True)) == sorted(chunk)
    assert {high.dtype, low.dtype} == {np.dtype(np.uint64)}


@QUICK
@given(st.lists(pairs, min_size=1, max_size=5))
def test_chunks_that_are_merged_are_their_ids_together(chunks: list[list[tuple[int, int]]]) -> None:
    """Sorted, and each as often as it was there."""
    assert merge(pack(ids(chunk)) for chunk in chunks) == pack(ids([pair for chunk in chunks for pair in chunk]))


def first(of: list[tuple[int, int, int, int]]) -> list[bool]:
    """`first_of_each` over rows (high, low, time, payload)."""
    time = np.array([t for _, _, t, _ in of], dtype=np.int64)
    payload = np.array([p for *_, p in of], dtype=np.int64)
    return first_of_each(ids([(h, w) for h, w, _, _ in of]), time, payload).tolist()


@QUICK
@given(rows)
def test_one_row_of_each_id_is_first_and_it_is_the_least(of: list[tuple[int, int, int, int]]) -> None:
    """By time, then by payload."""
    chosen = [row for row, is_first in zip(of, first(of), strict=True) if is_first]

    assert sorted(chosen) == sorted(min(row for row in of if row[:2] == key) for key in {row[:2] for row in of})


@QUICK
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_decides_nothing(of: list[tuple[int, int, int, int]], chance: random.Random) -> None:
    """Another cut of the input gives another order and the same rows."""
    shuffled = list(of)
    chance.shuffle(shuffled)

    chosen = sorted(row for row, is_first in zip(of, first(of), strict=True) if is_first)
    assert chosen == sorted(row for row, is_first in zip(shuffled, first(shuffled), strict=True) if is_first)


def test_the_first_criterion_outweighs_the_second() -> None:
    """The earlier time wins, whatever its payload; at one time the smaller payload does."""
    assert first([(1, 1, 5, 0), (1, 1, 4, 9), (1, 1, 4, 8)]) == [False, False, True]


def test_ids_that_share_only_one_half_are_different() -> None:
    """Either half."""
    assert first([(1, 2, 0, 0), (1, 3, 0, 0), (2, 2, 0, 0)]) == [True, True, True]


def test_nothing_is_looked_up_among_nothing() -> None:
    """Zero rows, an empty chunk."""
    none = ids([])

    assert pack(none) == b""
    assert [half.tolist() for half in unpack(b"")] == [[], []]
    assert member(none, ids([(1, 1)])).tolist() == [False]
    assert member(ids([(1, 1)]), none).tolist() == []
    assert first([]) == []
