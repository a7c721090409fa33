"""A unit of receive, run as a function: the fate of each record, in any attempt, batch and number of partitions."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import look_up
from onlyonce.catalog.chunks import Chunks
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.batch import to_time
from onlyonce.core.errors import InvariantBroken, Superseded
from onlyonce.core.units import UnitId
from onlyonce.database.connect import Database
from onlyonce.receive import unit
from onlyonce.receive.unit import CANDIDATE, DUPLICATE, INVALID, KEPT, SEED, Work
from tests.contract.conftest import Log
from tests.support.steps import Stage

BUCKET = 7
Id = tuple[int, int]


@dataclass(frozen=True)
class Record:
    """The deciding columns of a row. The high half is signed, as Spark has it."""

    high: int
    low: int = 0
    time: int = 0
    payload: int = 0
    unknown: bool = False
    code: int = CANDIDATE

    @property
    def id(self) -> Id:
        """Its two halves."""
        return self.high, self.low


def numbered(*numbers: int) -> list[Record]:
    """Records of these ids, each with its own time."""
    return [Record(n, n * 7, time=n, payload=n) for n in numbers]


def seed(partition: int) -> Record:
    """The row that becomes the control row of a partition."""
    return Record(partition, code=SEED)


def columns(records: list[Record]) -> unit.Columns:
    """An Arrow batch of them."""
    return (
        pa.array([r.code for r in records], pa.int8()), pa.array([r.high for r in records], pa.int64()),
        pa.array([r.low for r in records], pa.int64()), pa.array([r.time for r in records], pa.int64()),
        pa.array([r.payload for r in records], pa.int64()), pa.array([r.unknown for r in records], pa.bool_()),
    )  # fmt: skip


def work_of(log: Log, driver: Driver, batch: int = 0, partitions: int = 1, bucket: int = BUCKET) -> Work:
    """What the driver tells each task of a batch; the bucket is there, as the batch's begin makes it."""
    Chunks(log.database).ensure_bucket("shop", bucket)
    return Work(log.database, catalog.Place("shop", bucket, 0, driver.incarnation, batch, 0, partitions), driver.epoch)


def judged(work: Work, records: list[Record], *, partition: int = 0, cut: int = 100) -> tuple[list[int], set[Any]]:
    """(fate of each record, what its control row says), the rows given in batches of `cut`."""
    rows = [*records, seed(partition)]
    batches = [columns(rows[at : at + cut]) for at in range(0, len(rows), cut)]
    given = list(unit.judge(work)(iter(batches)))
    assert [len(g.fates) for g in given] == [len(b[0]) for b in batches]
    fates = [fate for g in given for fate in g.fates.tolist()]
    assert fates.pop() == SEED
    return fates, {g.largest for g in given}


def whole_batch(log: Log, driver: Driver, batch: int, partitions: int, records: list[Record]) -> list[tuple[Id, int]]:
    """All partitions of a batch, the rows exchanged as Spark does: (id, fate) of each."""
    work, found = work_of(log, driver, batch, partitions), []
    for partition in range(partitions):
        mine = [r for r in records if r.high % partitions == partition]
        found += [*zip([r.id for r in mine], judged(work, mine, partition=partition)[0], strict=True)]
    return found


def test_a_unit_opens_one_session_which_has_ended_before_its_rows_are_written(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write takes most of a task's time, and an executor has few sessions."""
    told: list[str] = []

    @contextmanager
    def counted(database: Database, unit: UnitId) -> Iterator[Database]:
        told.append(str(unit))
        yield database
        told.append("ended")

    monkeypatch.setattr(unit, "session_of", counted)
    driver = log.start("shop")
    next(unit.judge(work_of(log, driver))(iter([columns([*numbered(1, 2), seed(0)])])))

    assert told == [f"{driver.incarnation}/0/events/0", "ended"]


def units_of(log: Log) -> list[tuple[Any, ...]]:
    """What the log has of each unit."""
    return log.rows(
        "SELECT partition, kind, rows, kept, invalid, duplicate, unknown_fields, largest FROM onlyonce_private.units "
        "ORDER BY batch_id, partition"
    )


def ids_in_catalog(log: Log) -> Counter[Id]:
    """Every id of every chunk, unpacked by plain Python; the high halves signed again."""
    found: Counter[Id] = Counter()
    for (packed,) in log.rows("SELECT ids FROM onlyonce_private.catalog_chunks"):
        pairs = [bytes(packed)[at : at + 16] for at in range(0, len(packed), 16)]
        assert pairs == sorted(pairs)
        found += Counter(
            (int.from_bytes(p[:8], "big", signed=True), int.from_bytes(p[8:], "big", signed=True)) for p in pairs
        )
    return found


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of receive."""
    return log.start()


def test_each_record_has_a_fate_and_the_unit_counts_them(log: Log, driver: Driver) -> None:
    """Kept, a duplicate of a twin, invalid; the largest time is of those that are kept, and goes with the control
    row."""
    records = [
        Record(1, 1, time=50, unknown=True), Record(2, 2, time=10), Record(1, 1, time=60, unknown=True),
        Record(9, 9, time=99, code=INVALID), Record(-5, -6, time=-3),
    ]  # fmt: skip
    fates, largest = judged(work_of(log, driver), records)

    assert fates == [KEPT, KEPT, DUPLICATE, INVALID, KEPT]
    assert largest == {50}
    assert units_of(log) == [(0, "reference", 4, 3, 1, 1, 1, to_time(50))]
    assert ids_in_catalog(log) == Counter([(1, 1), (2, 2), (-5, -6)])


def test_a_partition_with_nothing_but_its_seed_has_its_unit(log: Log, driver: Driver) -> None:
    """So that the batch can end; its control row tells no time."""
    fates, largest = judged(work_of(log, driver, partitions=3), [], partition=2)

    assert (fates, largest) == ([], {None})
    assert units_of(log) == [(2, "reference", 0, 0, 0, 0, 0, None)]


def test_no_rows_at_all_are_no_unit(log: Log, driver: Driver) -> None:
    """A task that Spark gives nothing has no partition to speak for."""
    assert list(unit.judge(work_of(log, driver))(iter([]))) == []
    assert units_of(log) == []


@pytest.mark.parametrize("seeds", [[], [0, 1], [0, 0]])
def test_a_task_without_its_one_seed_stops(log: Log, driver: Driver, seeds: list[int]) -> None:
    """When Spark has coalesced or split the exchange nothing is committed."""
    rows = [*numbered(1, 2), *map(seed, seeds)]
    with pytest.raises(InvariantBroken, match=f"{len(seeds)} partitions of the batch instead of one"):
        list(unit.judge(work_of(log, driver))(iter([columns(rows)])))

    assert units_of(log) == []


@pytest.mark.parametrize("shuffle", range(4))
def test_a_replay_gives_the_same_fates_again_in_any_order_and_cut(log: Log, driver: Driver, shuffle: int) -> None:
    """A reference unit emits its rows again: Delta may not have them. Nothing is added to the log or the catalog."""
    chance = random.Random(shuffle)
    records = [Record(chance.randrange(8), 1, time=chance.randrange(5), payload=chance.randrange(9)) for _ in range(40)]
    work = work_of(log, driver)
    first, largest = judged(work, records)
    before = units_of(log), ids_in_catalog(log), log.rows("SELECT xmin FROM onlyonce_private.units")
    order = list(range(len(records)))
    chance.shuffle(order)
    again, largest_again = judged(work, [records[n] for n in order], cut=7)

    by_record, by_record_again = defaultdict(Counter), defaultdict(Counter)  # type: ignore[var-annotated]
    for record, fate in zip(records, first, strict=True):
        by_record[record][fate] += 1
    for n, fate in zip(order, again, strict=True):
        by_record_again[records[n]][fate] += 1
    assert by_record == by_record_again
    assert largest == largest_again
    assert (units_of(log), ids_in_catalog(log), log.rows("SELECT xmin FROM onlyonce_private.units")) == before


@pytest.mark.parametrize(
    "changed",
    [
        numbered(1, 2), numbered(1, 2, 3, 4), numbered(1, 2, 4), [*numbered(1, 2), Record(3, 21, time=3, payload=99)],
        [*numbered(1, 2), Record(3, 21, time=3, payload=3, code=INVALID)], [*numbered(1, 2, 3), Record(1, 7, time=9)],
    ],
    ids=["fewer", "more", "another id", "another payload", "another fate", "another duplicate"],
)  # fmt: skip
def test_a_replay_of_other_records_stops(log: Log, driver: Driver, changed: list[Record]) -> None:
    """A line that was added, lost or edited between two attempts; the log and the catalog stay."""
    work = work_of(log, driver)
    judged(work, numbered(1, 2, 3))
    before = units_of(log), ids_in_catalog(log)
    with pytest.raises(InvariantBroken, match="shop/receive/1/0/events/0 is committed with 3 rows"):
        judged(work, changed)

    assert (units_of(log), ids_in_catalog(log)) == before


def test_twins_at_once_emit_the_same_and_commit_once(log: Log, driver: Driver) -> None:
    """Speculation: both give their rows, of which Delta takes one attempt's; the catalog has the ids once."""
    work, results = work_of(log, driver), {}
    records = numbered(1, 2, 3, 2)

    def attempt(name: str) -> Any:
        def steps(_: str) -> Iterator[None]:
            results[name] = judged(work, records)
            yield

        return steps

    with Stage(log.url) as stage:
        played = [stage.enter(name, attempt(name)) for name in "ABC"]
        for one in played:
            one.submit()
        for one in played:
            one.finish()

    assert [one.error for one in played] == [None] * 3
    assert results["A"] == results["B"] == results["C"]
    assert len(units_of(log)) == 1
    assert ids_in_catalog(log) == Counter(r.id for r in numbered(1, 2, 3))


def test_a_batch_sees_the_chunks_of_earlier_batches_and_not_of_later_ones(log: Log, driver: Driver) -> None:
    """So its replay decides the same again, although a later batch has kept the same ids since."""
    second = work_of(log, driver, batch=2)
    judged(work_of(log, driver, batch=1), numbered(1, 2))
    judged(second, numbered(2, 3))
    judged(work_of(log, driver, batch=3), numbered(3, 4))
    first = judged(work_of(log, driver, batch=0), numbered(4, 1))[0]
    again = judged(second, numbered(2, 3))[0]

    assert first == [KEPT, KEPT]
    assert again == [DUPLICATE, KEPT]


def test_duplicates_are_found_in_every_live_bucket(log: Log, driver: Driver) -> None:
    """A file that is delivered again gets a new ingestion time, and so another bucket."""
    for batch, bucket in enumerate((BUCKET, BUCKET + 1, BUCKET + 500)):
        judged(work_of(log, driver, batch, bucket=bucket), numbered(batch))
    work = work_of(log, driver, 3, bucket=BUCKET + 2)

    assert judged(work, numbered(0, 1, 2, 3))[0] == [DUPLICATE, DUPLICATE, DUPLICATE, KEPT]


def test_an_earlier_incarnation_is_seen_whatever_its_batch_ids(log: Log, driver: Driver) -> None:
    """A new checkpoint begins at 0 again; all that its predecessors kept is before it. Another pipeline's is not."""
    judged(work_of(log, driver, batch=9), numbered(1, 2))
    log.rows("UPDATE onlyonce_private.incarnations SET state = 'closed'")
    second = log.start()

    assert second.incarnation != driver.incarnation
    assert judged(work_of(log, second), numbered(2, 3))[0] == [DUPLICATE, KEPT]
    other = log.start("other")
    Chunks(log.database).ensure_bucket("other", BUCKET)
    place = catalog.Place("other", BUCKET, 0, other.incarnation, 1, 0, 1)
    assert judged(Work(log.database, place, other.epoch), numbered(1, 2))[0] == [KEPT, KEPT]


@pytest.mark.parametrize("counts", [[2, 3, 4], [4, 2, 6, 1], [1, 5, 5, 3]], ids=str)
def test_every_duplicate_is_found_when_the_number_of_partitions_changes(
    log: Log, driver: Driver, counts: list[int]
) -> None:
    """Between batches, in either direction; ids of either sign. Each id is kept exactly once over all batches."""
    chance = random.Random(str(counts))
    ids = [Record(chance.randrange(-(2**63), 2**63), chance.randrange(-(2**63), 2**63)) for _ in range(60)]
    # Ids that share their high half, at the ends of the range.
    ids += [Record(high, low) for high in (-(2**63), -1, 2**63 - 1) for low in (-1, 0, 1)]
    kept: Counter[Id] = Counter()
    delivered: list[Record] = []
    for batch, partitions in enumerate(counts):
        records = chance.choices(ids, k=80)
        delivered += records
        found = whole_batch(log, driver, batch, partitions, records)
        assert len(found) == len(records)
        kept += Counter(i for i, fate in found if fate == KEPT)

    assert kept == Counter({r.id for r in delivered})
    assert ids_in_catalog(log) == kept


def test_the_look_up_does_not_ask_for_chunks_that_cannot_hold_its_ids(log: Log, driver: Driver) -> None:
    """With equal numbers of partitions only the chunks of its own; with 4 after 2 those of one of the two."""
    for batch in range(2):
        whole_batch(log, driver, batch, 2, numbered(*range(batch * 10, batch * 10 + 10)))

    def visible(partition: int, partitions: int) -> set[tuple[int, int]]:
        place = replace(work_of(log, driver, 5, partitions).place, partition=partition)
        return {(chunk.key.batch_id, chunk.key.partition) for chunk in Chunks(log.database).visible(place)}

    assert visible(1, 2) == {(0, 1), (1, 1)}
    assert visible(2, 4) == {(0, 0), (1, 0)}
    assert visible(3, 4) == {(0, 1), (1, 1)}
    assert visible(0, 3) == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_task_of_an_overtaken_driver_commits_nothing(log: Log, driver: Driver) -> None:
    """Neither the unit nor the chunk: the newer driver's records are no duplicates of it."""
    work = work_of(log, driver)
    newer = log.restart(driver)
    with pytest.raises(Superseded):
        judged(work, numbered(1))
    between = units_of(log), ids_in_catalog(log)

    assert between == ([], Counter())
    assert judged(work_of(log, newer), numbered(1))[0] == [KEPT]


def test_a_chunk_that_is_gone_stops_the_batch(log: Log, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its duplicates could not be told any more; nothing is guessed.

    Merged it would be in another chunk: this is lost.
    """
    judged(work_of(log, driver), numbered(1))
    look_up.forget()
    filters = Chunks.filters

    def lost(*arguments: Any) -> Any:
        log.rows("DELETE FROM onlyonce_private.catalog_chunks")
        return filters(*arguments)

    monkeypatch.setattr(Chunks, "filters", lost)
    with pytest.raises(InvariantBroken, match="is gone"):
        judged(work_of(log, driver, 1), numbered(2))


def test_ten_thousand_ids_are_looked_up_exactly(log: Log, driver: Driver) -> None:
    """Over several chunks, against a set: no false duplicate and none missed."""
    chance = np.random.default_rng(5)
    halves = chance.integers(-(2**63), 2**63, size=(12_000, 2), dtype=np.int64)
    records = [Record(int(h), int(w)) for h, w in halves]
    seen: set[Id] = set()
    for batch in range(4):
        part = records[batch * 2_500 : batch * 2_500 + 4_000]
        fates = judged(work_of(log, driver, batch), part, cut=1_000)[0]
        assert fates == [DUPLICATE if r.id in seen else KEPT for r in part]
        seen |= {r.id for r in part}

    assert ids_in_catalog(log) == Counter(seen)
