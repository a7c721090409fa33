"""Fencing: of two drivers the newer one commits, and whatever the older one has open ends without effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, text

from onlyonce.commitlog import incarnations, units
from onlyonce.commitlog.incarnations import Driver, Incarnation, Incarnations
from onlyonce.commitlog.units import Units
from onlyonce.core.errors import CommitStateUnknown, Refused, Retryable, Superseded
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import ENGINES, Database, ask, run, transaction
from onlyonce.database.migrate import migrate_authority
from tests.contract.conftest import Log
from tests.contract.conftest import ask as ask_at
from tests.support.steps import Attempt, Stage, Steps
from tests.support.together import together

CONTENT = Content(1, "one")


def unit_of(driver: Driver, partition: int = 0) -> UnitId:
    """A unit of the driver's first batch."""
    return UnitId(driver.incarnation, 0, "per_shop", partition)


def unit(database: Database, driver: Driver) -> Steps:
    """A unit's transaction as the product does it, under the driver's own session name."""

    def steps(_: str) -> Iterator[None]:
        with transaction(driver.session(database)) as connection:
            Units(connection).claim(units.Claim(unit_of(driver), driver.epoch, f"epoch {driver.epoch}", "data"))
            yield
            connection.execute(text("INSERT INTO results VALUES (:epoch)"), {"epoch": driver.epoch})
            Units(connection).fill(unit_of(driver), CONTENT)
            yield
        yield

    return steps


def unit_without_lock(database: Database, driver: Driver) -> Steps:
    """The mutant: the epoch is read without a lock, in a session that no newer driver knows."""

    def steps(session: str) -> Iterator[None]:
        with transaction(Database(database.url, session)) as connection:
            ask(
                connection, "units", "claim", unique_id=str(unit_of(driver)), incarnation=driver.incarnation, batch_id=0,
                sink="per_shop", partition=0, epoch=driver.epoch, attempt="mutant", kind="data",
            )  # fmt: skip
            known = connection.execute(
                text("SELECT epoch FROM onlyonce_private.epochs WHERE incarnation = :incarnation"),
                {"incarnation": driver.incarnation},
            )
            assert known.scalar() == driver.epoch
            yield
            connection.execute(text("INSERT INTO results VALUES (:epoch)"), {"epoch": driver.epoch})
            yield
        yield

    return steps


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver that will be overtaken."""
    log.rows("CREATE TABLE results (epoch bigint)")
    return log.start("shop", "per_shop")


def is_there(log: Log) -> tuple[Counter[Any], Counter[Any]]:
    """Units and rows, by epoch."""
    return log.multiset("SELECT epoch FROM onlyonce_private.units"), log.multiset("SELECT epoch FROM results")


@pytest.mark.parametrize("steps", [1, 2], ids=["after the check", "before the commit"])
def test_a_zombie_that_has_checked_its_epoch_and_not_committed_is_ended_by_the_bump(
    log: Log, driver: Driver, steps: int
) -> None:
    """Its transaction never commits, nothing of it is there, and its next attempt is told who is at work."""
    with Stage(log.url) as stage:
        zombie = stage.enter("zombie", unit(log.database, driver))
        for _ in range(steps):
            assert stage.step(zombie)
        newer = log.restart(driver)
        zombie.finish()

    assert isinstance(zombie.error, CommitStateUnknown | Retryable)
    assert newer.epoch == driver.epoch + 1
    assert is_there(log) == (Counter(), Counter())
    with pytest.raises(Superseded, match=f"epoch {driver.epoch}, but epoch {newer.epoch} is running"):
        Incarnations(driver.session(log.database)).check_epoch(driver.incarnation, driver.epoch)


def test_the_newer_driver_writes_what_the_zombie_could_not(log: Log, driver: Driver) -> None:
    """The claim of the ended session is free again: the unit is there once, of the newer epoch."""
    with Stage(log.url) as stage:
        zombie = stage.enter("zombie", unit(log.database, driver))
        stage.step(zombie)
        stage.step(zombie)
        newer = log.restart(driver)
        live = stage.enter("live", unit(log.database, newer))
        live.finish()
        zombie.finish()

    assert live.error is None
    assert is_there(log) == (Counter({(newer.epoch,): 1}), Counter({(newer.epoch,): 1}))


def test_a_zombie_of_the_plain_select_commits_after_the_bump(log: Log, driver: Driver) -> None:
    """The control: without the lock (and the session's end) a driver of the old epoch commits after the new one
    began."""
    with Stage(log.url) as stage:
        zombie = stage.enter("mutant", unit_without_lock(log.database, driver))
        stage.step(zombie)
        stage.step(zombie)
        newer = log.restart(driver)
        zombie.finish()

    assert zombie.error is None
    assert newer.epoch > driver.epoch
    assert is_there(log) == (Counter({(driver.epoch,): 1}), Counter({(driver.epoch,): 1}))


def test_a_bump_waits_for_a_commit_that_has_checked_where_it_may_not_end_its_session(log: Log, driver: Driver) -> None:
    """The lock alone keeps the order too: a session under another name is not ended, so the bump comes after its
    commit."""

    def nameless(session: str) -> Iterator[None]:
        with transaction(Database(log.url, session)) as connection:
            Units(connection).claim(units.Claim(unit_of(driver), driver.epoch, "nameless", "data"))
            yield
            Units(connection).fill(unit_of(driver), CONTENT)
        yield

    def bump(session: str) -> Iterator[None]:
        with transaction(Database(log.url, session)) as connection:
            found = Incarnations(connection).live("shop", "per_shop")
            assert found
            Incarnations(connection).bump(found, "run")
            yield
        yield

    with Stage(log.url) as stage:
        first, second = stage.enter("nameless", nameless), stage.enter("bump", bump)
        through = [stage.step(first), stage.step(second)]
        first.finish()
        second.finish()

    assert through == [True, False]
    assert (first.error, second.error) == (None, None)
    assert log.rows("SELECT epoch FROM onlyonce_private.epochs") == [(driver.epoch + 1,)]


@pytest.mark.parametrize("closes_first", [True, False], ids=["closed before", "closed meanwhile"])
def test_a_driver_gets_no_epoch_of_an_incarnation_that_was_closed_since_it_looked(
    log: Log, driver: Driver, closes_first: bool
) -> None:
    """It found its incarnation live, and stood still: it must not go on beside the new incarnation. Also when its bump waits for the
    transaction that closes it."""
    found = Incarnations(log.database).live("shop", "per_shop")

    def close(session: str) -> Iterator[None]:
        with transaction(Database(log.url, session)) as connection:
            Incarnations(connection).check_epoch(driver.incarnation, driver.epoch)
            yield
            Incarnations(connection).set_state(driver.incarnation, "closed")
        yield

    def bump(session: str) -> Iterator[None]:
        with transaction(Database(log.url, session)) as connection:
            assert found
            Incarnations(connection).bump(found, "run")
        yield

    with Stage(log.url) as stage:
        closing = stage.enter("close", close)
        stage.step(closing)
        if closes_first:
            closing.finish()
        starting = stage.enter("bump", bump)
        through = stage.step(starting)
        closing.finish()
        starting.finish()

    assert (through, closing.error) == (closes_first, None)
    assert isinstance(starting.error, Superseded)
    assert log.rows("SELECT epoch FROM onlyonce_private.epochs") == [(driver.epoch,)]


def test_a_driver_that_was_overtaken_claims_nothing(log: Log, driver: Driver) -> None:
    """The claim of a zombie that comes late is rolled back with the check of its epoch."""
    log.restart(driver)
    with pytest.raises(Superseded), transaction(driver.session(log.database)) as connection:
        Units(connection).claim(units.Claim(unit_of(driver), driver.epoch, "late", "data"))

    assert is_there(log) == (Counter(), Counter())


def test_no_epoch_at_all_is_superseded_too(log: Log) -> None:
    """An incarnation that this database does not know lets nobody commit."""
    with pytest.raises(Superseded, match="epoch None is running"):
        Incarnations(log.database).check_epoch("shop/receive/1", 1)


def test_bumps_at_once_give_each_driver_an_epoch_of_its_own(log: Log, driver: Driver) -> None:
    """However many start at the same instant: consecutive numbers, none twice, and the highest may commit."""
    found = Incarnations(log.database).live("shop", "per_shop")
    assert found
    drivers = together(*[lambda: Incarnations(log.database).bump(found, "run")] * 4)

    assert sorted(d.epoch for d in drivers) == [driver.epoch + n for n in range(1, 5)]
    allowed = [d for d in drivers if _may_commit(log, d)]
    assert [d.epoch for d in allowed] == [driver.epoch + 4]


def _may_commit(log: Log, driver: Driver) -> bool:
    try:
        Incarnations(log.database).check_epoch(driver.incarnation, driver.epoch)
    except Superseded:
        return False
    return True


def test_registrations_at_once_give_one_incarnation(log: Log) -> None:
    """Two drivers that start on nothing agree on one incarnation and one checkpoint."""
    Incarnations(log.database).add_instance("shop", "shop")
    checkpoints = [uuid4() for _ in range(4)]

    def register(checkpoint: UUID) -> Callable[[], Any]:
        return lambda: Incarnations(log.database).register("shop", "receive", checkpoint)

    made = together(*map(register, checkpoints))

    assert {m.incarnation for m in made if isinstance(m, Incarnation)} == {"shop/receive/1"}
    assert {type(m) for m in made} <= {Incarnation, Superseded}
    assert len({m.checkpoint_id for m in made if isinstance(m, Incarnation)}) == 1
    assert log.multiset("SELECT incarnation FROM onlyonce_private.incarnations") == Counter({("shop/receive/1",): 1})


def test_a_closed_incarnation_is_followed_by_the_next_incarnation(log: Log, driver: Driver) -> None:
    """Under a checkpoint of its own; its epochs begin again, and the old incarnation's driver has none of it."""
    Incarnations(log.database).set_state(driver.incarnation, "closed")
    second = log.start("shop", "per_shop")

    assert (driver.incarnation, second.incarnation) == ("shop/per_shop/1", "shop/per_shop/2")
    assert second.epoch == 1
    assert second.number != driver.number


def test_a_damaged_incarnation_is_refused_with_the_way_out(log: Log, driver: Driver) -> None:
    """It stays the live one, so nothing starts beside it, and it does not run."""
    Incarnations(log.database).set_state(driver.incarnation, "damaged")
    found = Incarnations(log.database).live("shop", "per_shop")

    assert found
    assert found.incarnation == driver.incarnation
    with pytest.raises(Refused, match="damaged") as refusal:
        incarnations.refuse_damaged(found)
    assert "onlyonce reset shop/per_shop" in refusal.value.hint


# --- a sink in another database
# ----------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(log: Log) -> Iterator[Database]:
    """The database of a sink, with epochs and units of its own and nothing else of the platform."""
    name = log.server.new_database()
    url = log.server.url("writer", name)
    migrate_authority(url)
    yield Database(url)
    log.server.drop(name)


def test_a_sinks_own_database_learns_the_epoch_and_fences_by_it(log: Log, driver: Driver, elsewhere: Database) -> None:
    """The newer driver's adoption ends the older one there, before and after its claim."""
    ask_at(elsewhere.url, "CREATE TABLE results (epoch bigint)")
    Incarnations(elsewhere).adopt(driver)
    with Stage(elsewhere.url) as stage:
        zombie = stage.enter("zombie", unit(elsewhere, driver))
        stage.step(zombie)
        stage.step(zombie)
        newer = log.restart(driver)
        Incarnations(elsewhere).adopt(newer)
        zombie.finish()
    with pytest.raises(Superseded):
        Incarnations(elsewhere).check_epoch(driver.incarnation, driver.epoch)

    Incarnations(elsewhere).check_epoch(newer.incarnation, newer.epoch)
    assert isinstance(zombie.error, CommitStateUnknown | Retryable)
    assert ask_at(elsewhere.url, "SELECT epoch FROM results") == []


def test_an_older_driver_adopts_nothing(log: Log, driver: Driver, elsewhere: Database) -> None:
    """The epoch there never goes back."""
    newer = log.restart(driver)
    Incarnations(elsewhere).adopt(newer)
    with pytest.raises(Superseded):
        Incarnations(elsewhere).adopt(driver)

    assert ask_at(elsewhere.url, "SELECT epoch FROM onlyonce_private.epochs") == [(newer.epoch,)]


def test_adopting_twice_is_adopting_once(log: Log, driver: Driver, elsewhere: Database) -> None:
    """Each output of a query that writes there does it; none disturbs the other."""
    for _ in range(2):
        Incarnations(elsewhere).adopt(driver)

    assert ask_at(elsewhere.url, "SELECT epoch FROM onlyonce_private.epochs") == [(driver.epoch,)]


# --- whose sessions are ended, and whose are not
# -----------------------------------------------------------------------


def in_the_middle(stage: Stage, database: Database, driver: Driver) -> Attempt:
    """A unit that has claimed and written and not committed."""
    attempt = stage.enter("live", unit(database, driver))
    assert stage.step(attempt)
    assert stage.step(attempt)
    return attempt


def test_a_zombies_adoption_leaves_the_sessions_of_the_newer_driver_alone(
    log: Log, driver: Driver, elsewhere: Database
) -> None:
    """An older driver stops without effect: it does not even interrupt the one that is at work."""
    ask_at(elsewhere.url, "CREATE TABLE results (epoch bigint)")
    newer = log.restart(driver)
    Incarnations(elsewhere).adopt(newer)
    with Stage(elsewhere.url) as stage:
        live = in_the_middle(stage, elsewhere, newer)
        with pytest.raises(Superseded):
            Incarnations(elsewhere).adopt(driver)
        live.finish()

    assert live.error is None
    assert ask_at(elsewhere.url, "SELECT epoch FROM results") == [(newer.epoch,)]


def test_an_adoption_leaves_its_own_drivers_sessions_alone(log: Log, driver: Driver, elsewhere: Database) -> None:
    """In either database, also where both are on one server."""
    ask_at(elsewhere.url, "CREATE TABLE results (epoch bigint)")
    Incarnations(elsewhere).adopt(driver)
    with Stage(log.url) as stage:
        here, there = in_the_middle(stage, log.database, driver), in_the_middle(stage, elsewhere, driver)
        Incarnations(elsewhere).adopt(driver)
        here.finish()
        there.finish()

    assert (here.error, there.error) == (None, None)


def test_a_driver_leaves_the_sessions_of_other_platforms_on_the_server_alone(
    log: Log, driver: Driver, new_log: Callable[[], Log]
) -> None:
    """Incarnations are numbered by platform: the same number in another database is somebody else."""
    other = new_log()
    other.rows("CREATE TABLE results (epoch bigint)")
    theirs = other.start("shop", "per_shop")
    with Stage(other.url) as stage:
        unharmed = in_the_middle(stage, other.database, theirs)
        log.restart(driver)
        unharmed.finish()

    assert theirs.number == driver.number
    assert unharmed.error is None
    assert is_there(other) == (Counter({(theirs.epoch,): 1}), Counter({(theirs.epoch,): 1}))


def test_a_driver_leaves_the_sessions_of_other_incarnations_alone(log: Log, driver: Driver) -> None:
    """Of number 1 and number 1x alike: the names are not taken for prefixes of each other."""
    others = [log.start("shop", f"output_{n}") for n in range(12)]
    namesake = next(o for o in others if o.number != driver.number and str(o.number).startswith(str(driver.number)))
    with Stage(log.url) as stage:
        unharmed = in_the_middle(stage, log.database, namesake)
        log.restart(driver)
        unharmed.finish()

    assert unharmed.error is None


def connection_of(connection: Connection) -> int:
    """The server's process behind a connection."""
    return int(connection.execute(text("SELECT pg_backend_pid()")).scalar() or 0)


def test_idle_sessions_of_an_older_driver_are_replaced_without_an_error(log: Log, driver: Driver) -> None:
    """A pooled session that was ended is noticed before it is used: what is told is Superseded, nothing less clear."""
    before = run(driver.session(log.database), connection_of)
    log.restart(driver)
    after = run(driver.session(log.database), connection_of)

    assert before != after


def test_a_process_that_lives_long_keeps_few_sessions(log: Log) -> None:
    """Spark's workers live on and each run has a session name of its own: the idle sessions of one process are
    bounded."""
    for epoch in range(3 * ENGINES):
        run(Database(log.url, f"onlyonce/1/{epoch}"), lambda conn: conn.execute(text("SELECT 1")))

    open_ones = log.rows("SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'onlyonce/1/%'")
    assert Counter(open_ones) == Counter((f"onlyonce/1/{epoch}",) for epoch in range(2 * ENGINES, 3 * ENGINES))
