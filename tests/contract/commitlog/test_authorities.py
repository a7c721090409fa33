"""An incarnation whose sink is in another database: whatever decides by its units asks there too, fenced, or refuses.

Two real PostgreSQL databases; the driver's work there is done by the product's functions, without Spark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from sqlalchemy import Connection, text

from onlyonce.commitlog import units
from onlyonce.commitlog.backfills import Backfills, Request
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.units import Units
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Outcome
from onlyonce.core.errors import DatabaseAway, OnlyonceError, Refused, Superseded
from onlyonce.core.frontier import Frontier
from onlyonce.core.units import Content, UnitId
from onlyonce.database import connect
from onlyonce.database.connect import Database, transaction
from onlyonce.database.statements import make_home
from onlyonce.operate import doctor, drop, gc
from onlyonce.run import reset
from tests.contract.conftest import NOON, Log, ask, plan_of, platform_of
from tests.support.steps import Stage, Steps

THERE = "TEST_OTHER_DATABASE"
TARGET = "shop/per_shop"
NOBODY = "postgresql+psycopg2://writer@127.0.0.1:1/nothing"


@pytest.fixture
def elsewhere(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Database]:
    """The database of a sink, empty, that the environment names; the log is the environment's platform."""
    name = log.server.new_database()
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv(THERE, log.server.url("writer", name))
    yield Database(log.server.url("writer", name))
    log.server.drop(name)


@pytest.fixture
def driver(log: Log, elsewhere: Database) -> Driver:
    """A driver of an output that may commit in the sink's database."""
    found = log.start("shop", "per_shop")
    units.adopt_authority(log.database, found, THERE)
    ask(elsewhere.url, "CREATE TABLE results (epoch bigint)")
    return found


def begin(log: Log, driver: Driver, **changed: Any) -> None:
    """Its first batch, in the log."""
    plan = plan_of(driver, **changed)
    Batches(log.database).begin(driver, "shop", plan, Frontier())


def write(database: Database, driver: Driver, partition: int = 0) -> None:
    """A unit of that batch in a database, committed with its row."""
    with transaction(driver.session(database)) as connection:
        fill(connection, driver, partition)


def fill(connection: Connection, driver: Driver, partition: int = 0) -> None:
    unit = UnitId(driver.incarnation, 0, "per_shop", partition)
    Units(connection).claim(units.Claim(unit, driver.epoch, "task", "data"))
    connection.execute(text("INSERT INTO results VALUES (:epoch)"), {"epoch": driver.epoch})
    Units(connection).fill(unit, Content(1, "one"))


def unit(log: Log, database: Database, driver: Driver) -> Steps:
    """The same, held before its COMMIT."""

    def steps(_: str) -> Iterator[None]:
        with transaction(driver.session(database, platform_of(log))) as connection:
            fill(connection, driver)
            yield
        yield

    return steps


def written(elsewhere: Database) -> list[Any]:
    """The rows of the sink."""
    return ask(elsewhere.url, "SELECT epoch FROM results ORDER BY 1")


def incarnations(log: Log) -> list[Any]:
    """The incarnations of the output, with their batches."""
    return log.rows(
        "SELECT l.incarnation, l.state, b.state FROM onlyonce_private.incarnations l "
        "LEFT JOIN onlyonce_private.batches b USING (incarnation) ORDER BY 1"
    )


# --- is there a unit?
# --------------------------------------------------------------------------------------------------


def test_a_new_incarnation_is_refused_while_the_sinks_database_alone_has_units_of_the_batch(
    log: Log, driver: Driver, elsewhere: Database
) -> None:
    """The platform's log has none of them: they are copied at the end of a batch, which did not come.

    It would have to be finished, and nobody declares its pipeline here."""
    begin(log, driver)
    write(elsewhere, driver)
    before = incarnations(log)

    with pytest.raises(Refused):
        reset.new(TARGET, yes=True)

    assert incarnations(log) == before == [("shop/per_shop/1", "live", "begun")]


def test_a_new_incarnation_withdraws_a_batch_of_which_no_database_has_a_unit(log: Log, driver: Driver) -> None:
    """Whatever is asked beside the log, what was possible stays possible."""
    begin(log, driver)

    reset.new(TARGET, yes=True)

    assert incarnations(log) == [("shop/per_shop/1", "closed", None), ("shop/per_shop/2", "live", None)]


def test_a_changed_declaration_does_not_begin_a_batch_anew_that_has_units_in_the_sinks_database(
    log: Log, driver: Driver, elsewhere: Database
) -> None:
    """Also where the new one has another database or none: what was remembered is asked. The old one ends the batch."""
    begin(log, driver)
    write(elsewhere, driver)
    newer = log.restart(driver)

    with pytest.raises(Refused, match="has 1 units committed under declaration d1"):
        begin(log, newer, partitions=4, declaration_hash="d2")

    begin(log, newer)
    assert log.rows("SELECT partitions, declaration_hash FROM onlyonce_private.batches") == [(2, "d1")]


def test_files_that_are_gone_do_not_begin_a_batch_anew_that_has_units_in_the_sinks_database(
    log: Log, driver: Driver, elsewhere: Database
) -> None:
    """The same question, by the other cause to begin anew."""
    begin(log, driver)
    write(elsewhere, driver)

    with pytest.raises(Refused, match="can't be read any more"):
        begin(log, log.restart(driver), facts={"a.jsonl": "gone"})


def unset(patch: pytest.MonkeyPatch, _: Log) -> None:
    """The variable is not set."""
    patch.delenv(THERE)


def away(patch: pytest.MonkeyPatch, _: Log) -> None:
    """Nobody answers there."""
    patch.setenv("ONLYONCE_DATABASE_PATIENCE", "0.0")
    patch.setenv(THERE, NOBODY)


def another(patch: pytest.MonkeyPatch, log: Log) -> None:
    """An empty database in its place."""
    name = log.server.new_database()
    patch.setenv(THERE, log.server.url("writer", name))


def lost(_: pytest.MonkeyPatch, __: Log) -> None:
    """Its epochs and units are deleted; a driver makes empty tables in their place, with another id."""
    ask(os.environ[THERE], "DROP SCHEMA onlyonce_private CASCADE")


CANNOT_ASK = [
    (unset, Refused, "not set"),
    (away, DatabaseAway, "can't be asked"),
    (another, Refused, "another database"),
    (lost, Refused, "another database"),
]


@pytest.mark.parametrize("how, error, told", CANNOT_ASK, ids=lambda value: getattr(value, "__name__", None))
def test_what_cannot_be_asked_is_no_no(
    log: Log, driver: Driver, monkeypatch: pytest.MonkeyPatch,
    how: Callable[[pytest.MonkeyPatch, Log], None], error: type[OnlyonceError], told: str,
) -> None:  # fmt: skip
    """Neither a new incarnation nor a batch anew; the message names the connection, and the log is as it was."""
    begin(log, driver)
    before = incarnations(log)
    how(monkeypatch, log)

    for attempt in (
        lambda: reset.new(TARGET, yes=True),
        lambda: begin(log, log.restart(driver), declaration_hash="d2"),
    ):
        with pytest.raises(error, match=told) as refusal:
            attempt()
        assert THERE in refusal.value.what

    assert incarnations(log) == before


def test_a_database_is_remembered_before_an_epoch_is_told_there(
    log: Log, elsewhere: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the two leaves one that is asked in vain, never one with units that nobody asks."""
    found = log.start("shop", "per_shop")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onlyonce.commitlog.incarnations.Incarnations.adopt", killed)
    with pytest.raises(KeyboardInterrupt):
        units.adopt_authority(log.database, found, THERE)

    known = log.rows("SELECT incarnation, authority, database_id FROM onlyonce_private.authorities")
    [(which,)] = ask(elsewhere.url, "SELECT id FROM onlyonce_private.this_database")
    assert known == [(found.incarnation, THERE, which)]
    assert ask(elsewhere.url, "SELECT * FROM onlyonce_private.epochs") == []


def test_a_driver_that_was_overtaken_adds_no_database(log: Log, elsewhere: Database) -> None:
    """Who has bumped the epoch and then read where units may be has read all of it."""
    zombie = log.start("shop", "per_shop")
    log.restart(zombie)

    with pytest.raises(Superseded):
        units.adopt_authority(log.database, zombie, THERE)

    assert log.rows("SELECT * FROM onlyonce_private.authorities") == []


# --- fences
# ------------------------------------------------------------------------------------------------------------


def new_incarnation(log: Log, driver: Driver) -> None:
    """By a person."""
    reset.new(TARGET, yes=True)


def anew(log: Log, driver: Driver) -> None:
    """A batch that begins again under a declaration that has no such sink any more."""
    begin(log, log.restart(driver), declaration_hash="d2")


@pytest.mark.parametrize("decides", [new_incarnation, anew])
def test_a_zombie_before_its_commit_in_the_sinks_database_is_ended_before_anything_is_decided(
    log: Log, driver: Driver, elsewhere: Database, decides: Callable[[Log, Driver], None]
) -> None:
    """Its rows are gone, its lock is free at once, and its next attempt is told what is so."""
    begin(log, driver)
    with Stage(elsewhere.url) as stage:
        zombie = stage.enter("zombie", unit(log, elsewhere, driver))
        assert stage.step(zombie)
        decides(log, driver)
        zombie.finish()

    assert zombie.error is not None
    assert written(elsewhere) == []
    with pytest.raises(Superseded, match=f"epoch {driver.epoch}, but epoch {driver.epoch + 1} is running") as told:
        write(elsewhere, driver)
    assert written(elsewhere) == []
    assert "what it had committed before stays" in told.value.data


def test_a_backfill_that_is_done_again_fences_where_its_last_attempt_may_write(
    log: Log, driver: Driver, elsewhere: Database
) -> None:
    """Also where it is declared to write elsewhere by now: an attempt that counts as replaced writes nothing any
    more."""
    noon = int(NOON.timestamp()) * 1_000_000
    request = Request("shop", "per_shop", Span(noon, noon + 60_000_000), "person", "d1")

    def attempt() -> Driver:
        mine = Backfills(log.database).open_incarnation(request, "run")
        Backfills(log.database).begin(mine, request, 0)
        return mine

    first = attempt()
    units.adopt_authority(log.database, first, THERE)
    attempt()

    with pytest.raises(Superseded):
        write(elsewhere, first)


# --- who else asks
# -----------------------------------------------------------------------------------------------------


def test_a_log_from_an_older_backup_than_the_sinks_database_gets_no_new_incarnation(
    log: Log, driver: Driver, elsewhere: Database
) -> None:
    """Batches that it has forgotten are in the sink; a new incarnation would write them again."""
    begin(log, driver)
    write(elsewhere, driver)
    log.rows("DELETE FROM onlyonce_private.batches")

    with pytest.raises(
        Refused, match=f"{THERE} holds batch 0 of incarnation {driver.incarnation}, but the log knows none"
    ) as told:
        reset.new(TARGET, yes=True)

    assert "older backup" in told.value.hint
    assert incarnations(log) == [("shop/per_shop/1", "live", None)]


def found(kind: str) -> list[dict[str, Any]]:
    """What the doctor says of a kind, where a driver without a session is dead at once."""
    return [one for one in doctor.main(["--grace=0"]).tables["findings"] if one["finding"] == kind]


def test_the_doctor_counts_units_in_the_sinks_database_or_says_that_it_can_not(
    log: Log, driver: Driver, elsewhere: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a begun batch, as the next run will ask for them."""
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    begin(log, driver)
    write(elsewhere, driver)
    connect.forget_connections()

    [dead] = found("units of a dead epoch")
    assert dead["what"].startswith("1 unit(s) of batch shop/per_shop/1/0 are committed by epoch 1,")
    assert found("sink away") == []

    monkeypatch.setenv(THERE, NOBODY)
    [away] = found("sink away")
    assert away["where"] == "shop/per_shop/1/0"
    assert THERE in away["what"]
    assert found("units of a dead epoch") == []


def test_a_drop_takes_what_the_log_remembers_and_a_straggler_adds_nothing(
    log: Log, driver: Driver, elsewhere: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also from a database that no declaration has: it waits for who is before its commit, and then takes that unit
    too."""
    begin(log, driver)
    (tmp_path / "none.py").write_text("PIPELINES = []\n")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(tmp_path / "none.py"))

    def dropped(_: str) -> Iterator[None]:
        drop.main(["shop", "--yes"])
        yield

    with Stage(elsewhere.url) as stage:
        straggler = stage.enter("straggler", unit(log, elsewhere, driver))
        assert stage.step(straggler)
        dropping = stage.enter("onlyonce-drop", dropped)
        dropping.submit()
        straggler.finish()
        dropping.finish()

    assert (straggler.error, dropping.error) == (None, None)
    assert ask(elsewhere.url, "SELECT unique_id FROM onlyonce_private.units") == []
    assert ask(elsewhere.url, "SELECT incarnation FROM onlyonce_private.epochs") == []
    assert log.rows("SELECT * FROM onlyonce_private.authorities") == []
    with pytest.raises(Superseded):
        write(elsewhere, driver)


def test_old_units_go_from_the_sinks_database_when_they_go_from_the_log(
    log: Log, driver: Driver, elsewhere: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Never those of the last batch, nor of another incarnation; a database that is away keeps them for the next time."""
    (tmp_path / "none.py").write_text("PIPELINES = []\n")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(tmp_path / "none.py"))
    for number in range(3):
        plan = plan_of(driver, number)
        with transaction(log.database) as connection:
            batch = Batches(connection).begin(driver, "shop", plan, Frontier())
        with transaction(driver.session(elsewhere)) as connection:
            one = UnitId(driver.incarnation, number, "per_shop", 0)
            Units(connection).claim(units.Claim(one, driver.epoch, "task", "data"))
            Units(connection).fill(one, Content(1, "one"))
        with transaction(log.database) as connection:
            Batches(connection).end(driver, batch, Outcome(in_time=0, late=0))
    log.rows("UPDATE onlyonce_private.batches SET committed_at = committed_at - interval '91 days'")
    ask(
        elsewhere.url,
        "INSERT INTO onlyonce_private.units (unique_id, incarnation, batch_id, sink, partition, epoch, attempt, kind) "
        "VALUES ('mill/per_shop/1/0/per_shop/0', 'mill/per_shop/1', 0, 'per_shop', 0, 1, 't', 'data')",
    )

    with monkeypatch.context() as patch:
        patch.setenv(THERE, NOBODY)
        [left] = [told for told in gc.main([]).warnings if THERE in told]
    assert "next time" in left
    report = gc.main([])

    assert report.facts["units removed elsewhere"] == 2
    assert not any(THERE in told for told in report.warnings)
    kept = ask(elsewhere.url, "SELECT incarnation, batch_id FROM onlyonce_private.units ORDER BY 1")
    assert kept == [("mill/per_shop/1", 0), (driver.incarnation, 2)]


def test_a_start_leaves_the_sessions_of_another_platform_alone(
    log: Log, driver: Driver, elsewhere: Database, new_log: Callable[[], Log]
) -> None:
    """In a database of both their sinks, where the other one's incarnation has the same number. Its own older session is
    ended."""
    second = new_log()
    other = second.start("mill", "per_shop")
    assert other.number == driver.number
    with open_session(elsewhere, driver, log) as ours, open_session(elsewhere, other, second) as theirs:
        units.adopt_authority(second.database, second.restart(other), THERE)

        assert is_open(ours)
        assert not is_open(theirs)
        units.adopt_authority(log.database, log.restart(driver), THERE)
        assert not is_open(ours)


@pytest.mark.parametrize("of_sink", [False, True], ids=["a log's", "a sink's"])
def test_a_start_in_a_platform_whose_database_is_a_sinks_too_ends_its_own_sessions(
    log: Log, driver: Driver, new_log: Callable[[], Log], of_sink: bool
) -> None:
    """A sink's variable may name this platform's database, or another platform's."""
    second = new_log()
    other = second.start("mill", "per_shop")
    own = driver.session(log.database, platform_of(log) if of_sink else None)
    with held(own) as ours, open_session(log.database, other, second) as theirs:
        log.restart(driver)

        assert not is_open(ours)
        assert is_open(theirs)


def open_session(database: Database, driver: Driver, log: Log) -> AbstractContextManager[Any]:
    """A session of a driver in a sink's database, as its sinks have it."""
    return held(driver.session(database, platform_of(log)))


@contextmanager
def held(database: Database) -> Iterator[Any]:
    """A session that is stalled."""
    with closing(psycopg2.connect(database.url.replace("+psycopg2", ""), application_name=database.name)) as session:
        yield session


def is_open(session: Any) -> bool:
    """Whether the server has not ended it."""
    try:
        session.cursor().execute("SELECT 1")
    except psycopg2.Error:
        return False
    return True


def test_two_platforms_with_one_database_for_their_sinks_do_not_take_each_other_for_themselves(
    log: Log,
    driver: Driver,
    elsewhere: Database,
    new_log: Callable[[], Log],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Under the same names the one that came second is refused: it would take the other's units for its own. Its drop
    leaves them, for the first one's next attempt counts on them."""
    begin(log, driver)
    write(elsewhere, driver)
    second = new_log()
    newer = second.restart(second.start("shop", "per_shop"))
    with pytest.raises(Refused, match="of another platform"):
        units.adopt_authority(second.database, newer, THERE)
    (tmp_path / "none.py").write_text("PIPELINES = []\n")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(tmp_path / "none.py"))
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", second.url)

    drop.main(["shop", "--yes"])

    assert ask(elsewhere.url, "SELECT incarnation, epoch FROM onlyonce_private.epochs") == [
        (driver.incarnation, driver.epoch)
    ]
    assert ask(elsewhere.url, "SELECT incarnation, batch_id FROM onlyonce_private.units") == [(driver.incarnation, 0)]
