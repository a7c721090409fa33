"""Filters over several closed buckets: a look-up finds what a plain set has, whatever became of the chunks since; and
asks few filters."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import filters, look_up, worker_cache
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.range_filters import RangeFilters
from onlyonce.catalog.worker_cache import WorkerCache
from onlyonce.commitlog.erasures import Erasures
from onlyonce.commitlog.sources import FailedAttempts
from onlyonce.core import gc
from onlyonce.operate import gc as operate_gc
from tests.contract.catalog.test_merging import fill, killed_at
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.contract.receiver import Record, ids_of, uniform

FIRST = 1600
"""Where blocks of 8 and of 64 begin."""
FILTERS = (
    "SELECT first_bucket, last_bucket, id_count FROM onlyonce_private.range_filters ORDER BY 1, 2, "
    "partitions, partition"
)


@pytest.fixture
def stream(log: Log, monkeypatch: pytest.MonkeyPatch) -> Receive:
    """The stream of the declared pipeline `shop`, in one partition."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    look_up.forget()
    return Receive(log, partitions=1)


def buckets(stream: Receive, count: int, each: int = 20, first: int = FIRST) -> list[Record]:
    """A batch in each of so many buckets; gives their records."""
    return [record for bucket in range(first, first + count) for record in fill(stream, bucket, 1, each)]


def erase(stream: Receive, records: list[Record]) -> None:
    """As `onlyonce forget --ids` does."""
    ids = filters.pack(ids_of(records))
    Erasures(stream.log.database).forget_ids("shop", ids)


def asked(stream: Receive, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts from now on which filters are fetched, by their kind."""
    fetched: Counter[str] = Counter()
    filters, stored = Chunks.filters, RangeFilters.stored

    def of_chunks(chunks: Chunks, instance: str, keys: list[Any]) -> Any:
        fetched["chunks"] += len(keys)
        return filters(chunks, instance, keys)

    def of_ranges(*given: Any) -> Any:
        fetched["ranges"] += 1
        return stored(*given)

    monkeypatch.setattr(Chunks, "filters", of_chunks)
    monkeypatch.setattr(RangeFilters, "stored", of_ranges)
    return fetched


def test_new_ids_ask_few_filters_and_a_re_delivery_those_of_the_chunks_under_one(
    stream: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 75 buckets one filter over 64 and one over 8; what is counted is as if each chunk had been asked by itself."""
    known = buckets(stream, 75)
    operate_gc.main([])
    assert stream.log.rows(FILTERS) == [(FIRST, FIRST + 63, 1280), (FIRST + 64, FIRST + 71, 160)]
    fetched = asked(stream, monkeypatch)
    place, new = stream.place(stream.begin(FIRST + 75)), uniform(500, 9999)
    look_up.forget()

    took = look_up.look_up(stream.log.database, place, ids_of(new)).took
    assert fetched == {"ranges": 2, "chunks": 3}
    assert (took.spared, took.made, took.false_positives) == (500 * 75, 0, 0)

    again = look_up.look_up(stream.log.database, place, ids_of([*new, known[20 * 65]]))
    assert again.found.tolist() == [False] * 500 + [True]
    assert fetched == {"ranges": 2, "chunks": 3 + 8}
    assert (again.took.spared, again.took.made, again.took.false_positives) == (501 * 75 - 1, 1, 0)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.whole) for seed in (0, 2))])
def test_what_is_found_is_what_a_plain_set_has_after_any_history(
    stream: Receive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    """Batches in growing and in closed buckets, in changing layouts; collections; chunks taken back and made again of
    as many other ids; ids erased.

    By a worker that has all in its memory, and by some that share files."""
    if seed:
        monkeypatch.setattr(worker_cache, "LEAST", 0)
        monkeypatch.setattr(look_up, "_cache", WorkerCache())
        look_up.share_below(tmp_path)
    monkeypatch.setattr(gc, "STEP", 2)
    made, held = np.random.default_rng(seed), set[Record]()
    numbers, bucket = iter(range(10**6 * seed, 10**6 * (seed + 1))), FIRST

    def batch(where: int, back: bool = False) -> None:
        """With `back`, its first attempt is taken back, as of a poison record: the next one keeps as many other ids."""
        records = uniform(int(made.integers(1, 30)), next(numbers))
        begun = stream.begin(where)
        if back:
            stream.units(begun, uniform(len(records), next(numbers)))
            operate_gc.main([])
            FailedAttempts(stream.log.database).refuse(stream.driver, "shop", begun.plan.batch_id, {})
        stream.land(begun, stream.units(begun, records))
        stream.end(begun, len(records))
        held.update(records)

    def known(records: list[Record]) -> list[bool]:
        place = catalog.Place("shop", bucket, 0, "another incarnation", 0, 0, 1)
        return look_up.seen(stream.log.database, place, ids_of(records)).tolist()

    for _ in range(60):
        what = int(made.integers(0, 11))
        if what < 5:
            bucket += int(made.integers(0, 3))
            batch(bucket)
        elif what < 7:
            batch(max(FIRST, bucket - int(made.integers(1, 6))), back=what == 6)
        elif what == 7:
            gone = sorted(held)[:3]
            erase(stream, gone)
            held.difference_update(gone)
        elif what == 8:
            stream.partitions = int(made.integers(1, 4))
        else:
            operate_gc.main([])
            if what == 10:
                look_up.forget()
        wanted = [*sorted(held)[:: max(1, len(held) // 50)], *uniform(50, next(numbers))]
        assert known(wanted) == [record in held for record in wanted]
    assert stream.log.rows(FILTERS)


def test_a_chunk_that_came_late_or_was_made_again_of_as_many_other_ids_is_asked_by_itself(stream: Receive) -> None:
    """The filter of its range does not know it, and says no to each of its ids."""
    buckets(stream, 9)
    operate_gc.main([])
    key = catalog.ChunkKey(FIRST + 3, stream.driver.incarnation, 3, 0)
    other, late = uniform(20, 777), uniform(20, 778)
    ids = filters.pack(ids_of(other))
    Chunks(stream.log.database).replace_ids("shop", key, ids, filters.make(filters.unpack(ids)))
    stream.batch(FIRST + 5, late)

    for _ in range(2):
        assert stream.known(stream.begin(FIRST + 9, 99), other + late) == [True] * 40
        look_up.forget()
        operate_gc.main([])
    assert stream.log.rows(FILTERS) == [(FIRST, FIRST + 7, 180)]


@pytest.mark.parametrize("damage", ["set_byte(filter, 40, 255 - get_byte(filter, 40))", "substring(filter FOR 50)"])
def test_a_damaged_filter_is_not_believed_and_the_next_collection_makes_it_again(stream: Receive, damage: str) -> None:
    """It only costs time."""
    known = buckets(stream, 9)
    operate_gc.main([])
    before = stream.log.rows("SELECT filter FROM onlyonce_private.range_filters")
    stream.log.rows(f"UPDATE onlyonce_private.range_filters SET filter = {damage}")
    look_up.forget()

    assert stream.known(stream.begin(FIRST + 9, 99), known + uniform(50, 9999)) == [True] * len(known) + [False] * 50
    assert stream.log.rows(FILTERS) == []
    assert operate_gc.main([]).facts["range filters"] == 1
    assert stream.log.rows("SELECT filter FROM onlyonce_private.range_filters") == before


def test_it_goes_with_its_last_bucket_and_with_ids_that_are_erased(stream: Receive) -> None:
    """Of a block that is partly collected the filter answers for the rest; one that has an erased id goes at once."""
    known = buckets(stream, 8) + buckets(stream, 9, first=FIRST + 8)
    operate_gc.main([])
    assert [row[:2] for row in stream.log.rows(FILTERS)] == [(FIRST, FIRST + 7), (FIRST + 8, FIRST + 15)]

    erase(stream, known[:1])
    assert [row[:2] for row in stream.log.rows(FILTERS)] == [(FIRST + 8, FIRST + 15)]
    for bucket in (FIRST + 160, FIRST + 170):
        stream.log.rows("UPDATE onlyonce_private.pipelines SET gc_floor = %s", bucket - 150)
        operate_gc.main([])
        assert [row[:2] for row in stream.log.rows(FILTERS)] == (
            [(FIRST + 8, FIRST + 15)] if bucket == FIRST + 160 else []
        )


def test_a_collection_makes_filters_of_a_bounded_number_of_ids(
    stream: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is made by the next ones."""
    monkeypatch.setattr(gc, "AT_ONCE", 300)
    buckets(stream, 33)
    monkeypatch.setattr(gc, "FULL_FILTER", 200)

    assert [operate_gc.main([]).facts["range filters"] for _ in range(3)] == [2, 2, 0]


@pytest.mark.fault
def test_a_collector_killed_before_a_filter_is_committed_leaves_none_and_the_next_makes_it(
    stream: Receive, tmp_path: Path
) -> None:
    """A process of its own."""
    known = buckets(stream, 9)
    assert killed_at("ranges-before-commit", "from onlyonce.operate import gc; gc.main([])", tmp_path) == -9

    assert stream.log.rows(FILTERS) == []
    assert stream.known(stream.begin(FIRST + 9, 99), known) == [True] * len(known)
    assert operate_gc.main([]).facts["range filters"] == 1
