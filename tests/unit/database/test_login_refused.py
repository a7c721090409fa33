"""What a failed login means, and when a session of its own ends."""

from __future__ import annotations

import psycopg2
import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import OperationalError

from onlyonce.database import connect
from onlyonce.database.connect import Database, Session, is_not_let_in

URL = "postgresql+psycopg2://u:p@db:5432/x"
FAILED = 'connection to server at "db", port 5432 failed: '


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ('FATAL:  password authentication failed for user "u"', True),
        ('FATAL:  Peer authentication failed for user "u"', True),
        ('FATAL:  permission denied for database "x"\nDETAIL:  User does not have CONNECT privilege.', True),
        ('FATAL:  database "X y" does not exist', True),
        ('FATAL:  role "u" does not exist', True),
        ('root certificate file "/root/.postgresql/root.crt" does not exist', False),
        ("FATAL:  the database system is starting up", False),
    ],
)
def test_a_login_that_no_patience_changes_is_refused_and_others_are_not(told: str, refused: bool) -> None:
    found = is_not_let_in(URL, OperationalError("x", (), psycopg2.OperationalError(FAILED + told + "\n")))

    assert (found is not None) is refused


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_a_session_ends_with_any_error_of_its_work(
    raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer may still be on its way; the next statement opens a new session."""
    monkeypatch.setattr(connect, "_new_engine", lambda _: create_engine("sqlite://"))
    session, seen = Session(Database(URL)), []

    def fails(connection: Connection) -> None:
        seen.append(connection)
        raise raised

    for _ in range(2):
        with pytest.raises(raised):
            session.ask(fails)
    assert seen[0].closed
    assert seen[0] is not seen[1]
