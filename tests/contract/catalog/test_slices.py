"""Few "maybes" of a large chunk are settled by slices of its ids: as exactly as by all of them, and with less to
fetch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.catalog import filters, look_up
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.worker_cache import WorkerCache
from tests.contract.conftest import Log
from tests.contract.receiver import Record, Worker, ids_of, uniform

QUICK = settings(max_examples=200, deadline=None)
halves = st.one_of(st.integers(0, 3), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
pairs = st.lists(st.tuples(halves, halves), max_size=60)
MANY = 5_000


@QUICK
@given(pairs, pairs, st.integers(0, 4_000))
def test_a_slice_says_what_the_whole_chunk_says_or_that_it_cannot(
    chunk: list[Record], wanted: list[Record], background: int
) -> None:
    """For ids of any spread, also those that no hash would give; never a false answer."""
    everything = chunk + uniform(background, 1)
    stored = filters.pack(ids_of(everything))
    wanted = wanted + chunk[::2] + everything[-3:]
    if not everything:
        return
    told = answers(stored, filters.slices(len(everything), ids_of(wanted)[0]), wanted)

    assert told in (None, [one in set(everything) for one in wanted])


@QUICK
@given(pairs, pairs, st.integers(1, 4_000))
def test_by_its_fences_a_slice_always_says_what_the_whole_chunk_says(
    chunk: list[Record], wanted: list[Record], background: int
) -> None:
    """For ids of any spread, many with one upper half, and with few ids around each."""
    everything = chunk + uniform(background, 1)
    stored = filters.pack(ids_of(everything))
    wanted = wanted + chunk[::2] + everything[-3:] + [(high, low ^ 1) for high, low in everything[:5]]
    known = filters.fences(filters.unpack(stored))
    near = filters.between(known, len(everything), ids_of(wanted)[0])

    assert answers(stored, near, wanted) == [one in set(everything) for one in wanted]
    assert (near[1] - near[0] <= 2 * filters.FENCE + 1 + len(chunk)).all()


def answers(stored: bytes, near: filters.Slices, wanted: list[Record]) -> list[bool] | None:
    """What the joined slices of a stored chunk say, as the database would give them."""
    starts, ends = filters.joined(near)
    assert (starts[1:] > ends[:-1]).all()
    parts = b"".join(stored[16 * start : 16 * end] for start, end in zip(starts, ends, strict=True))
    told = filters.in_slices(filters.unpack(parts), (starts, ends), len(stored) // 16, ids_of(wanted))
    return None if told is None else told.tolist()


def test_uniform_ids_are_where_they_are_expected() -> None:
    """Each of 20,000 is in its slice, but for a few in ten thousand."""
    ids = filters.unpack(filters.pack(ids_of(uniform(20_000, 1))))
    starts, ends = filters.slices(20_000, ids[0])
    at = np.arange(20_000)

    assert ((starts < at) & (at < ends - 1) | (starts == 0) | (ends == 20_000)).mean() > 0.999


@pytest.fixture
def worker(log: Log, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker that counts what it loads, with a catalog of one large chunk."""
    started = Worker(log).watch(monkeypatch)
    started.receive(101, uniform(MANY, 1))
    started.restart()
    return started


def test_few_duplicates_in_a_large_chunk_are_found_without_all_of_its_ids(worker: Worker) -> None:
    """Three of five thousand, among a hundred new ones."""
    fates = worker.receive(102, [*uniform(MANY, 1)[:3], *uniform(100, 2)])

    assert fates == ["duplicate"] * 3 + ["kept"] * 100
    assert worker.loaded == []


def test_many_are_settled_by_the_whole_chunk(worker: Worker) -> None:
    """Each other one."""
    fates = worker.receive(102, uniform(MANY, 1)[::2])

    assert set(fates) == {"duplicate"}
    assert [key.batch_id for key in worker.loaded] == [0]


def test_a_chunk_that_is_asked_again_and_again_is_fetched_once(worker: Worker) -> None:
    """The cache has room for it: when its slices add up to it, it is fetched whole, and nothing is fetched any more."""
    for number in range(12):
        assert worker.receive(102, uniform(MANY, 1)[4 * number : 4 * number + 4]) == ["duplicate"] * 4

    assert [key.batch_id for key in worker.loaded if key.batch_id == 0] == [0]


def test_a_catalog_larger_than_the_cache_is_not_fetched_for_a_few(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would be pushed out again is not brought in."""
    monkeypatch.setattr(WorkerCache, "has_room", lambda _, size: size <= 1000)
    for number in range(12):
        assert worker.receive(102, uniform(MANY, 1)[4 * number : 4 * number + 4]) == ["duplicate"] * 4

    assert [key for key in worker.loaded if key.batch_id == 0] == []


def test_of_a_chunk_that_was_here_only_what_surrounds_an_id_is_fetched(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of its ids bring it whole; then the cache has lost it, and three ids cost no more than what is around
    them."""
    asked: list[int] = []
    slices = Chunks.slices

    def counted(*given: Any) -> Any:
        asked.append(sum(given[-1]) - sum(given[-2]))
        return slices(*given)

    monkeypatch.setattr(Chunks, "slices", counted)
    worker.receive(102, uniform(MANY, 1)[::2])
    assert ([key.batch_id for key in worker.loaded], asked) == ([0], [])
    look_up._cache._memory._spare.clear()

    assert worker.receive(103, uniform(MANY, 1)[:3]) == ["duplicate"] * 3
    assert 0 < sum(asked) <= 3 * 2 * filters.FENCE + 3


def test_ids_that_are_not_where_they_should_be_are_found_all_the_same(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids that no hash would give, all in one corner: their slices can't tell, the whole chunk does."""
    worker = Worker(log).watch(monkeypatch)
    corner = [(number, number) for number in range(MANY)]
    worker.receive(101, corner)
    worker.restart()

    assert worker.receive(102, [*corner[-3:], (MANY, 1)]) == ["duplicate"] * 3 + ["kept"]
    assert [key.batch_id for key in worker.loaded] == [0]
