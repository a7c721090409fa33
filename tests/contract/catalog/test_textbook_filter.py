"""The textbook's figure: nine records, three ranges of ingestion time, four look-ups.

r1, r4 and r6 are delivered again: one look-up each, all dropped. r8 is new and meets a false positive: one
look-up, delivered. All other records cost none. The same when the worker starts again before each batch.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onlyonce.catalog import filters
from tests.contract.conftest import Log
from tests.contract.receiver import Record, Worker, ids_of, uniform

R = dict(zip(("r1", "r2", "r3", "r4", "r5", "r6", "r7", "r9"), uniform(8, 1), strict=True))


def twin_of(record: Record) -> Record:
    """Another id with the same probes: the filter takes only the upper half of the first number."""
    return record[0] ^ 1, record[1]


R["r8"] = twin_of(R["r5"])

ARRIVALS = [(101, "r1 r2 r3"), (102, "r4 r5 r1 r6"), (103, "r4 r6 r7 r8 r9")]
"""The publisher sends again under a new timestamp: the second time is in a later range."""


def deliver(worker: Worker, arrivals: list[tuple[int, str]], before: Callable[[], None] = lambda: None) -> list[str]:
    """The records that are delivered, in order."""
    delivered = []
    for bucket, names in arrivals:
        before()
        fates = worker.receive(bucket, [R[name] for name in names.split()])
        delivered += [name for name, fate in zip(names.split(), fates, strict=True) if fate == "kept"]
    return delivered


def test_r8_is_new_and_meets_a_false_positive() -> None:
    """By construction: another id, which the filter of the second range may hold."""
    known = filters.read(filters.make(ids_of([R["r4"], R["r5"], R["r6"]])), 3)

    assert known is not None
    assert R["r8"] not in [R[name] for name in R if name != "r8"]
    assert filters.maybe(known, filters.probes(ids_of([R["r8"], R["r7"], R["r9"]]))).tolist() == [0]


@pytest.mark.parametrize("restarts", [False, True], ids=["one worker", "a new worker for each batch"])
def test_four_look_ups_in_all(log: Log, monkeypatch: pytest.MonkeyPatch, restarts: bool) -> None:
    """Nine records once each; four exact look-ups, one of them for nothing."""
    worker = Worker(log).watch(monkeypatch)
    delivered = deliver(worker, ARRIVALS, worker.restart if restarts else lambda: None)

    assert sorted(delivered) == [f"r{number}" for number in range(1, 10)]
    assert (worker.looked_up, worker.false_positives) == (4, 1)


def test_the_first_range_costs_no_look_up(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its records is a duplicate; no exact ids are loaded."""
    worker = Worker(log).watch(monkeypatch)
    deliver(worker, [(101, "r1"), (101, "r2"), (101, "r3")])

    assert (worker.looked_up, worker.loaded, worker.spared) == (0, [], 3)


def test_a_replay_of_a_batch_asks_the_same(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own chunk is not visible to it: it decides again what it decided."""
    worker = Worker(log).watch(monkeypatch)
    records = [R[name] for name in ("r1", "r2", "r3")]
    first = worker.receive(101, records)
    worker.restart()

    assert worker.receive(101, records, batch_id=0) == first == ["kept"] * 3
    assert worker.looked_up == 0
