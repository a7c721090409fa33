"""Garbage collection on a real PostgreSQL: what goes, what stays, beside readers, beside a stream, beside itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psycopg2
import pytest

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import expiry, filters, look_up
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.expiry import Collector
from onlyonce.catalog.filters import Ids, pack
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.batch import Batch, Outcome
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.runs import Report
from onlyonce.operate import gc
from tests.contract.conftest import Log, plan_of
from tests.support.together import together

DAY = 144
NOTHING = Outcome(read=0, kept=0, invalid=0, expired=0, duplicate=0, unknown_fields=0)


@pytest.fixture
def stream(log: Log, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The stream of the declared pipeline `shop`, which the collector finds through the environment."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    monkeypatch.setattr(gc, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(expiry, "SHORT_WAIT", "100ms")
    look_up.forget()
    return Stream(log)


class Stream:
    """Receive batches of one incarnation without Spark: begin, one chunk, end."""

    def __init__(self, log: Log, instance: str = "shop") -> None:
        self.log, self.instance = log, instance
        self.driver: Driver = log.start(instance)
        self.next = 0

    def begin(self, bucket: int) -> Batch:
        """A batch whose input was first seen in a bucket; the next number."""
        time = datetime.fromtimestamp(bucket * 600, UTC)
        plan = plan_of(self.driver, self.next, bucket=bucket, ingestion_time=time, partitions=1)
        self.next += 1
        return Batches(self.log.database).begin(self.driver, self.instance, plan, None)

    def place(self, batch: Batch, **changed: Any) -> catalog.Place:
        """Where the one unit of a batch is."""
        plan = batch.plan
        return catalog.Place(
            self.instance, plan.bucket, batch.gc_floor, plan.incarnation, plan.batch_id, 0, 1, **changed
        )

    def end(self, batch: Batch, ids: Ids | None = None) -> None:
        """Its chunk and its end."""
        if ids is not None:
            packed = pack(ids)
            Chunks(self.log.database).add(self.place(batch), packed, filters.make(ids))
        Batches(self.log.database).end(self.driver, batch, NOTHING)

    def batch(self, bucket: int) -> None:
        """A whole batch; its one id is its bucket."""
        self.end(self.begin(bucket), an_id(bucket))

    def knows(self, batch: Batch, bucket: int) -> bool:
        """Whether a batch finds the id that came in a bucket."""
        return bool(look_up.seen(self.log.database, self.place(batch), an_id(bucket))[0])

    @property
    def floor(self) -> int:
        """The stored floor."""
        [(floor,)] = self.log.rows("SELECT gc_floor FROM onlyonce_private.pipelines WHERE instance = %s", self.instance)
        return int(floor)

    @property
    def buckets(self) -> set[int]:
        """The buckets with ids."""
        rows = self.log.rows(
            "SELECT DISTINCT bucket FROM onlyonce_private.catalog_chunks WHERE instance = %s", self.instance
        )
        return {bucket for (bucket,) in rows}


def an_id(bucket: int) -> Ids:
    """One id for each bucket."""
    return np.array([bucket * 2**40], dtype=np.uint64), np.array([bucket], dtype=np.uint64)


def tables(log: Log) -> set[str]:
    """The tables of the catalog's buckets."""
    return {
        name
        for (name,) in log.rows("SELECT relname FROM pg_class WHERE relname ~ '^catalog_[0-9]+_' AND relkind = 'r'")
    }


STEADY = range(1000, 1000 + DAY + 13, 6)
"""A batch each hour: 1000, 1006, … 1156; the horizon of a day reaches back to 1012."""


def test_buckets_before_the_horizon_go_and_the_report_tells(stream: Stream) -> None:
    """The floor is the last committed bucket less a day; two buckets are below it."""
    for bucket in STEADY:
        stream.batch(bucket)
    before = stream.buckets
    report = gc.main(["shop"])

    assert stream.floor == max(STEADY) - DAY
    assert before - stream.buckets == {1000, 1006}
    assert report.facts["buckets"] == report.facts["chunks"] == report.facts["ids"] == 2
    assert report.facts["bytes"] > 0
    assert report.warnings == []
    assert not {f"catalog_1_{bucket}" for bucket in (1000, 1006)} & tables(stream.log)


def test_a_second_collection_finds_nothing_and_moves_nothing(stream: Stream) -> None:
    """However long it runs without new commits."""
    for bucket in STEADY:
        stream.batch(bucket)
    gc.main([])
    floor, kept = stream.floor, stream.buckets
    again = gc.main([])

    assert (stream.floor, stream.buckets) == (floor, kept)
    assert (again.facts["buckets"], again.title) == (0, "collect: nothing to drop")


def test_a_begun_batch_keeps_what_it_may_ask_for(stream: Stream) -> None:
    """Neither its own bucket is passed nor the floor it began with; what it found before, it finds after."""
    for bucket in STEADY:
        stream.batch(bucket)
    begun = stream.begin(max(STEADY) + 6)
    gc.main([])

    assert stream.floor == begun.gc_floor == 0
    assert all(stream.knows(begun, bucket) for bucket in STEADY)
    stream.end(begun)
    gc.main([])
    assert stream.floor == max(STEADY) + 6 - DAY


def test_a_batch_that_is_beginning_holds_the_floor_too(stream: Stream) -> None:
    """The collector waits for its transaction, then sees the floor that it took."""
    for bucket in STEADY:
        stream.batch(bucket)
    with psycopg2.connect(stream.log.url.replace("+psycopg2", "")) as beginning, beginning.cursor() as cursor:
        cursor.execute("SELECT gc_floor FROM onlyonce_private.pipelines WHERE instance = 'shop' FOR SHARE")
        collecting = threading.Thread(target=gc.main, args=([],))
        collecting.start()
        collecting.join(0.5)
        assert collecting.is_alive()
        cursor.execute(
            "INSERT INTO onlyonce_private.batches (incarnation, batch_id, epoch, run_id, source_to, offsets_hash, "
            "partitions, "
            "ingestion_time, bucket, gc_floor, settings, mode, declaration_hash) SELECT incarnation, 999, epoch, run_id, "
            "source_to, "
            "offsets_hash, partitions, ingestion_time, 1200, 0, settings, mode, declaration_hash "
            "FROM onlyonce_private.batches WHERE batch_id = 0"
        )
    collecting.join(30)
    beginning.close()

    assert stream.floor == 0
    assert stream.buckets == set(STEADY)


def test_an_outage_longer_than_the_horizon_lets_no_duplicate_through(stream: Stream) -> None:
    """Not in the first batch after it, and not in the fifth, with a collection between each two."""
    for bucket in STEADY:
        stream.batch(bucket)
    gc.main([])
    restart = max(STEADY) + DAY + 6
    found = []
    for number in range(5):
        gc.main([])
        batch = stream.begin(restart + number)
        found.append([stream.knows(batch, bucket) for bucket in list(STEADY)[-20:]])
        stream.end(batch)

    assert found == [[True] * 20] * 5


@pytest.mark.parametrize("step", [-100, 52_560], ids=["back", "a year ahead"])
def test_a_step_of_the_clock_costs_no_more_than_an_hour_of_ids(stream: Stream, step: int) -> None:
    """The newest 23 hours stay known."""
    for bucket in STEADY:
        stream.batch(bucket)
    stream.batch(max(STEADY) + step)
    gc.main([])

    assert {bucket for bucket in STEADY if bucket >= max(STEADY) - DAY + 6} <= stream.buckets


def test_an_expired_record_batch_begins_below_the_floor_and_needs_no_bucket(stream: Stream) -> None:
    """The batch knows it, nothing is made for it, and the floor does not follow it down."""
    for bucket in STEADY:
        stream.batch(bucket)
    gc.main([])
    expired = stream.begin(1003)
    gc.main([])

    assert stream.place(expired).is_expired
    assert stream.floor == max(STEADY) - DAY
    assert "catalog_1_1003" not in tables(stream.log)


def test_the_list_of_chunks_is_that_of_the_catalog_whatever_changes_it(stream: Stream) -> None:
    """Units, merges, a drop of whole buckets, an erasure, and a person's statement."""
    keys = "instance, bucket, incarnation, batch_id, partition, partitions, id_count, ids_hash"

    def listed() -> list[Any]:
        return stream.log.rows(f"SELECT {keys} FROM onlyonce_private.chunk_list ORDER BY 1, 2, 3, 4, 5")

    def there() -> list[Any]:
        return stream.log.rows(f"SELECT {keys} FROM onlyonce_private.catalog_chunks ORDER BY 1, 2, 3, 4, 5")

    for bucket in STEADY:
        stream.batch(bucket)
        stream.batch(bucket)
    added = listed()
    assert added == there()
    assert len(added) == 2 * len(STEADY)

    gc.main(["shop"])
    assert listed() == there()
    assert len(listed()) < len(added)

    [(bucket, incarnation, batch_id)] = stream.log.rows(
        "SELECT bucket, incarnation, batch_id FROM onlyonce_private.catalog_chunks ORDER BY 1 DESC LIMIT 1"
    )
    key, left = catalog.ChunkKey(bucket, incarnation, batch_id, 0), an_id(7)
    Chunks(stream.log.database).replace_ids("shop", key, pack(left), filters.make(left))
    assert listed() == there()
    assert catalog.Chunk.of(key, pack(left)).ids_hash in {row[-1] for row in listed()}

    stream.log.rows(f"DELETE FROM onlyonce_private.catalog_chunks WHERE bucket = {bucket}")
    assert listed() == there()
    assert bucket not in {row[1] for row in listed()}


def test_another_pipelines_ids_stay(stream: Stream) -> None:
    """A bounded run of the same buckets has its own floor and its own tables."""
    other = Stream(stream.log, "shop@1")
    other.batch(1000)
    for bucket in STEADY:
        stream.batch(bucket)
    gc.main([])

    assert (other.floor, other.buckets) == (1000 - DAY, {1000})


def test_a_catalog_that_was_changed_by_hand_does_not_keep_others_from_being_collected(stream: Stream) -> None:
    """What must not be is told at the end; the other catalog is collected to its end."""
    other = Stream(stream.log, "shop@1")
    for bucket in STEADY:
        stream.batch(bucket)
        other.batch(bucket)
    changed = (
        "UPDATE onlyonce_private.catalog_chunks SET ids_hash = ids_hash + 1 WHERE instance = 'shop' AND bucket = 1030"
    )
    stream.log.rows(changed)
    with pytest.raises(InvariantBroken, match="a catalog chunk of shop holds other ids"):
        gc.main([])

    assert other.floor == max(STEADY) - DAY
    assert other.buckets == set(STEADY) - {1000, 1006}
    made = stream.log.rows("SELECT DISTINCT instance FROM onlyonce_private.range_filters WHERE last_bucket > 1023")
    assert ("shop@1",) in made


def test_a_pipeline_that_is_not_declared_is_left_alone(stream: Stream) -> None:
    """Its horizon is unknown; the report says so. Asking for it by name is refused."""
    lost = Stream(stream.log, "lost")
    for bucket in STEADY:
        lost.batch(bucket)
    report = gc.main([])

    assert (lost.floor, lost.buckets) == (0, set(STEADY))
    assert [w for w in report.warnings if "no pipeline 'lost' is declared" in w]
    with pytest.raises(Refused, match="no pipeline 'shp'"):
        gc.main(["shp"])


# --- beside others
# -----------------------------------------------------------------------------------------------------


@pytest.fixture
def reader(stream: Stream) -> Iterator[Callable[[str], Any]]:
    """A session that reads in a transaction and does not end it; asked again with another statement."""
    session = psycopg2.connect(stream.log.url.replace("+psycopg2", ""))
    cursor = session.cursor()

    def read(statement: str) -> Any:
        cursor.execute(statement)
        return cursor.fetchall()

    yield read
    session.close()


def test_an_open_reader_is_not_disturbed_and_new_look_ups_pass(
    stream: Stream, reader: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drops give up after a short wait; a look-up meanwhile takes less than the wait of all of them."""
    for bucket in STEADY:
        stream.batch(bucket)
    reader("SELECT sum(id_count) FROM onlyonce_private.catalog_chunks")
    monkeypatch.setattr(gc, "ATTEMPTS", 3)
    reports: list[Report] = []
    collecting = threading.Thread(target=lambda: reports.append(gc.main([])))
    collecting.start()
    asked = []
    batch = Batch(plan_of(stream.driver, 900, bucket=1200), None, 1012, "begun", replayed=False)  # type: ignore[arg-type]
    while collecting.is_alive():
        began = datetime.now(UTC)
        assert stream.knows(batch, 1150)
        look_up.forget()
        asked.append(datetime.now(UTC) - began)
    collecting.join()

    assert stream.floor == 1012
    assert stream.buckets == set(STEADY)
    assert ["2 bucket(s) are left" in w for w in reports[0].warnings] == [True]
    assert max(asked) < timedelta(seconds=5)
    reader("ROLLBACK; SELECT 1")
    assert gc.main([]).facts["buckets"] == 2
    assert stream.buckets == set(STEADY) - {1000, 1006}


def test_two_collectors_at_once_drop_each_bucket_once(stream: Stream) -> None:
    """Neither fails, and what they report adds up to what went."""
    for bucket in STEADY:
        stream.batch(bucket)
    reports = together(*[lambda: gc.main([])] * 2)

    assert len(reports) == 2
    assert sum(r.facts["ids"] for r in reports) == 2
    assert [r.warnings for r in reports] == [[], []]
    assert stream.buckets == set(STEADY) - {1000, 1006}


def test_collecting_beside_a_running_stream_disturbs_neither(stream: Stream) -> None:
    """A collector in a loop while batches begin, look up, add and end; each finds the hour before it."""
    stop, reports = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            reports.append(gc.main([]))

    collecting = threading.Thread(target=work)
    collecting.start()
    missed = []
    for bucket in range(1000, 1000 + 2 * DAY, 6):
        batch = stream.begin(bucket)
        missed += [b for b in range(max(1000, bucket - DAY + 6), bucket, 6) if not stream.knows(batch, b)]
        stream.end(batch, an_id(bucket))
    stop.set()
    collecting.join()
    gc.main([])

    assert missed == []
    assert [w for r in reports for w in r.warnings] == []
    assert stream.buckets == {b for b in range(1000, 1000 + 2 * DAY, 6) if b >= 1000 + 2 * DAY - 6 - DAY}


def test_a_detach_that_somebody_left_pending_is_finished(stream: Stream, reader: Callable[[str], Any]) -> None:
    """DETACH CONCURRENTLY that ran into its timeout leaves a bucket neither in nor out; it goes like the others."""
    for bucket in STEADY:
        stream.batch(bucket)
    reader("SELECT sum(id_count) FROM onlyonce_private.catalog_chunks")
    operator = psycopg2.connect(stream.log.url.replace("+psycopg2", ""))
    operator.autocommit = True
    operator.cursor().execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg2.errors.LockNotAvailable):
        operator.cursor().execute(
            "ALTER TABLE onlyonce_private.catalog_1 DETACH PARTITION onlyonce_private.catalog_1_1000 CONCURRENTLY"
        )
    operator.close()
    reader("ROLLBACK; SELECT 1")
    assert stream.log.rows("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhdetachpending") == [
        ("onlyonce_private.catalog_1_1000",)
    ]

    report = gc.main([])

    assert report.warnings == []
    assert report.facts["ids"] == 2
    assert stream.buckets == set(STEADY) - {1000, 1006}
    assert not {"catalog_1_1000", "catalog_1_1006"} & tables(stream.log)


def test_a_collector_killed_after_the_floor_leaves_work_for_the_next(stream: Stream) -> None:
    """The floor is stored before the first drop; the buckets are then below it and go the next time."""
    for bucket in STEADY:
        stream.batch(bucket)
    Collector(stream.log.database).raise_floor("shop", DAY)
    begun = stream.begin(max(STEADY) + 1)

    assert stream.buckets == set(STEADY)
    assert not stream.knows(begun, 1000)
    gc.main([])
    assert stream.buckets == set(STEADY) - {1000, 1006}
    assert all(stream.knows(begun, bucket) for bucket in STEADY if bucket >= begun.gc_floor)
