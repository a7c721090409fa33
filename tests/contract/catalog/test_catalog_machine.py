"""Any sequence of batches, kills, replays, restarts, collections, merges, outages, clock steps and damaged filters.

A model of plain Python says what must be in `events`: no record kept twice within the horizon, none lost, and `expired`
only what comes from before the horizon. Real PostgreSQL, receive's own functions, no JVM. A few examples in `make
check`; hundreds when ONLYONCE_LONG is set.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from onlyonce.catalog import filters, look_up
from onlyonce.catalog.expiry import Collector
from onlyonce.catalog.merging import Merging
from onlyonce.core import gc
from onlyonce.core.batch import Batch
from onlyonce.core.errors import OnlyonceError
from onlyonce.database.statements import queries
from onlyonce.operate import gc as operate_gc
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.contract.receiver import Record, uniform
from tests.support.shop import SHOP

LONG = bool(os.environ.get("ONLYONCE_LONG"))
QUICK = settings(
    max_examples=300 if LONG else 12, stateful_step_count=60 if LONG else 30, deadline=None, derandomize=not LONG,
    database=None, suppress_health_check=list(HealthCheck), print_blob=False,
)  # fmt: skip
HORIZON = 18
PIPELINE = replace(SHOP, dedup_horizon=HORIZON * gc.BUCKET)
POOL = uniform(5_000, 1)
STAGES = ("begun", "one unit", "all units", "landed", "done")
DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "cleared": lambda stored: stored[:20] + bytes(len(stored) - 20),
    "cut": lambda stored: stored[:-3],
}
numbers = count(1)


@dataclass
class Model:
    """What must have become of the records, by the rules of the design and not by the floor that the log holds."""

    committed: list[int] = field(default_factory=list)
    kept: dict[Record, int] = field(default_factory=dict)

    def age(self, bucket: int) -> int:
        """How long ago a bucket was, in lived time: an hour at most between two buckets with commits."""
        later = sorted({bucket, *(other for other in self.committed if other > bucket)})
        return sum(min(newer - older, gc.PAUSE) for older, newer in pairwise(later))

    def judge(self, bucket: int, sent: list[Record], fates: Counter[tuple[str, Record]]) -> None:
        """A batch of this bucket is committed: see that each of its records has the fate that it must have."""
        for record in set(sent):
            is_kept, is_expired = fates["kept", record], fates["expired", record]
            if max(self.committed, default=0) - bucket <= HORIZON:
                assert is_expired == 0, "what is within the horizon is not expired"
            if is_expired:
                assert (is_kept, is_expired) == (0, sent.count(record)), "each expired record is stored, none delivered"
            elif record not in self.kept:
                assert is_kept == 1, "a new record is delivered once"
            else:
                within = self.age(self.kept[record]) <= HORIZON
                assert is_kept <= (0 if within else 1), "a record is not delivered twice within the horizon"
            if is_kept:
                self.kept[record] = bucket
        self.committed.append(bucket)


class Machine(RuleBasedStateMachine):
    """One pipeline, its collector, and all that can happen to both."""

    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.receive = Receive(self.log, f"shop@{next(numbers)}")
        self.model = Model()
        self.clock = self.last = 100_000
        self.sent: list[Record] = []
        self.fresh = iter(POOL)
        self.pending: tuple[Batch, list[Record]] | None = None

    @precondition(lambda self: self.pending is None)
    @rule(new=st.integers(0, 5), again=st.lists(st.integers(1, 40), max_size=5), stage=st.sampled_from(STAGES))
    def listed(self, new: int, again: list[int], stage: str) -> None:
        """A batch of new records and of some delivered again, its driver killed at a stage or not."""
        # The manifest's rule: ingestion time never moves back, whatever the clock does.
        self.last = max(self.last, self.clock)
        self._batch(self.last, self._records(new, again), stage)

    @precondition(lambda self: self.pending is None)
    @rule(
        back=st.integers(0, 60), new=st.integers(0, 3), again=st.lists(st.integers(1, 40), max_size=3),
        stage=st.sampled_from(STAGES),
    )  # fmt: skip
    def from_before(self, back: int, new: int, again: list[int], stage: str) -> None:
        """A batch that its broker had stamped earlier: the network kept it for long."""
        self._batch(self.last - back, self._records(new, again), stage)

    @precondition(lambda self: self.pending is not None)
    @rule(restart=st.booleans())
    def replayed(self, restart: bool) -> None:
        """The batch that was left, again: by the next driver, or as a second attempt of this one."""
        if restart:
            self.receive.restart()
        assert self.pending is not None
        (left, records), self.pending = self.pending, None
        batch = self.receive.begin(left.plan.bucket, left.plan.batch_id)
        rows, landed = self.receive.units(batch, records), self._rows(batch)
        assert landed is None or Counter(rows) == landed, "a replay decides as the first attempt did"
        self.receive.land(batch, rows)
        self._end(batch, records)

    @rule()
    def restarted(self) -> None:
        """A new driver, with new workers."""
        self.receive.restart()

    @rule(buckets=st.integers(1, 12))
    def time_passes(self, buckets: int) -> None:
        """Up to two hours."""
        self.clock += buckets

    @rule(buckets=st.sampled_from([HORIZON, HORIZON + 6, 10 * HORIZON, 52_560]))
    def outage(self, buckets: int) -> None:
        """Nothing runs but the clock, for the horizon, an hour more, or a year."""
        self.clock += buckets

    @rule(buckets=st.sampled_from([1, 5, 1_000]))
    def clock_stepped_back(self, buckets: int) -> None:
        """However far."""
        self.clock -= buckets

    @rule()
    def collected(self) -> None:
        """Floor, drops, merges."""
        warnings: list[str] = []
        operate_gc.collect_instance(self.log.database, self.receive.instance, PIPELINE, warnings)
        assert warnings == []

    @rule()
    def collector_killed_after_the_floor(self) -> None:
        """The buckets below it are still there, and nobody asks for them."""
        Collector(self.log.database).raise_floor(self.receive.instance, HORIZON)

    @rule()
    def collector_killed_after_a_merge(self) -> None:
        """One bucket is merged in part, all others are as they were."""
        name = self.receive.instance
        crowds = Merging(self.log.database).crowded(name)
        if crowds:
            Merging(self.log.database).merge_next(name, crowds[0])

    @rule(how=st.sampled_from(sorted(DAMAGE)), forget=st.booleans())
    def filter_damaged(self, how: str, forget: bool) -> None:
        """One chunk's filter, in the catalog; the worker knows it from before, or starts again."""
        found = self.log.rows(
            "SELECT bucket, batch_id, partition, filter FROM onlyonce_private.catalog_chunks WHERE instance = %s "
            "AND id_count > 0 AND filter IS NOT NULL ORDER BY 1, 2, 3 LIMIT 1",
            self.receive.instance,
        )
        for bucket, batch_id, partition, stored in found:
            self.log.rows(
                "UPDATE onlyonce_private.catalog_chunks SET filter = %s "
                "WHERE (instance, bucket, batch_id, partition) = (%s, %s, %s, %s)",
                DAMAGE[how](bytes(stored)), self.receive.instance, bucket, batch_id, partition,
            )  # fmt: skip
        if forget:
            look_up.forget()

    @precondition(lambda self: self.pending is None)
    @rule(partitions=st.sampled_from([1, 2, 3]))
    def declared_anew(self, partitions: int) -> None:
        """In another number of partitions, from the next batch on."""
        self.receive.partitions = partitions

    def teardown(self) -> None:
        """What was left is finished; then each record that was ever sent has been delivered, or is an expired record."""
        if self.pending is not None:
            self.replayed(restart=True)
        kept, there = Counter(self.sent), self.receive.rows()
        assert {record for fate, record in there if fate in ("kept", "expired")} == set(kept)

    def _records(self, new: int, again: list[int]) -> list[Record]:
        old = [self.sent[-back] for back in again if back <= len(self.sent)]
        return [next(self.fresh) for _ in range(new)] + old

    def _batch(self, bucket: int, records: list[Record], stage: str) -> None:
        self.sent += records
        batch = self.receive.begin(bucket)
        self.pending = (batch, records)
        if stage == "one unit":
            self.receive.unit(batch, records, 0)
        elif stage != "begun":
            rows = self.receive.units(batch, records)
            if stage != "all units":
                self.receive.land(batch, rows)
            if stage == "done":
                self._end(batch, records)

    def _rows(self, batch: Batch) -> Counter[tuple[str, Record]] | None:
        rows = self.receive.events.get((batch.plan.incarnation, batch.plan.batch_id))
        return None if rows is None else Counter(rows)

    def _end(self, batch: Batch, records: list[Record]) -> None:
        self.receive.end(batch, len(records))
        self.pending = None
        self.model.judge(batch.plan.bucket, records, self._rows(batch) or Counter())
        if len(records) % 2:  # else the driver was killed before it merged
            self.receive.merge(batch)


def play(log: Log, **changed: Any) -> None:
    """Run the machine on a log. Two chunks are a crowd, and two buckets a range, or a few batches would make none."""
    look_up.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "CROWD", 2)
        patch.setattr(gc, "STEP", 2)
        run_state_machine_as_test(type("OnThisLog", (Machine,), {"log": log}), settings=settings(QUICK, **changed))


def test_no_record_is_kept_twice_within_the_horizon_and_none_is_lost(log: Log) -> None:
    """Whatever happens in which order."""
    play(log)


def by_commit_alone(known: gc.Known, horizon: int) -> int:
    """A floor that follows the newest commit's bucket: an outage counts as if it had been lived."""
    return max(known.floor, min([max(known.committed, default=0) - horizon, *known.uncommitted, *known.begun_with]))


def unchecked(stored: bytes | None, ids: int) -> filters.Filter | None:
    """A filter that is taken as it is."""
    fields = (stored or b"")[24:].ljust(1024, b"\0")
    words = -(-max(filters.LEAST_BITS, ids * filters.BLOCKED_BITS_AN_ID) // 64)
    field = np.frombuffer(fields, np.uint8, offset=8 * words)
    return filters.Filter(np.frombuffer(fields, np.uint64, words), filters.PROBES, 8 * len(field), ids, field, fields)


ANY_STATE = queries("gc")["parts"].replace("AND b.state = 'committed'", "")
OWN_TOO = queries("catalog")["chunks"].replace("batch_id < :batch_id", "batch_id <= :batch_id")
BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the floor follows the newest commit, an outage counts": lambda m: m.setattr(gc, "floor", by_commit_alone),
    "a filter says no to everything": lambda m: m.setattr(filters, "maybe", lambda *_: np.array([], dtype=np.intp)),
    "a damaged filter is trusted": lambda m: m.setattr(filters, "read", unchecked),
    "chunks of begun batches are merged": lambda m: m.setitem(queries("gc"), "parts", ANY_STATE),
    "a replay sees its own chunk": lambda m: m.setitem(queries("catalog"), "chunks", OWN_TOO),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_the_machine_finds_a_broken_build(log: Log, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A test that can't fail is none. The platform may see it first, and stop."""
    BROKEN[name](monkeypatch)
    with pytest.raises((AssertionError, OnlyonceError)):
        play(log, max_examples=300, phases=[Phase.generate], report_multiple_bugs=False)
