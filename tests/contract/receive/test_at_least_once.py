"""At-least-once mode on a real PostgreSQL, without Spark: what the log keeps of it, and the catalog made from
`events`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import look_up
from onlyonce.catalog.chunks import Chunks
from onlyonce.commitlog import incarnations
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Declarations, Driver, Incarnations
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import Batch, Plan, to_time
from onlyonce.core.errors import InvariantBroken, Refused, Superseded
from onlyonce.core.gc import BUCKET
from onlyonce.core.units import Counts, UnitId
from onlyonce.receive import at_least_once
from tests.contract.conftest import Log, plan_of
from tests.support.shop import SHOP

BUCKETS_SECONDS = int(BUCKET.total_seconds())
Id = tuple[int, int]


@dataclass
class Loose:
    """An instance that has received at least once, with its table `events` as far as a rebuild reads it."""

    log: Log
    events: Path
    driver: Driver

    def begin(self, batch_id: int, bucket: int = 7, **changed: Any) -> Batch:
        """A batch, by the plan of this mode."""
        plan = self.plan(batch_id, bucket, **changed)
        return Batches(self.log.database).begin(self.driver, "shop", plan, None)

    def plan(self, batch_id: int, bucket: int = 7, **changed: Any) -> Plan:
        """What its driver means to do."""
        time = datetime.fromtimestamp(bucket * BUCKETS_SECONDS, UTC)
        return plan_of(self.driver, batch_id, bucket=bucket, ingestion_time=time, **{"mode": "at_least_once"} | changed)

    def batch(self, batch_id: int, ids: Iterable[Id], bucket: int = 7, *, kept: int | None = None) -> None:
        """A whole batch, with its rows in `events`."""
        ids = list(ids)
        batch = self.begin(batch_id, bucket)
        self.put(batch_id, "kept", ids)
        self.put(batch_id, "invalid", [(1, 1)])
        self.end(batch, len(ids) if kept is None else kept)

    def put(self, batch_id: int, kind: str, ids: list[Id]) -> None:
        """Rows of one kind."""
        rows = {
            "oo_kind": [kind] * len(ids), "oo_incarnation": [self.driver.incarnation] * len(ids), "oo_batch": [batch_id] * len(ids),
            "oo_high": [high for high, _ in ids], "oo_low": [low for _, low in ids],
        }  # fmt: skip
        numbers = {name: pa.int64() for name in ("oo_batch", "oo_high", "oo_low")}
        table = pa.table({name: pa.array(values, numbers.get(name, pa.string())) for name, values in rows.items()})
        write_deltalake(str(self.events), table, mode="append", partition_by=["oo_kind"])

    def end(self, batch: Batch, kept: int, *, invalid: int = 1, largest: int | None = None) -> dict[str, int]:
        """The end, by what was counted."""
        counts = Counts(kept=kept, invalid=invalid, largest=to_time(largest))
        return Batches(self.log.database).end_counted(self.driver, batch, kept + invalid, 3, counts, bounded=False)

    def catch_up(self, **changed: Any) -> int:
        """What receive does before an exactly-once batch."""
        pipeline = replace(SHOP, **changed)
        return at_least_once.catch_up_catalog(self.log.database, self.driver, "shop", self.events, pipeline)

    def known(self, ids: list[Id], partitions: int = 2) -> list[bool]:
        """Which of the ids a look-up by a later exactly-once batch finds, each in its partition."""
        look_up.forget()
        found: dict[Id, bool] = {}
        for partition in range(partitions):
            mine = [i for i in ids if i[0] % partitions == partition]
            halves = [np.array([i[half] for i in mine], dtype=np.int64).view(np.uint64) for half in (0, 1)]
            place = catalog.Place("shop", 9, 0, self.driver.incarnation, 99, partition, partitions)
            seen = look_up.seen(self.log.database, place, (halves[0], halves[1]))
            found |= dict(zip(mine, seen.tolist(), strict=True))
        return [found[i] for i in ids]

    def ids(self) -> Counter[Any]:
        """(bucket, batch, id) of all that the catalog holds."""
        rows = self.log.rows("SELECT bucket, batch_id, ids FROM onlyonce_private.catalog_chunks")
        return Counter(
            (
                bucket,
                batch,
                *(int.from_bytes(bytes(ids)[at + half : at + half + 8], "big", signed=True) for half in (0, 8)),
            )
            for bucket, batch, ids in rows
            for at in range(0, len(ids), 16)
        )


@pytest.fixture
def loose(log: Log, tmp_path: Path) -> Loose:
    """An instance in this mode."""
    return Loose(log, tmp_path / "events", log.start())


def numbered(*numbers: int) -> list[Id]:
    """Ids of either sign."""
    return [(n * (-1) ** n, n * 7) for n in numbers]


def test_a_batch_is_committed_without_a_unit_and_conserved_by_its_own_counts(log: Log, loose: Loose) -> None:
    """The max event time goes on from the frontier; no bucket is made, since nothing is kept in it."""
    loose.end(loose.begin(0), 3, largest=50)
    second = loose.begin(1)
    loose.end(second, 2, largest=20)

    assert second.frontier.max_event_time == 50
    told = log.rows(
        "SELECT kept, invalid, duplicate, mode, max_event_time_after, records_in FROM onlyonce.batches ORDER BY batch"
    )
    assert told == [(3, 1, 0, "at_least_once", to_time(50), 4), (2, 1, 0, "at_least_once", to_time(50), 3)]
    assert log.rows("SELECT conserved FROM onlyonce.conservation") == [(True,), (True,)]
    assert log.rows("SELECT count(*) FROM onlyonce_private.units") == [(0,)]
    assert log.rows("SELECT to_regclass('onlyonce_private.catalog_1') IS NULL") == [(True,)]


def test_a_batch_that_does_not_add_up_is_not_committed(log: Log, loose: Loose) -> None:
    """Lines counted when the files were accepted, against rows that are in the commit."""
    batch = loose.begin(0)
    counts = Counts(kept=3, invalid=1)
    with pytest.raises(InvariantBroken, match="5 records were in the input"):
        Batches(log.database).end_counted(loose.driver, batch, 5, 3, counts, bounded=False)

    assert log.rows("SELECT state FROM onlyonce.batches") == [("begun",)]


def test_an_overtaken_driver_ends_nothing(log: Log, loose: Loose) -> None:
    """The epoch holds in this mode too."""
    batch = loose.begin(0)
    log.restart(loose.driver)
    with pytest.raises(Superseded):
        loose.end(batch, 1)


@pytest.mark.parametrize("landed", [True, False])
def test_a_changed_declaration_begins_a_batch_anew_only_while_nothing_of_it_landed(
    log: Log, loose: Loose, landed: bool
) -> None:
    """No unit tells, so the caller looks where the rows go."""
    loose.begin(0)
    changed = loose.plan(0, declaration_hash="d2")

    def begin() -> Batch:
        return Batches(log.database).begin(loose.driver, "shop", changed, None, lambda: landed)

    if landed:
        with pytest.raises(Refused, match="under declaration d1"):
            begin()
    else:
        assert not begin().replayed
    wanted = "d1" if landed else "d2"
    assert log.rows("SELECT declaration_hash FROM onlyonce_private.batches") == [(wanted,)]


@pytest.mark.parametrize(("before", "after"), [("exactly_once", "at_least_once"), ("at_least_once", "exactly_once")])
def test_a_batch_that_has_begun_keeps_its_mode(log: Log, loose: Loose, before: str, after: str) -> None:
    """The row fixes it, as all else that a replay must repeat."""
    loose.begin(0, mode=before)
    again = loose.begin(0, mode=after)

    assert again.plan.mode == before
    assert again.replayed


def test_rows_written_again_add_up_in_their_note(log: Log, loose: Loose) -> None:
    """By task, over all attempts; the commit log shows how often."""
    unit = UnitId(loose.driver.incarnation, 0, "out", 1)
    for rows in (5, 5, 3):
        Units(log.database).note(unit, 1, "a task", rows)  # type: ignore[misc]
    Units(log.database).note(replace(unit, partition=0), 1, "another", 4)

    noted = Units(log.database).noted(loose.driver.incarnation, 0, "out")
    assert noted == 17
    assert log.rows("SELECT partition, kind, rows, writes FROM onlyonce.commits ORDER BY 1") == [
        (0, "plain", 4, 1), (1, "plain", 13, 3),
    ]  # fmt: skip


def test_what_was_kept_at_least_once_is_found_afterwards(loose: Loose) -> None:
    """In any number of partitions; what was invalid is no id. Asked again, there is nothing to do."""
    loose.batch(0, numbered(1, 2, 3, 2))
    loose.batch(1, numbered(3, 4), bucket=8)
    wanted = Counter([(7, 0, *i) for i in numbered(1, 2, 3)] + [(8, 1, *i) for i in numbered(3, 4)])

    assert loose.catch_up() == 6
    assert loose.ids() == wanted
    assert loose.known(numbered(1, 2, 3, 4, 5)) == [True] * 4 + [False]
    assert loose.known(numbered(1, 2, 3, 4, 5), partitions=3) == [True] * 4 + [False]
    assert loose.known([(1, 1)]) == [False]
    assert loose.catch_up() == 0
    assert loose.ids() == wanted


@pytest.mark.parametrize("at_once", [1, 3, 1_000])
def test_any_number_of_batches_is_read_together(loose: Loose, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """The groups are a matter of memory, and end with an incarnation."""
    monkeypatch.setattr(at_least_once, "AT_ONCE", at_once)
    for number in range(3):
        loose.batch(number, numbered(number, number + 10))
    loose.log.rows("UPDATE onlyonce_private.incarnations SET state = 'closed'")
    loose.driver = loose.log.start()
    loose.batch(0, numbered(5, 6))

    assert loose.catch_up() == 8
    assert loose.known(numbered(0, 1, 2, 10, 11, 12, 5, 6, 7)) == [True] * 8 + [False]


def test_only_one_horizon_is_put_into_the_catalog(loose: Loose) -> None:
    """What is older by the buckets that were lived is not asked for; the collector need not have run."""
    for number, bucket in enumerate((7, 8, 9, 10)):
        loose.batch(number, numbered(number), bucket=bucket)

    assert loose.catch_up(dedup_horizon=2 * BUCKET) == 3
    assert {bucket for bucket, *_ in loose.ids()} == {8, 9, 10}
    assert loose.log.rows("SELECT gc_floor FROM onlyonce_private.pipelines") == [(8,)]


def test_exactly_once_batches_are_left_alone(loose: Loose) -> None:
    """Their chunks are there; so are those of a batch that has not ended yet."""
    loose.begin(0, mode="exactly_once")
    assert loose.catch_up() == 0
    loose.batch(1, numbered(1))
    loose.begin(2)

    assert loose.catch_up() == 1
    assert Counter(batch for _, batch, *_ in loose.ids()) == Counter({1: 1})


def test_two_drivers_at_once_add_the_ids_once(loose: Loose) -> None:
    """One of them waits, and finds that it is done."""
    loose.batch(0, numbered(*range(100)))
    barrier, errors = threading.Barrier(2), []

    def go() -> None:
        try:
            barrier.wait()
            loose.catch_up()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=go) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert loose.ids() == Counter((7, 0, *i) for i in numbered(*range(100)))


def test_an_overtaken_driver_adds_no_ids(loose: Loose) -> None:
    """Nor does it say that they are added."""
    loose.batch(0, numbered(1))
    newer = loose.log.restart(loose.driver)
    with pytest.raises(Superseded):
        loose.catch_up()
    assert loose.ids() == Counter()
    loose.driver = newer
    assert loose.catch_up() == 1


def test_rows_that_are_missing_from_events_stop_it(loose: Loose) -> None:
    """A duplicate of one of them could not be told; nothing is guessed."""
    loose.batch(0, numbered(1, 2), kept=3)
    with pytest.raises(InvariantBroken, match="has kept 3 records by the log"):
        loose.catch_up()

    assert loose.ids() == Counter()


def test_the_plan_tells_the_mode_of_the_last_batch(log: Log, loose: Loose) -> None:
    """The fingerprint does not, so that a batch which has begun is no other declaration."""
    now = incarnations.Declared("shop", "receive", "d1", {"mode": "exactly_once", "record_id": "id"})
    Declarations(log.database).keep(now)
    told: Callable[[], Any] = lambda: Declarations(log.database).all_that_ran("shop")  # noqa: E731
    loose.end(loose.begin(0), 1)
    [first] = told()
    loose.begin(1, mode="exactly_once")
    [second] = told()

    assert first.parts == {"mode": "at_least_once", "record_id": "id"}
    assert second.parts == now.parts


def test_incarnations_of_the_mode_are_of_their_pipeline_alone(log: Log, loose: Loose) -> None:
    """Another instance's batches are not this one's to add."""
    loose.batch(0, numbered(1))
    Incarnations(log.database).add_instance("other", "other")

    assert Chunks(log.database).without_ids("other") == []
