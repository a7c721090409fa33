"""Sessions in the MySQL or MariaDB of a sink: how they are opened, what their errors mean, and how older ones are
ended.

On some servers other sessions can't see a session's name. So a driver's session holds a lock under a unique name, and
the database notes the name. A newer driver ends the session that holds that lock.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import URL, Connection, Engine, TextClause, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError

from onlyonce.core import ownership, stored_names
from onlyonce.core.errors import Refused
from onlyonce.database.statements import queries

DIALECT = "mysql"
DRIVER = re.compile(r"onlyonce(?:@([0-9a-f]{8}))?/(\d+)/(\d+)")
"""The name of a driver's sessions: the beginning of its platform's id, the incarnation's number and the epoch."""
SHORT = 8
"""How many characters of a platform's id are in the names of sessions."""
SESSION = (
    "SET SESSION /*M! max_statement_time = 0, idle_transaction_timeout = 600, */ wait_timeout = 600, "
    "lock_wait_timeout = 30, "
    "innodb_lock_wait_timeout = 30, time_zone = '+00:00', sql_mode = "
    "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_ZERO_DATE,"
    "NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO'"
)
"""Strict, whatever the server's own mode: a value that does not fit is an error, never cut or rounded into the
range.
"""
AWAY = {
    1040,
    1053,
    1205,
    1213,
    1317,
    1927,
    2003,
    2006,
    2013,
    2014,
    2055,
    1021,
    1037,
    1041,
    1290,
    1836,
    3024,
    4031,
    1969,
    1792,
}
"""Error numbers of a server that may do the statement later.

Too many connections, shutdown, lock wait, deadlock, killed, lost; no room, no memory; read-only for now.
"""
NOT_LET_IN = {1044, 1045, 1049, 1129, 1130, 1698, 3118}
NO_SESSION = 1094
NOT_OURS = 1095
"""The error numbers of KILL: for a session that has ended, and for another account's session."""
NOT_ALLOWED = 1142
"""The account has no permission for a statement on a table."""
AT_ONCE = 1_000
"""Names of sessions in one statement. Each task has had a session, so there may be many thousands."""
OLDEST = {True: (10, 6), False: (8, 0, 16)}
"""The first MariaDB, and the first MySQL, with JSON_TABLE and checked constraints."""


IN_CLEAR = (b"mysql_clear_password", b"dialog")
"""The methods by which a server asks for the password in clear text. PyMySQL would answer any server."""


class PasswordInClear:
    """Answer a server that asks for the password in clear text only over TLS: any program may have taken its
    address.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        """Send the password, and return the server's answer. Raise Refused without TLS."""
        if not self._connection._secure:
            raise Refused(
                "the server of a MySQL sink asks for the password in clear text, and the session has no TLS",
                data="the password was not sent; nothing was read or written",
                hint="put ssl_ca=/path/of/the/servers/ca.pem into the query of the URL, or give the account "
                "another authentication method",
            )
        self._connection.write_packet(self._connection.password + b"\0")
        answer = self._connection._read_packet()
        answer.check_error()
        return answer


def is_mysql(url: str) -> bool:
    """Return whether a URL names a MySQL or MariaDB."""
    return url.partition(":")[0].partition("+")[0] in ("mysql", "mariadb")


def new_engine(url: str, name: str, connect_seconds: int) -> Engine:
    """Return an engine whose sessions have one name.

    READ COMMITTED: a claim that waited for its twin must see what the twin has committed.
    """
    engine = create_engine(
        _of_pymysql(url), pool_size=1, max_overflow=3, pool_pre_ping=True, isolation_level="READ COMMITTED",
        connect_args={
            "connect_timeout": connect_seconds, "read_timeout": connect_seconds, "charset": "utf8mb4",
            "init_command": SESSION, "program_name": name,
            "local_infile": False, "auth_plugin_map": dict.fromkeys(IN_CLEAR, PasswordInClear),
        },
        hide_parameters=True,
    )  # fmt: skip
    event.listen(engine, "connect", lambda raw, _: _wait_for_statements(raw))
    if driver := DRIVER.fullmatch(name):
        event.listen(engine, "connect", lambda raw, _: _enter(raw, driver[1], int(driver[2]), int(driver[3])))
    return engine


def short(platform: UUID) -> str:
    """Return the beginning of a platform's id, by which names of sessions differ between platforms."""
    return str(platform)[:SHORT]


def _wait_for_statements(raw: Any) -> None:
    """Wait for a statement's answer as long as it takes. Until here, a server that does not greet ends the attempt."""
    raw._read_timeout = None


def quoted(connection: Connection, name: str) -> str:
    """Quote a name of a table or column, for a statement with parameters."""
    return connection.dialect.identifier_preparer.quote_identifier(name)


def tables(connection: Connection, name: str) -> list[Any]:
    """Return the table or view of that name, with its kind, engine, collation and comment; an empty list if there
    is none.
    """
    found = connection.exec_driver_sql(
        "SELECT table_type AS kind, engine AS engine, table_collation AS collation, table_comment AS note FROM "
        "information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s",
        (name,),
    )
    return list(found)


def put_note(connection: Connection, name: str, note: str) -> None:
    """Set the comment of a table. Leave a table that this account may not alter as it is."""
    try:
        connection.exec_driver_sql(f"ALTER TABLE {quoted(connection, name)} COMMENT = %s", (note,))
    except DBAPIError as error:
        if code_of(error) != NOT_ALLOWED:
            raise


def drop_table(connection: Connection, name: str) -> None:
    """Drop a sink's table with the table of its deleted keys. A second call does nothing."""
    deleted = ownership.MYSQL.deleted(name)
    for there in tables(connection, deleted):
        if there.note == stored_names.DELETED_NOTE:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quoted(connection, deleted)}")
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quoted(connection, name)}")


def end_older_sessions(connection: Connection, platform: UUID | None, number: int, below: int) -> None:
    """End the sessions of an incarnation's epochs below one. A stalled one would hold the epoch's row against the
    bump. Another platform's incarnation may have the same number. Raise Refused for a session that this account may not
    end.
    """
    given = {"ours": f"{short(platform)}-%" if platform else "%", "number": number, "below": below}
    older = connection.execute(_text("older_sessions"), given).all()
    for row in older:
        if row.connection is not None:
            _end_session(connection, row.connection)
    for first in range(0, len(older), AT_ONCE):
        names = [row.name for row in older[first : first + AT_ONCE]]
        connection.execute(_text("remove_sessions"), {"names": names})


def _end_session(connection: Connection, session: int) -> None:
    try:
        connection.exec_driver_sql("KILL %s", (session,))
    except DBAPIError as error:
        if code_of(error) == NOT_OURS:
            raise Refused(
                f"MySQL does not let {connection.engine.url.username} end session {session} of an earlier driver: "
                f"{told(error)}",
                data="nothing was written; that session may hold a lock for which this run would wait",
                hint="let this account end other accounts' sessions (CONNECTION_ADMIN; in MariaDB CONNECTION ADMIN), "
                f"or KILL {session} there; then start the run again",
            ) from error
        if code_of(error) != NO_SESSION:  # else it has ended meanwhile
            raise


def is_away(error: DBAPIError) -> bool:
    """Return whether the server may do the statement later."""
    return code_of(error) in AWAY


def code_of(error: DBAPIError) -> int:
    """Return the server's number of an error; 0 if it has none."""
    given = getattr(error.orig, "args", ())
    return given[0] if given and isinstance(given[0], int) else 0


def not_let_in(url: str, error: DBAPIError, variable: str) -> Refused | None:
    """Return the error for a wrong account, password or database, which no patience changes; None for another error."""
    if code_of(error) not in NOT_LET_IN:
        return None
    place = make_url(url)
    return Refused(
        f"MySQL at {place.host}:{place.port or 3306} does not let {place.username} in: {told(error)}",
        data="nothing was read or written",
        hint=f"correct the URL in {variable}, or the account's password and rights",
    )


def told(error: DBAPIError) -> str:
    """Return the server's message, on one line."""
    given = getattr(error.orig, "args", ())
    return " ".join(str(given[-1] if given else error.orig).split())


def refuse_old(connection: Connection) -> None:
    """Raise Refused for a server without the features that the sink needs."""
    dialect: Any = connection.dialect
    version = tuple(part for part in dialect.server_version_info if isinstance(part, int))
    if version < OLDEST[dialect.is_mariadb]:
        raise Refused(
            f"the server of a MySQL sink is {'MariaDB' if dialect.is_mariadb else 'MySQL'} "
            f"{'.'.join(map(str, version))}",
            data="nothing was written",
            hint="MariaDB from 10.6 on, or MySQL from 8.0.16 on: rows are loaded by JSON_TABLE, and constraints "
            "must be checked",
        )


def _of_pymysql(url: str) -> URL:
    found = make_url(url)
    if not found.database:
        raise Refused(
            "the URL of a MySQL sink names no database",
            data="nothing was read or written",
            hint="write it as mysql://user:password@host:3306/database",
        )
    return found.set(drivername="mysql+pymysql")


def _enter(raw: Any, platform: str | None, number: int, epoch: int) -> None:
    """Register a new session of a driver, so that a newer driver finds it. Its lock is released when it ends.

    The name is random behind the beginning of the platform's id.
    """
    name = str(uuid4())
    name = platform + name[SHORT:] if platform else name
    try:
        with raw.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK(%s, 0)", (name,))
            cursor.execute(
                queries(f"{DIALECT}/incarnations")["add_session"], {"name": name, "number": number, "epoch": epoch}
            )
        raw.commit()
    except raw.Error as error:
        raise OperationalError("a session's name", (), error) from error


def _text(query: str) -> TextClause:
    return text(queries(f"{DIALECT}/incarnations")[query])
