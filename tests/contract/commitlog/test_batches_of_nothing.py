"""The units of a batch without rows, which its driver commits together: most batches of an output close no window."""

from __future__ import annotations

from collections import Counter

import pytest
from sqlalchemy import Engine, event

from onlyonce.commitlog import units
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import Batch
from onlyonce.core.errors import InvariantBroken, Superseded
from onlyonce.core.frontier import Frontier
from onlyonce.core.units import Content, FloatSum, UnitId
from onlyonce.database.connect import run
from onlyonce.sinks.base import content, pinned
from tests.contract.conftest import Log, plan_of

NOTHING = Content(0, "of nothing", {"weight": FloatSum()})
SOMETHING = Content(1, "of something", {"weight": content.of([1.0])})
UNITS = "SELECT partition, epoch, rows, content_hash, float_sums->'weight'->>0 FROM onlyonce_private.units"


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of an output."""
    return log.start("shop", "per_shop")


def begin(log: Log, driver: Driver, number: int, partitions: int) -> Batch:
    """A batch in the log."""
    plan = plan_of(driver, number, partitions=partitions)
    return Batches(log.database).begin(driver, "shop", plan, Frontier())


def commit(log: Log, driver: Driver, batch: Batch) -> None:
    """Its units, of nothing."""
    pinned.commit_nothing(log.database, driver.epoch, batch, "per_shop", NOTHING)


def put(log: Log, driver: Driver, batch: Batch, partition: int, content: Content) -> None:
    """One unit by itself, as a task commits it."""
    unit = UnitId(batch.plan.incarnation, batch.plan.batch_id, "per_shop", partition)

    def work(connection) -> None:
        Units(connection).claim(units.Claim(unit, driver.epoch, "task", "data"))
        Units(connection).fill(unit, content)

    run(log.database, work)


def test_a_replay_leaves_the_units_that_are_there_and_adds_the_others(log: Log, driver: Driver) -> None:
    """Each is there once, with the content of nothing and the epoch of who committed it."""
    batch = begin(log, driver, 0, 4)
    put(log, driver, batch, 2, NOTHING)
    newer = log.restart(driver)
    commit(log, newer, batch)
    commit(log, newer, batch)

    epochs = {0: newer.epoch, 1: newer.epoch, 2: driver.epoch, 3: newer.epoch}
    assert log.multiset(UNITS) == Counter((part, epoch, 0, NOTHING.exact, "0.0") for part, epoch in epochs.items())


def test_where_one_unit_holds_something_none_is_added(log: Log, driver: Driver) -> None:
    """A replay that means nothing, after a first attempt that meant a row."""
    batch = begin(log, driver, 0, 4)
    put(log, driver, batch, 3, SOMETHING)
    with pytest.raises(InvariantBroken):
        commit(log, driver, batch)

    assert log.multiset(UNITS) == Counter([(3, driver.epoch, 1, SOMETHING.exact, "1.0")])


def test_a_driver_that_was_overtaken_commits_none(log: Log, driver: Driver) -> None:
    """The epoch is checked in the same transaction."""
    batch = begin(log, driver, 0, 4)
    log.restart(driver)
    with pytest.raises(Superseded):
        commit(log, driver, batch)

    assert log.multiset(UNITS) == Counter()


def test_a_thousand_partitions_take_as_many_statements_as_one(log: Log, driver: Driver) -> None:
    """Whoever declares many partitions does not wait for a round trip for each, in every batch."""
    said: list[str] = []

    def listen(*arguments: object) -> None:
        said.append(str(arguments[2]))

    counts = []
    for number, partitions in enumerate((1, 1000)):
        batch = begin(log, driver, number, partitions)
        event.listen(Engine, "before_cursor_execute", listen)
        try:
            commit(log, driver, batch)
        finally:
            event.remove(Engine, "before_cursor_execute", listen)
        counts.append(len(said))
        said.clear()

    assert counts[0] == counts[1]
    assert log.rows("SELECT count(*) FROM onlyonce_private.units WHERE content_hash = 'of nothing'") == [(1001,)]
