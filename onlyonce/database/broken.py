"""What it means that a statement or a login failed: the database is away for now, or it has refused.

Who calls it: `connect`. Not promised: anything about a COMMIT whose answer is lost, which `connect` tells itself.
"""

from __future__ import annotations

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from onlyonce.database import mysql
from onlyonce.model.errors import DatabaseAway, Refused

AWAY = ("57P", "40", "53", "08", "55P03")
"""Of SQLSTATEs. 57P: the server shuts down or ended this session; 40: serialization; 53: resources; 55P03:
lock_timeout."""
NO_ANSWER = (*AWAY, "25", "57", "58", "XX")
"""25: the session or the server takes no writes now; 57: another session has cancelled; 58 and XX: the server itself
has failed."""
NOT_LET_IN = ("password authentication failed", "no password supplied", "is not permitted to log in")
"""How PostgreSQL refuses a login, which has no SQLSTATE then."""


def is_away(error: DBAPIError) -> bool:
    """Whether the database may do the same statement later."""
    if mysql.code_of(error):
        return error.connection_invalidated or mysql.is_away(error)
    code = getattr(error.orig, "pgcode", None) or ""
    lost = error.connection_invalidated or (isinstance(error, OperationalError) and not code)
    return lost or code.startswith(AWAY)


def is_answer(error: Exception) -> bool:
    """Return whether PostgreSQL has refused what it was asked: the same statements fail again until a person changes
    something.

    Also of a COMMIT: a deferred constraint or trigger that fails there has rolled the transaction back.
    """
    code = getattr(getattr(error, "orig", None) or error, "pgcode", None) or ""
    return bool(code) and not code.startswith(NO_ANSWER)


def not_let_in(url: str, error: OperationalError) -> Refused | None:
    """The server has answered, and no patience changes what: a password, role or database that is wrong."""
    if mysql.is_mysql(url):
        return mysql.not_let_in(url, error)
    told = str(getattr(error, "orig", None) or error)
    if not any(mark in told for mark in NOT_LET_IN):
        return None
    place = make_url(url)
    return Refused(
        f"PostgreSQL at {place.host}:{place.port} does not let {place.username} in: {_reason(told)}",
        data="nothing was read or written",
        hint="correct the URL (ONLYONCE_DATABASE_URL, ONLYONCE_READER_URL, or the variable that a Postgres sink "
        "names), or the password of "
        "that role: ALTER ROLE",
    )


def _reason(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if "FATAL" in line or "fe_sendauth" in line]
    return (lines or [told.strip()])[-1].rpartition("FATAL:")[2].strip()


def away(error: Exception) -> DatabaseAway:
    """The same as an error of ours. Nothing of the transaction is there."""
    return DatabaseAway(
        f"the database did not answer: {first_line(error)}",
        data="the open transaction was rolled back; nothing is half done",
        hint="is PostgreSQL up? Then run the same command again",
    )


def first_line(error: BaseException) -> str:
    """What the server or the driver said, on one line."""
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]
