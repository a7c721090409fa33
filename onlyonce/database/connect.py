"""Connections and transactions, and the meaning of a lost connection.

If a connection breaks before COMMIT was sent, nothing was done: Retryable. If it breaks after that, nobody knows
whether the transaction was committed: CommitStateUnknown. Then the log must be read. If the server answers a COMMIT
with an error, nothing was done: Refused.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, TypeVar

import psycopg2
import structlog
from sqlalchemy import Connection, Engine, RootTransaction, Row, TextClause, create_engine, event, text
from sqlalchemy.exc import DBAPIError, OperationalError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from onlyonce import settings
from onlyonce.database import broken, formats, mysql
from onlyonce.database.statements import queries
from onlyonce.model import stored_names
from onlyonce.model.errors import CommitStateUnknown, DatabaseAway, Refused

log = structlog.get_logger()
T = TypeVar("T")

ENGINES = 8
"""How many databases and names one process keeps an idle connection for."""

OPTIONS = {
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "10min",
    "statement_timeout": "0",
    "timezone": "UTC",
    "synchronous_commit": "on",
}
"""A commit that was answered is there after a crash of the server, whatever a role or database has for other work. A
statement may take as long as its rows need: a bound that a server or role has for other work would end the same batch
at each attempt."""
NAME = 63
"""Of a session's name PostgreSQL keeps so many bytes."""
SESSION_OPTIONS = " ".join(f"-c {name}={value}" for name, value in OPTIONS.items())
OF_TRANSACTION = "; ".join(
    [*(f"SET LOCAL {name} = '{value}'" for name, value in OPTIONS.items()), "SET LOCAL application_name = %s"]
)
"""None of these reads a row, so the transaction may still choose its isolation level."""
KEEPALIVES = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


@dataclass(frozen=True)
class Database:
    """A PostgreSQL, or a sink's MySQL, and the name under which a session shows in pg_stat_activity.

    `name` carries lineage and epoch (`onlyonce/7/3`), so that a newer driver can end the sessions of an
    older one. It travels to Spark's workers inside closures; its repr never shows the URLs.

    pooler    the URL by which Spark's tasks reach it, where that is another one
    at_once   how many sessions the tasks of one executor have in it at the same time
    of_task   whether this is how a task reaches it (`task_sessions`)
    any_format   whether sessions open in a database of another format too. Without it they are refused: the way to end
                 an old platform, and to look up a table that another platform may have made, need no format
    """

    url: str = field(repr=False)
    name: str = stored_names.SESSION
    pooler: str | None = field(default=None, repr=False)
    at_once: int = 4
    of_task: bool = False
    any_format: bool = False


_engines: OrderedDict[tuple[Database, int], Engine] = OrderedDict()
_turn = Lock()


def _engine(database: Database) -> Engine:
    # The process is in the key, to keep a forked Python worker from using its parent's sockets. Spark's workers live on
    # after a run, and each run has names of its own: what was not used for long is let go, or the server's slots run
    # out.
    key = (replace(database, name="onlyonce-task") if by_transaction(database) else database, os.getpid())
    with _turn:
        engine = _engines.pop(key, None) or _new_engine(key[0])
        _engines[key] = engine
        if len(_engines) > ENGINES:
            (_, process), oldest = _engines.popitem(last=False)
            oldest.dispose(close=process == os.getpid())
        return engine


def _new_engine(database: Database) -> Engine:
    is_mysql = mysql.is_mysql(database.url)
    engine = mysql.new_engine(database.url, database.name) if is_mysql else _postgres_engine(database)
    if not (database.any_format or database.of_task):  # a task's driver has asked
        event.listen(engine, "connect", lambda raw, _: _refuse_other_format(raw, is_mysql))
    return engine


def _postgres_engine(database: Database) -> Engine:
    arguments = {
        "application_name": database.name[:NAME],
        # The default is the encoding of the database, in which psycopg2 misreads names of columns, and COPY the strings
        # of Arrow.
        "client_encoding": "UTF8",
        "connect_timeout": 10,
        **KEEPALIVES,
        **({} if database.of_task else {"options": SESSION_OPTIONS}),
    }
    # Many rows of one statement are sent together (`do_many`), not each with a round trip of its own.
    return create_engine(
        database.url,
        pool_size=1,
        max_overflow=3,
        pool_pre_ping=True,
        connect_args=arguments,
        executemany_mode="values_plus_batch",
        hide_parameters=True,  # an error would have values of records, and the salt of an erasure
    )


def _refuse_other_format(raw: Any, is_mysql: bool) -> None:
    """Raise Refused if a new session is in a database of another format: no command, job or page reads or writes
    there."""
    try:
        with raw.cursor() as cursor:
            found = formats.of_mysql_session(cursor) if is_mysql else formats.of_session(cursor)
        raw.rollback()
    except raw.Error as error:
        raise OperationalError("the format of the database", (), error) from error
    formats.refuse_other(found, "the sink's database" if is_mysql else "the database")


def by_transaction(database: Database) -> bool:
    """Whether a session's name and options are told in each transaction: a task's may go through a pooler, which knows
    no options."""
    return database.of_task and not mysql.is_mysql(database.url)


def end_sessions(database: Database) -> None:
    """Close this process's idle connections to it."""
    _engine(database).dispose()


def forget_connections() -> None:
    """Drop all pooled connections of this process; tests call it after they have killed a server."""
    with _turn:
        _engines.clear()


@contextmanager
def transaction(database: Database) -> Iterator[Connection]:
    """One transaction: commits when the block ends, rolls back when it raises.

    Raises DatabaseAway when the connection broke before COMMIT, CommitStateUnknown when it broke at COMMIT, Refused
    when the server has answered COMMIT with an error: a deferred constraint or trigger.
    """
    try:
        connection = _engine(database).connect()
    except OperationalError as error:
        raise broken.not_let_in(database.url, error) or broken.away(error) from error
    with connection:
        begun = connection.begin()
        try:
            if by_transaction(database):
                connection.exec_driver_sql(OF_TRANSACTION, (database.name[:NAME],))
            yield connection
        except DBAPIError as error:
            _roll_back(connection, begun)
            if broken.is_away(error):
                raise broken.away(error) from error
            raise
        except psycopg2.OperationalError as error:
            if error.pgcode and not error.pgcode.startswith(broken.AWAY):
                _roll_back(connection, begun)
                raise  # the server has answered: a row that is too large, for example
            connection.invalidate()
            raise broken.away(error) from error
        except BaseException:
            _roll_back(connection, begun)
            raise
        try:
            begun.commit()
        except (DBAPIError, psycopg2.Error) as error:
            connection.invalidate()
            if broken.is_answer(error):
                raise Refused(
                    f"the database has refused to commit: {broken.first_line(error)}",
                    data="the transaction was rolled back; nothing of it is there",
                    hint="correct the rows that the constraint or trigger rejects, or change the constraint or "
                    "trigger; then run the same command again",
                ) from error
            raise CommitStateUnknown(
                f"the database's answer to a COMMIT was lost: {broken.first_line(error)}",
                data="the transaction is either whole in the log or not there at all",
                hint="the platform reads the log and decides; if this error reaches you, run the same command again",
            ) from error


class Session:
    """A session that one holder keeps, for a lock that lasts as long as it.

    Each statement is a transaction. One that broke is made anew when it is asked again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._engine: Engine | None = None
        self._connection: Connection | None = None

    def ask(self, work: Callable[[Connection], T]) -> T:
        """Raises DatabaseAway."""
        try:
            if self._connection is None:
                # An engine of its own: those that are shared let go what was not used for long.
                self._engine = _new_engine(self._database)
                self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            return work(self._connection)
        except DBAPIError as error:
            self.close()
            raise broken.away(error) from error

    def close(self) -> None:
        """End the session."""
        if self._engine is not None:
            self._engine.dispose()
            if self._connection is not None:
                self._connection.invalidate()
                self._connection.close()
        self._engine, self._connection = None, None


def run(database: Database, work: Callable[[Connection], T]) -> T:
    """Do `work` in one transaction, and again while the database is away, for a bounded time.

    `work` must find out by itself what an earlier attempt of it has committed (a lost answer is followed
    by another attempt). Raises DatabaseAway when the patience ends; what else `work` raises ends it at once.
    """
    attempts = Retrying(
        retry=retry_if_exception_type((DatabaseAway, CommitStateUnknown)),
        stop=stop_after_delay(settings.database_patience()),
        wait=wait_exponential_jitter(multiplier=0.2, max=5),
        before_sleep=_say_again,
        reraise=True,
    )
    for attempt in attempts:
        with attempt, transaction(database) as connection:
            return work(connection)
    raise AssertionError("Retrying ends by a return or an error")


def snapshot(connection: Connection) -> None:
    """Let a transaction that has asked nothing yet see one moment only, and change nothing."""
    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def ask(connection: Connection, file: str, query: str, /, **parameters: Any) -> list[Row[Any]]:
    """The rows of a named query."""
    return list(connection.execute(_named(connection, file, query), parameters))


def do(connection: Connection, file: str, query: str, /, **parameters: Any) -> int:
    """Run a named statement; gives the number of rows that it touched."""
    return connection.execute(_named(connection, file, query), parameters).rowcount


def do_many(connection: Connection, file: str, query: str, rows: list[dict[str, Any]]) -> None:
    """Run a named statement for many rows, in few round trips."""
    if rows:
        connection.execute(text(queries(file)[query]), rows)


def _named(connection: Connection, file: str, query: str) -> TextClause:
    """The text of a named query, in the words of the database that is asked."""
    return text(queries(f"{mysql.DIALECT}/{file}" if connection.dialect.name == mysql.DIALECT else file)[query])


def _roll_back(connection: Connection, begun: RootTransaction) -> None:
    # On a session that has ended there is nothing to roll back, and saying so would hide what went wrong before.
    try:
        begun.rollback()
    except DBAPIError:
        connection.invalidate()


def _say_again(state: RetryCallState) -> None:
    problem = state.outcome.exception() if state.outcome else None
    log.warning(
        "database away, trying again", attempt=state.attempt_number, problem=broken.first_line(problem or Exception())
    )
