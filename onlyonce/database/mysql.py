"""Sessions in the MySQL or MariaDB of a sink: how they are opened, what their errors mean, and how a newer driver ends
those of an older one.

A session has no name that others could see on every server. So one of a driver holds a lock under a name of its own,
and the database notes the name: who holds that lock is to be ended.

Who calls it: `connect`, `migrate`, and `onlyonce.commitlog.lineages`. Errors: Refused for an account, a server or a URL
that can't work. Not promised: anything about clients that are not ours.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any
from uuid import uuid4

from sqlalchemy import URL, Connection, Engine, TextClause, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError

from onlyonce.core import ownership, stored_names
from onlyonce.core.errors import Refused
from onlyonce.database.statements import queries

DIALECT = "mysql"
DRIVER = re.compile(r"onlyonce/(\d+)/(\d+)")
"""The name of a driver's sessions: the lineage's number and the epoch."""
SESSION = (
    "SET SESSION /*M! max_statement_time = 0, idle_transaction_timeout = 600, */ wait_timeout = 600, "
    "lock_wait_timeout = 30, "
    "innodb_lock_wait_timeout = 30, time_zone = '+00:00', sql_mode = "
    "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_ZERO_DATE,"
    "NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO'"
)
"""Strict, whatever the server's own mode: a value that does not fit is an error, never cut or rounded into the
range."""
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
"""Too many connections, shutdown, lock wait, deadlock, killed, lost; no room, no memory; the server reads only for
now."""
NOT_LET_IN = {1044, 1045, 1049, 1129, 1130, 1698, 3118}
NOT_ALLOWED = 1142
"""The account has no permission for a statement on a table."""
OLDEST = {True: (10, 6), False: (8, 0, 16)}
"""The first MariaDB, and the first MySQL, with JSON_TABLE and checked constraints."""


IN_CLEAR = (b"mysql_clear_password", b"dialog")
"""The methods by which a server asks for the password as it is. PyMySQL would answer any server."""


class PasswordInClear:
    """Answer a server that asks for the password as it is, only over TLS: any program may have taken the server's
    address."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        """Send the password, and return the server's answer. Raises Refused without TLS."""
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
    """Whether a URL names a MySQL or MariaDB."""
    return url.partition(":")[0].partition("+")[0] in ("mysql", "mariadb")


def new_engine(url: str, name: str) -> Engine:
    """Sessions of one name. READ COMMITTED: a claim that waited for its twin must see what the twin has committed."""
    engine = create_engine(
        _of_pymysql(url), pool_size=1, max_overflow=3, pool_pre_ping=True, isolation_level="READ COMMITTED",
        connect_args={
            "connect_timeout": 10, "charset": "utf8mb4", "init_command": SESSION, "program_name": name,
            "local_infile": False, "auth_plugin_map": dict.fromkeys(IN_CLEAR, PasswordInClear),
        },
        hide_parameters=True,
    )  # fmt: skip
    if driver := DRIVER.fullmatch(name):
        event.listen(engine, "connect", lambda raw, _: _enter(raw, int(driver[1]), int(driver[2])))
    return engine


def quoted(connection: Connection, name: str) -> str:
    """A name of a table or column, for a statement with parameters."""
    return connection.dialect.identifier_preparer.quote_identifier(name)


def tables(connection: Connection, name: str) -> list[Any]:
    """The table or view of that name, with its kind, engine, collation and comment; none if there is none."""
    found = connection.exec_driver_sql(
        "SELECT table_type AS kind, engine AS engine, table_collation AS collation, table_comment AS note FROM "
        "information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = %s",
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
    """Drop a sink's table with what was deleted from it. Nothing happens the second time."""
    deleted = ownership.MYSQL.deleted(name)
    for there in tables(connection, deleted):
        if there.note == stored_names.DELETED_NOTE:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quoted(connection, deleted)}")
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quoted(connection, name)}")


def end_older_sessions(connection: Connection, number: int, below: int) -> None:
    """End the sessions of a lineage's epochs below one: a stalled one would hold the epoch's row against the bump."""
    for row in connection.execute(_text("older_sessions"), {"number": number, "below": below}).all():
        if row.connection is not None:
            with suppress(OperationalError):  # it has ended meanwhile
                connection.exec_driver_sql("KILL %s", (row.connection,))
        connection.execute(_text("remove_session"), {"name": row.name})


def is_away(error: DBAPIError) -> bool:
    """Whether the server did not do the statement for now, and may the next time."""
    return code_of(error) in AWAY


def code_of(error: DBAPIError) -> int:
    """The server's number of an error; 0 if it gave none."""
    given = getattr(error.orig, "args", ())
    return given[0] if given and isinstance(given[0], int) else 0


def not_let_in(url: str, error: DBAPIError) -> Refused | None:
    """The server has answered, and no patience changes what: an account, a password or a database that is wrong."""
    if code_of(error) not in NOT_LET_IN:
        return None
    place = make_url(url)
    return Refused(
        f"MySQL at {place.host}:{place.port or 3306} does not let {place.username} in: {told(error)}",
        data="nothing was read or written",
        hint="correct the URL in the variable that the sink names, or the account's password and rights",
    )


def told(error: DBAPIError) -> str:
    """What the server said, on one line."""
    given = getattr(error.orig, "args", ())
    return " ".join(str(given[-1] if given else error.orig).split())


def refuse_old(connection: Connection) -> None:
    """Raise Refused for a server without what the sink needs."""
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


def _enter(raw: Any, number: int, epoch: int) -> None:
    """Let a new session of a driver be found. Its lock goes when it ends."""
    name = str(uuid4())
    try:
        with raw.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK(%s, 0)", (name,))
            cursor.execute(
                queries(f"{DIALECT}/lineages")["add_session"], {"name": name, "number": number, "epoch": epoch}
            )
        raw.commit()
    except raw.Error as error:
        raise OperationalError("a session's name", (), error) from error


def _text(query: str) -> TextClause:
    return text(queries(f"{DIALECT}/lineages")[query])
