"""The collection floor over any history of batches, outages and clock steps."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.core.gc import (
    CROWD,
    FULL,
    LARGE,
    MANY,
    PAUSE,
    Known,
    Part,
    edge_buckets,
    floor,
    horizon_buckets,
    level,
    to_merge,
)

DAY = 144
buckets = st.integers(0, 2000)
some = st.lists(buckets, max_size=30)
logs = st.builds(Known, floor=buckets, committed=some, uncommitted=some, begun_with=some)
horizons = st.integers(1, 300)


@given(logs, horizons)
def test_it_never_moves_back(known: Known, horizon: int) -> None:
    """Whatever the log says."""
    assert floor(known, horizon) >= known.floor


@given(logs, horizons)
def test_when_it_moves_it_passes_no_uncommitted_batch_and_no_begun_floor(known: Known, horizon: int) -> None:
    """Nor does it come nearer to the newest committed bucket than the horizon."""
    after = floor(known, horizon)

    if after > known.floor:
        assert all(after <= bound for bound in [*known.uncommitted, *known.begun_with])
        assert after <= max(known.committed) - horizon


@given(logs, horizons)
def test_it_rests_when_nothing_new_is_committed(known: Known, horizon: int) -> None:
    """Collecting again moves nothing: an outage adds no bucket, so the floor stands still in it."""
    after = floor(known, horizon)

    left = [bucket for bucket in known.committed if bucket >= after]

    assert floor(replace(known, floor=after), horizon) == after
    assert all(bucket >= floor(replace(known, floor=after, committed=left), horizon) for bucket in left)


@given(some.filter(bool), horizons, st.integers(0, 10_000), st.integers(0, 29))
def test_the_length_of_a_pause_is_irrelevant(committed: list[int], horizon: int, longer: int, place: int) -> None:
    """An outage or a clock step stretches a gap: the same buckets with ids stay, however long it is."""
    whole = sorted(set(committed))
    at = place % len(whole)
    stretched = whole[:at] + [bucket + PAUSE + longer for bucket in whole[at:]]
    usual = whole[:at] + [bucket + PAUSE for bucket in whole[at:]]

    def kept(of: list[int]) -> list[int]:
        after = floor(Known(committed=of), horizon)
        return [number for number, bucket in enumerate(of) if bucket >= after]

    assert kept(stretched) == kept(usual)


@given(st.integers(0, 200_000))
def test_an_outage_of_any_length_lets_the_last_buckets_be(outage: int) -> None:
    """Of a stream without pauses: after the outage comes a backlog of nine buckets, collected in between."""
    before, after = list(range(1000, 1300)), list(range(1300 + outage, 1309 + outage))
    at = 0
    for number in range(len(after) + 1):
        at = floor(Known(at, before + after[:number]), DAY)

    assert at <= before[-1] - (DAY - PAUSE - len(after))


def test_a_clock_that_steps_back_moves_nothing() -> None:
    """Batches of lower buckets come; the floor is where it was."""
    assert floor(Known(900, [1000, 1044, 950, 951]), DAY) == 900


def test_a_steady_stream_is_collected_at_the_horizon() -> None:
    """The last committed bucket less the horizon, no more and no less."""
    assert floor(Known(0, range(1000, 1500)), DAY) == 1499 - DAY
    assert floor(Known(0, range(1000, 1500, PAUSE)), DAY) == 1498 - DAY


def test_nothing_is_collected_before_anything_is_committed() -> None:
    """A first run over a year of backlog has not expired: what is not committed holds the floor."""
    assert floor(Known(uncommitted=[50_000]), DAY) == 0
    assert floor(Known(0, [90_000], [50_000], [0]), DAY) == 0


def test_a_horizon_is_rounded_up_to_whole_buckets() -> None:
    """Never shorter than declared."""
    spans = [timedelta(days=1), timedelta(minutes=10), timedelta(minutes=11), timedelta(seconds=1)]
    assert [horizon_buckets(span) for span in spans] == [144, 1, 2, 1]


# --- merging
# -----------------------------------------------------------------------------------------------------------

sizes = st.one_of(st.integers(0, 500), st.sampled_from([FULL // 4, FULL // 2, FULL // 2 + 1, FULL]))
parts = st.lists(
    st.builds(Part, st.sampled_from("ab"), st.just(2), st.integers(0, 1), st.integers(0, 10_000), sizes),
    max_size=40, unique_by=lambda part: (part.incarnation, part.partition, part.batch_id),
)  # fmt: skip


def layout(part: Part) -> tuple[str, int, int]:
    """What may be merged with each other."""
    return part.incarnation, part.partitions, part.partition


@given(parts, st.booleans())
def test_what_is_merged_is_of_one_layout_in_the_order_of_the_batches_and_fits(some: list[Part], closed: bool) -> None:
    """Two at least, none of them more than half full."""
    chosen = to_merge(some, closed=closed)

    assert not set(chosen) - set(some)
    assert len(chosen) != 1
    assert len({layout(part) for part in chosen}) <= 1
    assert [part.batch_id for part in chosen] == sorted(part.batch_id for part in chosen)
    assert all(part.ids <= FULL // 2 for part in chosen)
    assert sum(part.ids for part in chosen) <= FULL


@given(parts, st.booleans())
def test_merging_comes_to_an_end_and_loses_no_ids(some: list[Part], closed: bool) -> None:
    """Again and again until nothing is chosen: the same number of ids by layout, and few small chunks in each."""
    left = list(some)
    while chosen := to_merge(left, closed=closed):
        left = [p for p in left if p not in chosen]
        left.append(replace(chosen[-1], ids=sum(part.ids for part in chosen)))

    def ids(of: list[Part]) -> Counter[tuple[str, int, int]]:
        return sum((Counter({layout(part): part.ids}) for part in of), Counter())

    assert ids(left) == ids(some)
    small = Counter((layout(part), None if closed else level(part.ids)) for part in left if part.ids <= LARGE)
    assert all(count < (2 if closed else CROWD) for count in small.values())
    large = Counter(layout(part) for part in left if LARGE < part.ids <= FULL // 2)
    assert all(count < (CROWD if closed else MANY) for count in large.values())


def test_ten_thousand_small_chunks_become_as_few_as_their_ids_need() -> None:
    """A million ids in two partitions: two chunks."""
    left = [Part("a", 2, batch % 2, batch, 100) for batch in range(10_000)]
    made = []
    while chosen := to_merge(left, closed=True):
        left = sorted(set(left) - set(chosen))
        made.append(sum(part.ids for part in chosen))

    assert (left, made) == ([], [500_000, 500_000])


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=50))
@settings(max_examples=30, deadline=None)
def test_a_bucket_that_grows_has_few_chunks_for_its_ids_and_writes_each_id_once_for_each_level(
    cycle: list[int],
) -> None:
    """After each of a thousand batches of any sizes: by the logarithm of the ids, and not by the batches."""
    left: list[Part] = []
    ids = written = 0
    for batch, size in zip(range(1_000), itertools.cycle(cycle), strict=False):
        left.append(Part("a", 1, 0, batch, size))
        ids += size
        while chosen := to_merge(left, closed=False):
            left = [part for part in left if part not in chosen]
            left.append(replace(chosen[-1], ids=sum(part.ids for part in chosen)))
            written += left[-1].ids
        levels = level(min(ids, FULL // 2)) + 1
        assert len(left) <= (CROWD - 1) * levels + min(MANY, ids // LARGE) + 2 * ids // FULL
        assert written <= ids * levels


@pytest.mark.parametrize(("closed", "crowd"), [(False, MANY), (True, CROWD)])
@pytest.mark.parametrize("ids", [LARGE + 1, FULL // 4, FULL // 2])
def test_a_large_chunk_is_written_again_only_where_there_are_many(closed: bool, crowd: int, ids: int) -> None:
    """Each filter that a merge saves is worth little beside what it costs to write so many ids."""
    some = [Part("a", 2, 0, batch, ids) for batch in range(crowd)]

    assert to_merge(some[1:], closed=closed) == []
    assert to_merge(some, closed=closed) == some[: FULL // ids]


@given(st.integers(1, 1_000))
def test_the_edge_is_a_tenth_of_the_horizon_and_never_nothing(buckets: int) -> None:
    """Rounded up to whole buckets."""
    edge = edge_buckets(timedelta(minutes=10 * buckets))

    assert buckets <= 10 * edge < buckets + 10
