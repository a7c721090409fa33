"""Chunks of a bucket become few: what a look-up finds stays the same, before, during and after, at any kill."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onlyonce.catalog import filters, look_up, merging
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.merging import Merging
from onlyonce.catalog.worker_cache import WorkerCache
from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken, Superseded
from onlyonce.database import locks
from onlyonce.database.connect import transaction
from onlyonce.operate import gc
from onlyonce.receive import loop
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.contract.receiver import Record, uniform
from tests.support.other_process import script_apart

POINTS = (
    "gc-after-floor", "merge-after-take", "merge-before-commit", "merge-after-commit", "merge-after-compact",
)  # fmt: skip


@pytest.fixture
def stream(log: Log, monkeypatch: pytest.MonkeyPatch) -> Receive:
    """The stream of the declared pipeline `shop`."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    look_up.forget()
    return Receive(log)


def fill(stream: Receive, bucket: int, batches: int, each: int = 20) -> list[Record]:
    """So many batches of one bucket; gives their records."""
    made = []
    for _ in range(batches):
        made.append(uniform(each, stream.next))
        stream.batch(bucket, made[-1])
    return [record for records in made for record in records]


def killed_at(point: str, script: str, folder: Path) -> int:
    """How a process of its own ends that runs this and is killed where it passes a point first."""
    return script_apart(script, ONLYONCE_FAILPOINTS=f"{point}:1:kill-process", ONLYONCE_FAILPOINT_DIR=str(folder))


def stored(stream: Receive) -> Counter[tuple[int, int, bytes]]:
    """(bucket, partition, id) of each id in the catalog."""
    rows = stream.log.rows("SELECT bucket, partition, ids FROM onlyonce_private.catalog_chunks")
    return Counter((b, p, bytes(ids[at : at + 16])) for b, p, ids in rows for at in range(0, len(ids), 16))


def test_the_chunks_of_a_closed_bucket_become_one_for_each_partition(stream: Receive) -> None:
    """The same ids in the same partitions, with one filter each, which is whole."""
    fill(stream, 100, 10)
    fill(stream, 101, 1)
    before = stored(stream)
    report = gc.main([])

    assert [(bucket, batch, partition) for bucket, batch, partition, _ in stream.chunks()] == [
        (100, 9, 0), (100, 9, 1), (101, 10, 0), (101, 10, 1),
    ]  # fmt: skip
    assert stored(stream) == before
    assert (report.facts["merged"], report.facts["into"]) == (20, 2)
    for ids, count, filtered in stream.log.rows("SELECT ids, id_count, filter FROM onlyonce_private.catalog_chunks"):
        assert bytes(filtered) == filters.make(filters.unpack(bytes(ids)))
        assert filters.read(bytes(filtered), count) is not None
    assert gc.main([]).facts["merged"] == 0


@pytest.mark.parametrize("cached", [True, False], ids=["a worker that knows the parts", "a new worker"])
def test_every_id_is_found_and_no_new_one_is(stream: Receive, cached: bool) -> None:
    """After the merge as before it, by the next batch."""
    known = fill(stream, 100, 9) + fill(stream, 101, 9) + fill(stream, 102, 1)
    begun = stream.begin(103)
    assert stream.known(begun, known) == [True] * len(known)
    gc.main([])
    if not cached:
        look_up.forget()

    assert len(stream.chunks()) == 6
    assert stream.known(begun, known + uniform(500, 9999)) == [True] * len(known) + [False] * 500


def test_a_replay_takes_none_of_its_own_ids_for_duplicates(stream: Receive) -> None:
    """Its units are there, its rows are not in `events`, all around it was merged: it decides the same and delivers
    all."""
    fill(stream, 100, 9)
    records = uniform(30, 555)
    begun = stream.begin(100)
    first = stream.units(begun, records)
    gc.main([])
    stream.restart()
    again = stream.begin(100, begun.plan.batch_id)
    replayed = stream.units(again, records)

    assert first == replayed
    assert Counter(replayed) == Counter(("kept", record) for record in records)
    own = [chunk for chunk in stream.chunks() if chunk[1] == begun.plan.batch_id]
    assert len(own) == 2, "the chunks of a begun batch stay as they are"
    assert sum(count for *_, count in own) == 30


def test_a_bucket_that_still_grows_is_merged_when_it_is_crowded(stream: Receive) -> None:
    """A backlog listed at once is one bucket for all of its batches; a few chunks there are left alone."""
    fill(stream, 100, 7, each=50)
    assert gc.main([]).facts["merged"] == 0
    fill(stream, 100, 1, each=50)
    assert gc.main([]).facts["merged"] == 16
    fill(stream, 100, 1, each=50)
    assert gc.main([]).facts["merged"] == 0


def test_partition_layouts_and_lives_are_kept_apart(stream: Receive) -> None:
    """A look-up leaves out chunks by the remainder of their partition, and by their incarnation's batch number."""
    known = fill(stream, 100, 2)
    stream.partitions = 3
    known += fill(stream, 100, 2)
    fill(stream, 101, 1)
    gc.main([])

    layout = "SELECT partitions, partition, batch_id FROM onlyonce_private.catalog_chunks WHERE bucket = 100"
    assert stream.log.multiset(layout) == Counter([(2, 0, 1), (2, 1, 1), (3, 0, 3), (3, 1, 3), (3, 2, 3)])
    stream.partitions = 6
    look_up.forget()
    assert stream.known(stream.begin(102), known) == [True] * len(known)


def test_no_merged_chunk_is_larger_than_a_full_one(stream: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here 100 ids; the rest makes another chunk, and nothing is lost."""
    monkeypatch.setattr("onlyonce.core.gc.FULL", 100)
    stream.partitions = 1
    fill(stream, 100, 12)
    fill(stream, 101, 1)
    before = stored(stream)
    gc.main([])

    assert [count for bucket, *_, count in stream.chunks() if bucket == 100] == [100, 100, 40]
    assert stored(stream) == before


def test_chunks_that_do_not_add_up_are_left_alone(stream: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something took ids away between the plan and the merge: it stops, and nothing has changed."""
    fill(stream, 100, 9)
    fill(stream, 101, 1)
    before = stored(stream)
    merge = filters.merge
    monkeypatch.setattr(filters, "merge", lambda parts: merge(parts)[:-16])
    with pytest.raises(InvariantBroken, match="not the number that they state"):
        gc.main([])

    assert stored(stream) == before


def test_the_room_of_the_parts_is_given_back(stream: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of a merged bucket takes what its chunks need, and not the double."""
    monkeypatch.setattr(merging, "WORTH_IT", 0)
    fill(stream, 100, 9, each=3_000)
    fill(stream, 101, 1)
    gc.main([])

    [(held, needed)] = stream.log.rows(
        "SELECT pg_total_relation_size('onlyonce_private.catalog_1_100'), sum(octet_length(ids) + "
        "octet_length(filter)) "
        "FROM onlyonce_private.catalog_chunks WHERE bucket = 100"
    )
    assert held < merging.WASTE * needed


# --- as it grows: by receive's driver, between two batches ------------------------------------------------------------


def grow(stream: Receive, bucket: int, batches: int, each: int = 20) -> list[Record]:
    """So many batches of one bucket, with what the driver does after each."""
    made = []
    for _ in range(batches):
        made.append(uniform(each, stream.next))
        stream.merge(stream.batch(bucket, made[-1]))
    return [record for records in made for record in records]


def test_a_look_up_asks_filters_by_the_logarithm_of_the_batches(stream: Receive) -> None:
    """65 batches of one bucket, none collected: eight at a time, and eights of these.

    Each id is found, and no new one.
    """
    stream.partitions = 1
    known = grow(stream, 100, 65)

    assert [(batch, ids) for _, batch, _, ids in stream.chunks()] == [(63, 64 * 20), (64, 20)]
    look_up.forget()
    assert stream.known(stream.begin(100), known + uniform(500, 9999)) == [True] * len(known) + [False] * 500


def test_with_the_first_batch_of_a_new_bucket_the_one_before_becomes_one_chunk(stream: Receive) -> None:
    """For each partition; of the new one nothing is merged yet."""
    grow(stream, 100, 11)
    before = stored(stream)
    grow(stream, 101, 1)

    assert [chunk[:3] for chunk in stream.chunks()] == [(100, 10, 0), (100, 10, 1), (101, 11, 0), (101, 11, 1)]
    assert not before - stored(stream)


def test_between_two_batches_a_bounded_number_of_ids_is_merged(
    stream: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever waits: the rest is merged after the next batches."""
    monkeypatch.setattr("onlyonce.core.gc.BETWEEN_BATCHES", 100)
    stream.partitions = 1
    fill(stream, 100, 63)
    [last] = [stream.batch(100, uniform(20, 4711))]
    monkeypatch.setattr("onlyonce.core.gc.FULL", 200)

    assert [stream.merge(last) for _ in range(8)] == [200, 200, 200, 200, 200, 200, 0, 0]
    assert sum(count for *_, count in stream.chunks()) == 64 * 20


def test_a_driver_waits_for_no_collector_and_merges_the_next_time(stream: Receive) -> None:
    """The collector's lock is taken: nothing is merged, and nothing waited for."""
    fill(stream, 100, 7, each=50)
    last = stream.batch(100, uniform(50, 4711))
    with transaction(stream.log.database) as collector:
        locks.wait(collector, stored_names.catalog_lock("shop"))
        assert stream.merge(last) == 0
    assert stream.merge(last) == 400


def test_a_driver_that_was_superseded_merges_nothing(stream: Receive) -> None:
    """It wakes between the end of its batch and the merge."""
    fill(stream, 100, 7, each=50)
    last = stream.batch(100, uniform(50, 4711))
    before, old = stream.chunks(), stream.driver
    stream.restart()
    with pytest.raises(Superseded):
        loop.merge_catalog(stream.log.database, old, "shop", last.plan)

    assert stream.chunks() == before


@pytest.mark.fault
@pytest.mark.parametrize("point", ["merge-after-take", "merge-before-commit", "merge-after-commit"])
def test_a_driver_killed_between_two_batches_leaves_every_id_and_the_next_goes_on(
    stream: Receive, point: str, tmp_path: Path
) -> None:
    """A process of its own, killed; what it left is found whole, and the next batch's merge ends where no kill
    would."""
    known = fill(stream, 100, 8, each=50)
    before = stored(stream)
    script = f"""if True:
        from types import SimpleNamespace
        from onlyonce.receive import loop
        from onlyonce.database.connect import Database
        from onlyonce.settings import database_url
        driver = SimpleNamespace(incarnation={stream.driver.incarnation!r}, epoch={stream.driver.epoch})
        plan = SimpleNamespace(incarnation=driver.incarnation, batch_id=7, bucket=100)
        loop.merge_catalog(Database(database_url()), driver, "shop", plan)"""
    assert killed_at(point, script, tmp_path) == -9

    assert stored(stream) == before
    stream.restart()
    more = uniform(50, 4711)
    last = stream.batch(100, known + more)
    stream.merge(last)
    assert stream.rows() == Counter(("kept", record) for record in known + more)
    assert len(stream.chunks()) <= 4
    assert not before - stored(stream)


# --- beside others
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["filters", "ids", "slices"])
def test_a_look_up_that_is_overtaken_by_a_merge_lists_again(
    stream: Receive, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It listed the parts; at its next question they are one chunk. It finds every id all the same."""
    monkeypatch.setattr(look_up, "SLICES_FROM", 0 if moment == "slices" else 2**60)
    # A cache that has room for all fetches a small chunk whole.
    monkeypatch.setattr(WorkerCache, "has_room", lambda _, size: moment != "slices")
    known = fill(stream, 100, 9) + fill(stream, 101, 1)
    begun = stream.begin(102)
    look_up.forget()
    ask = getattr(Chunks, moment)
    merged: list[int] = []

    def overtaken(*arguments: Any) -> Any:
        if not merged:
            merged.append(gc.main([]).facts["merged"])
        return ask(*arguments)

    monkeypatch.setattr(Chunks, moment, overtaken)
    new = uniform(50, 4711)

    assert stream.known(begun, known + new) == [True] * len(known) + [False] * 50
    assert merged == [18]


def test_merging_beside_a_running_stream_loses_and_doubles_nothing(stream: Receive) -> None:
    """A collector in a loop, while each batch brings 20 new records and delivers all earlier ones again."""
    stop, failed = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            try:
                gc.main([])
            except Exception as error:
                failed.append(error)

    collecting = threading.Thread(target=work)
    collecting.start()
    sent: list[Record] = []
    for number in range(24):
        sent += uniform(20, number)
        stream.batch(100 + number // 10, sent)
        if number % 5 == 0:
            look_up.forget()
    stop.set()
    collecting.join()
    gc.main([])

    assert failed == []
    assert stream.rows() == Counter(("kept", record) for record in sent)
    assert len([chunk for chunk in stream.chunks() if chunk[0] < 102]) == 4


def test_two_collectors_at_once_merge_each_bucket_once(stream: Receive) -> None:
    """Neither fails; what they report adds up to one collection's."""
    for bucket in range(100, 106):
        fill(stream, bucket, 4)
    before = stored(stream)
    barrier, reports = threading.Barrier(2), []

    def work() -> None:
        barrier.wait()
        reports.append(gc.main([]))

    both = [threading.Thread(target=work) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()

    assert sum(r.facts["merged"] for r in reports) == 5 * 8
    assert sum(r.facts["into"] for r in reports) == 5 * 2
    assert stored(stream) == before


@pytest.mark.fault
@pytest.mark.parametrize("point", POINTS)
def test_a_collector_killed_at_any_point_leaves_every_id_and_the_next_goes_on(
    stream: Receive, point: str, tmp_path: Path
) -> None:
    """A process of its own, killed; what it left is found whole, then the next collection ends where no kill would."""
    known = fill(stream, 100, 5, each=3_000) + fill(stream, 101, 5, each=3_000) + fill(stream, 102, 1)
    before = stored(stream)
    script = "from onlyonce.operate import gc; from onlyonce.catalog import merging; merging.WORTH_IT = 0; gc.main([])"
    assert killed_at(point, script, tmp_path) == -9
    begun = stream.begin(103)
    look_up.forget()

    assert stored(stream) == before
    assert stream.known(begun, known) == [True] * len(known)
    gc.main([])
    assert [chunk[:3] for chunk in stream.chunks() if chunk[0] < 102] == [
        (100, 4, 0), (100, 4, 1), (101, 9, 0), (101, 9, 1),
    ]  # fmt: skip
    assert stored(stream) == before


def test_a_bucket_that_a_reader_holds_is_merged_and_only_its_room_waits(
    stream: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merging waits for no reader; writing the table anew gives up after a short wait."""
    import psycopg2

    monkeypatch.setattr(merging, "WORTH_IT", 0)
    monkeypatch.setattr(merging, "SHORT_WAIT", "100ms")
    fill(stream, 100, 9, each=3_000)
    fill(stream, 101, 1)
    reader = psycopg2.connect(stream.log.url.replace("+psycopg2", ""))
    cursor = reader.cursor()
    cursor.execute("SELECT sum(id_count) FROM onlyonce_private.catalog_chunks")
    report = gc.main([])
    wasteful = Merging(stream.log.database).wasteful("shop")
    reader.close()

    assert report.facts["merged"] == 18
    assert [waste.bucket for waste in wasteful] == [100]
    gc.main([])
    assert Merging(stream.log.database).wasteful("shop") == []


def test_merge_is_what_packing_everything_gives() -> None:
    """In any order of the parts, an id twice if it was there twice."""
    some = [np.random.default_rng(n).integers(0, 2**64, (2, 50), dtype=np.uint64) for n in range(4)]
    some.append(some[0])
    whole = filters.pack((np.concatenate([s[0] for s in some]), np.concatenate([s[1] for s in some])))

    assert filters.merge(filters.pack((s[0], s[1])) for s in reversed(some)) == whole
