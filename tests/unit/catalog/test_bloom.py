"""Bloom filters: never a false negative, the stated rate of false positives, and damage is always seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.catalog import filters
from onlyonce.catalog.filters import Ids

QUICK = settings(max_examples=100, deadline=None)
# Any halves: also those that no hash would give, with equal halves and the ends of the range.
halves = st.one_of(st.integers(0, 3), st.sampled_from([2**32 - 1, 2**32, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
pairs = st.lists(st.tuples(halves, halves), max_size=200)


def ids(of: list[tuple[int, int]]) -> Ids:
    """Two arrays of halves."""
    return np.array([h for h, _ in of], dtype=np.uint64), np.array([w for _, w in of], dtype=np.uint64)


def some(count: int, seed: int) -> Ids:
    """Uniform ids, as the hash gives them."""
    made = np.random.default_rng(seed)
    return made.integers(0, 2**64, count, dtype=np.uint64), made.integers(0, 2**64, count, dtype=np.uint64)


def filter_of(of: Ids) -> filters.Filter:
    """Made, stored and read."""
    known = filters.read(filters.make(of), len(of[0]))
    assert known is not None
    return known


def maybe(known: filters.Filter, wanted: Ids) -> list[int]:
    """The positions of what the filter may hold."""
    return filters.maybe(known, filters.probes(wanted)).tolist()


@QUICK
@given(pairs, pairs)
def test_there_is_never_a_false_negative(there: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    """Each id that went in is a maybe, wherever it stands among others, repeated or not."""
    wanted = others + there + there[:3]

    found = set(maybe(filter_of(ids(there)), ids(wanted)))

    assert {at for at, pair in enumerate(wanted) if pair in set(there)} <= found


@pytest.mark.parametrize("count", [5, 50, 1_000, 20_000, 200_000])
def test_false_positives_are_as_rare_as_stated(count: int) -> None:
    """One in a million, of ten million ids that are not there; within twice that, which chance leaves alone.

    Small ones too.
    """
    known = filter_of(some(count, 1))
    found = sum(len(maybe(known, some(1_000_000, seed))) for seed in range(2, 12))

    assert found / 10_000_000 < 2 * filters.FALSE_POSITIVES


def test_ids_that_share_their_partition_are_told_apart_as_well() -> None:
    """Receive puts an id into a partition by the remainder of its high half: the probes must not depend on that."""
    (high, low), (other, others) = some(20_000, 1), some(2_000_000, 2)
    four = np.uint64(4)

    found = maybe(filter_of((high // four * four, low)), (other // four * four, others))

    assert len(found) / 2_000_000 < 4 * filters.FALSE_POSITIVES


def test_an_id_with_its_filter_takes_less_than_20_bytes() -> None:
    """The catalog's budget is 24 with the rows around them."""
    assert 16 + len(filters.make(some(100_000, 1))) / 100_000 < 20


def test_an_empty_filter_holds_nothing() -> None:
    """And asking for nothing finds nothing."""
    none = ids([])

    assert maybe(filter_of(none), some(1_000, 1)) == []
    assert maybe(filter_of(some(10, 1)), none) == []


@QUICK
@given(st.data(), st.integers(1, 60))
def test_any_flipped_bit_is_seen(data: st.DataObject, count: int) -> None:
    """In the header or in the field."""
    stored = bytearray(filters.make(some(count, 1)))
    at = data.draw(st.integers(0, 8 * len(stored) - 1))
    stored[at // 8] ^= 1 << (at % 8)

    assert filters.read(bytes(stored), count) is None


@QUICK
@given(st.data())
def test_any_truncation_or_addition_is_seen(data: st.DataObject) -> None:
    """Down to nothing at all."""
    stored = filters.make(some(40, 1))
    cut = data.draw(st.integers(0, len(stored) - 1))

    assert filters.read(stored[:cut], 40) is None
    assert filters.read(stored + b"\0", 40) is None
    assert filters.read(None, 40) is None


def test_the_filter_of_another_chunk_is_seen() -> None:
    """By the number of ids, which the row of the chunk tells too."""
    assert filters.read(filters.make(some(40, 1)), 41) is None
