"""A batch at whose record each attempt fails, on a real PostgreSQL: a kill at any step does not show, and no worker
keeps what was taken back."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from onlyonce.catalog import look_up
from onlyonce.catalog.worker_cache import WorkerCache
from onlyonce.commitlog.sources import FailedAttempts
from onlyonce.context import Query
from onlyonce.core.batch import Batch
from onlyonce.core.bisect import Place
from onlyonce.core.records import RecordPlaces
from onlyonce.receive import batch_files
from onlyonce.sources.lines import Chosen
from onlyonce.testing.scratch import Processes
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.contract.receiver import Record, uniform

BUCKET = 7
RECORDS = uniform(9, 3)
BAD, WHERE = RECORDS[5], Place(0, 5)


@dataclass
class Poisoned:
    """Receive, at whose record BAD each attempt fails once its units have committed; each look counts."""

    log: Log
    receive: Receive = field(init=False)
    refused_at_fences: list[set[Place]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.receive = Receive(self.log)

    def attempts(self) -> None:
        """Three drivers, one after the other, as three runs that fail have them."""
        for _ in range(3):
            with suppress(ArithmeticError):
                self.attempt()

    def attempt(self) -> None:
        """One driver: the batch to its end, or the record's error."""
        self.receive.restart()
        batch = self.receive.begin(BUCKET, 0)
        if batch.committed:
            return
        query = Query(self.receive.driver, Path(), self.log.database, {})
        rows = batch_files.written_despite_poison(
            query,
            "shop",
            batch,
            RecordPlaces({0: "inbox/a.jsonl"}),
            _places,
            lambda chosen: self._written(batch, chosen),
            _tried,
            lambda: nullcontext(Path()),
            self._fence,
        )
        self.receive.land(batch, rows)
        self.receive.end(batch, len(rows))

    def _fence(self) -> None:
        self.refused_at_fences.append(self.refused())

    def _written(self, batch: Batch, chosen: Chosen) -> list[tuple[str, Record]]:
        rows = self.receive.units(batch, _of(chosen))
        _fail(_of(chosen))
        return rows

    def refused(self) -> set[Place]:
        """What the log says that the batch refuses."""
        known = FailedAttempts(self.log.database).of_batch(self.receive.driver.incarnation, 0)
        return {*known.refused}


def _places() -> pa.Table:
    return pa.table({"oo_file": [0] * len(RECORDS), "oo_position": range(len(RECORDS))})


def _of(chosen: Chosen) -> list[Record]:
    first, stop = chosen.since or Place(0, 0), chosen.stop or Place(0, len(RECORDS))
    places = (Place(0, at) for at in range(len(RECORDS)))
    return [RECORDS[at.position] for at in places if first <= at < stop and at not in chosen.refused]


def _fail(records: list[Record]) -> None:
    if BAD in records:
        raise ArithmeticError("nobody thought of this record")


def _tried(chosen: Chosen, folder: object) -> None:
    _fail(_of(chosen))


POINTS = ("poison-after-count", "poison-before-refuse", "poison-before-commit", "poison-after-commit")


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_while_a_record_is_refused_does_not_show(log: Log, tmp_path: Path, point: str) -> None:
    """The same runs again: one record is refused, each other one is kept once, and nothing of the refused one is in the
    catalog."""
    poisoned = Poisoned(log)
    Processes(log, tmp_path).killed(poisoned.attempts, point)
    assert log.rows("SELECT 1 FROM onlyonce.batches WHERE state = 'committed'") == []

    poisoned.attempts()

    assert poisoned.refused() == {WHERE}
    assert poisoned.receive.rows() == Counter(("kept", record) for record in RECORDS if record != BAD)
    assert log.rows("SELECT sum(kept), count(*) FROM onlyonce_private.units") == [(len(RECORDS) - 1, 2)]
    assert log.rows("SELECT sum(id_count) FROM onlyonce_private.catalog_chunks") == [(len(RECORDS) - 1,)]
    assert poisoned.receive.batch(BUCKET, [BAD, RECORDS[0]]).plan.batch_id == 1
    assert poisoned.receive.rows()["kept", BAD] == 1


def test_an_overtaken_driver_is_fenced_before_a_record_is_refused(log: Log) -> None:
    """It has the record in its files, and its units are in the log."""
    poisoned = Poisoned(log)
    poisoned.attempts()
    assert poisoned.refused_at_fences == [set()]
    assert poisoned.refused() == {WHERE}


def test_log_line_names_file_and_position_of_a_refused_record(log: Log) -> None:
    """Not by the number that stands for the file."""
    with capture_logs() as lines:
        Poisoned(log).attempts()
    places = [line["place"] for line in lines if line["event"] == "a record is refused"]
    assert places == [f"inbox/a.jsonl, byte {WHERE.position}"]


A, MENDED, C = RECORDS[:3]


@pytest.mark.parametrize("first", [[A, MENDED, C], [A, MENDED]], ids=["one more", "as many"])
def test_a_worker_forgets_a_chunk_that_was_taken_back(
    log: Log, monkeypatch: pytest.MonkeyPatch, first: list[Record]
) -> None:
    """Another worker makes it again, of other ids.

    The first one takes a mended record for no duplicate, and those that are there for some.
    """
    receive = Receive(log, partitions=1)
    batch = receive.begin(BUCKET)
    workers = [WorkerCache() for _ in range(2)]
    monkeypatch.setattr(look_up, "_cache", workers[0])
    receive.units(batch, first)
    FailedAttempts(log.database).refuse(receive.driver, "shop", 0, {WHERE: "a cause"})
    monkeypatch.setattr(look_up, "_cache", workers[1])
    receive.land(batch, receive.units(batch, [A, C]))
    receive.end(batch, 2)

    monkeypatch.setattr(look_up, "_cache", workers[0])
    receive.batch(BUCKET, [A, MENDED, C])

    assert receive.rows() == Counter(("kept", record) for record in (A, MENDED, C))
