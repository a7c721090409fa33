"""Claim first: two attempts at one unit, in every order of their steps, with every end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest
from sqlalchemy import Connection, text

from onlyonce.commitlog import units
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.units import Units
from onlyonce.core.units import Content, UnitId, compare
from onlyonce.database.connect import Database, ask, transaction
from onlyonce.sinks.base import content
from tests.contract.conftest import Log
from tests.fault import ledger
from tests.support.steps import Stage, Steps, interleavings

ROWS = 3
CONTENT = Content(ROWS, "same", {"weight": content.of([0.5])})
ENDS = ("commit", "rollback")


class RolledBack(Exception):
    """What an attempt raises that is to end by a rollback."""


def put_rows(connection: Connection, unit: UnitId, attempt: str) -> None:
    """The unit's rows, each with the attempt that wrote it."""
    insert = "INSERT INTO results (unit, attempt, n) SELECT :unit, :attempt, n FROM generate_series(1, :rows) n"
    connection.execute(text(insert), {"unit": str(unit), "attempt": attempt, "rows": ROWS})


def claim_first(log: Log, driver: Driver, unit: UnitId, attempt: str, end: str) -> Steps:
    """The protocol: claim, rows, commit or rollback."""

    def steps(session: str) -> Iterator[None]:
        with transaction(Database(log.url, session)) as connection:
            there = Units(connection).claim(units.Claim(unit, driver.epoch, attempt, "data"))
            yield
            if there is None:
                put_rows(connection, unit, attempt)
                Units(connection).fill(unit, CONTENT)
            else:
                compare(unit, there, CONTENT)
            yield
            if end == "rollback":
                raise RolledBack
        yield

    return steps


def check_then_write(log: Log, driver: Driver, unit: UnitId, attempt: str, end: str) -> Steps:
    """The mutant: look whether the unit is there, write, note the unit at the end."""

    def steps(session: str) -> Iterator[None]:
        with transaction(Database(log.url, session)) as connection:
            there = Units(connection).find(unit)
            yield
            if there is None:
                put_rows(connection, unit, attempt)
            yield
            if end == "rollback":
                raise RolledBack
            ask(
                connection, "units", "claim", unique_id=str(unit), incarnation=unit.incarnation, batch_id=unit.batch_id,
                sink=unit.sink, partition=unit.partition, epoch=driver.epoch, attempt=attempt, kind="data",
            )  # fmt: skip
        yield

    return steps


@pytest.fixture
def driver(log: Log) -> Driver:
    """The one driver of both attempts: twins of speculation, not zombies."""
    log.rows("CREATE TABLE results (unit text, attempt text, n int)")
    return log.start("shop", "per_shop")


@pytest.mark.parametrize("ends", [*product(ENDS, ENDS)], ids=" ".join)
def test_of_two_attempts_one_writes_its_rows_in_every_interleaving(
    log: Log, driver: Driver, ends: tuple[str, str]
) -> None:
    """Rows and unit are of one and the same attempt, which committed; the other wrote none. With no commit nothing
    is there, and one commit is enough for the rows to be there."""
    winners: dict[str, str] = {}
    with Stage(log.url) as stage:
        for number, order in enumerate(interleavings(3)):
            unit = UnitId(driver.incarnation, number, "per_shop", 0)
            cast = {name: claim_first(log, driver, unit, name, end) for name, end in zip("AB", ends, strict=True)}
            played = stage.play(order, **cast)
            errors = {name: type(attempt.error) for name, attempt in played.items()}
            wanted = {n: RolledBack if e == "rollback" else type(None) for n, e in zip("AB", ends, strict=True)}
            assert errors == wanted, order
            winners[str(unit)] = order

    may_win = {name for name, end in zip("AB", ends, strict=True) if end == "commit"}
    noted = dict(log.rows("SELECT unique_id, attempt FROM onlyonce_private.units"))
    rows = log.multiset("SELECT unit, attempt, n FROM results")
    for unit_id, order in winners.items():
        should = Counter((noted.get(unit_id), n + 1) for n in range(ROWS if may_win else 0))
        found = Counter({(a, n): times for (u, a, n), times in rows.items() if u == unit_id})
        ledger.compared("interleavings", " ".join(ends), order, [(should, found)])
    assert set(noted) == (set(winners) if may_win else set())
    assert set(noted.values()) == may_win
    assert rows == Counter((unit, attempt, n + 1) for unit, attempt in noted.items() for n in range(ROWS))
    contents = log.multiset("SELECT rows, content_hash, float_sums->'weight'->>0 FROM onlyonce_private.units")
    assert contents == Counter({(ROWS, "same", "0.5"): len(noted)})


def test_the_second_claim_waits_for_the_end_of_the_first(log: Log, driver: Driver) -> None:
    """There is no moment between a look and a write: the twin hangs in the unique index until the other has ended."""
    unit = UnitId(driver.incarnation, 0, "per_shop", 0)
    with Stage(log.url) as stage:
        first = stage.enter("A", claim_first(log, driver, unit, "A", "rollback"))
        second = stage.enter("B", claim_first(log, driver, unit, "B", "commit"))
        through = [stage.step(first), stage.step(second), stage.step(first)]
        blocked = stage.is_blocked(second.session)
        first.finish()
        second.finish()

    assert through == [True, False, True]
    assert blocked
    assert log.rows("SELECT DISTINCT attempt FROM results") == [("B",)]


def test_check_then_write_doubles_rows(log: Log, driver: Driver) -> None:
    """The control: the same orders played with the usual recipe double rows in some, and the multiset shows it."""
    doubled = []
    with Stage(log.url) as stage:
        for number, order in enumerate(interleavings(3)):
            unit = UnitId(driver.incarnation, number, "per_shop", 0)
            stage.play(order, **{name: check_then_write(log, driver, unit, name, "commit") for name in "AB"})
            rows = log.rows("SELECT n FROM results WHERE unit = %s", str(unit))
            doubled += [order] * (Counter(rows) != Counter((n + 1,) for n in range(ROWS)))

    assert "ABABAB" in doubled
    assert "AAABBB" not in doubled


def test_a_twin_with_other_content_is_stopped_and_writes_nothing(log: Log, driver: Driver) -> None:
    """In every order: what is committed stays, and the loser's error names the option that would have helped."""

    def other(unit: UnitId, attempt: str, content: Content) -> Steps:
        def steps(session: str) -> Iterator[None]:
            with transaction(Database(log.url, session)) as connection:
                there = Units(connection).claim(units.Claim(unit, driver.epoch, attempt, "data"))
                yield
                if there is not None:
                    compare(unit, there, content)
                put_rows(connection, unit, attempt)
                Units(connection).fill(unit, content)
                yield
            yield

        return steps

    with Stage(log.url) as stage:
        for number, order in enumerate(interleavings(3)):
            unit = UnitId(driver.incarnation, number, "per_shop", 0)
            played = stage.play(order, A=other(unit, "A", CONTENT), B=other(unit, "B", Content(2, "other")))
            assert [type(a.error).__name__ for a in played.values() if a.error] == ["InvariantBroken"], order
            assert all("stable_input" in str(a.error) for a in played.values() if a.error)
            there = Counter(log.rows("SELECT n FROM results WHERE unit = %s", str(unit)))
            ledger.compared("interleavings", "other content", order, [(Counter((n + 1,) for n in range(ROWS)), there)])

    rows = log.multiset(
        "SELECT u.unique_id, r.n FROM onlyonce_private.units u JOIN results r USING (attempt) WHERE r.unit = "
        "u.unique_id"
    )
    assert set(rows.values()) == {1}
    assert len(rows) == ROWS * len(interleavings(3))
    assert sum(log.multiset("SELECT unit, n FROM results").values()) == len(rows)
