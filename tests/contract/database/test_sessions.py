"""A session of ours is the same whatever a server's owner has set for other people's work."""

from __future__ import annotations

import psycopg2
import pytest

from onlyonce.commitlog import outbox
from onlyonce.database.connect import Session, run
from onlyonce.run.stream import Place
from tests.contract.conftest import Log, ask

LONGER = "SELECT pg_sleep(0.1)"


WHOSE = pytest.mark.parametrize("whose", ['DATABASE "{name}"', 'ROLE CURRENT_USER IN DATABASE "{name}"'])


@WHOSE
def test_no_time_limit_of_a_database_or_role_ends_a_statement_of_ours(log: Log, whose: str) -> None:
    """It ends other people's. A batch whose rows need longer would fail at each attempt."""
    ask(log.url, f"ALTER {whose.format(name=log.name)} SET statement_timeout = '10ms'")
    with pytest.raises(psycopg2.errors.QueryCanceled):
        ask(log.url, LONGER)

    assert run(log.database, lambda conn: conn.exec_driver_sql(LONGER).rowcount) == 1


@WHOSE
def test_a_commit_of_ours_waits_until_it_is_on_the_disk(log: Log, whose: str) -> None:
    """A database or role may do without for other work.

    What the log has answered must be there after a crash of the server.
    """
    ask(log.url, f"ALTER {whose.format(name=log.name)} SET synchronous_commit = off")
    assert ask(log.url, "SHOW synchronous_commit") == [("off",)]

    assert run(log.database, lambda conn: conn.exec_driver_sql("SHOW synchronous_commit").scalar_one()) == "on"


@pytest.mark.parametrize("holder", ["a deliverer", "a long run"])
def test_lock_is_free_at_once_though_the_server_still_lists_the_session(
    log: Log, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    """A busy server ends a session a moment after its connection is closed; here it never does."""
    monkeypatch.setattr(Session, "close", lambda _: None)
    for _ in range(2):
        if holder == "a deliverer":
            with outbox.alone(log.database, outbox.Deliverer("shop", "all")) as ours:
                assert ours
        else:
            place = Place(log.database, "shop")
            assert place.ours()
            place.leave()
