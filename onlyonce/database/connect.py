"""Connections, transactions and sessions of tasks, and the meaning of failures.

The first part decides what a failed statement or login means: the database is unreachable for now, or it has refused. A
COMMIT whose answer is lost is handled by `transaction`.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import psycopg2
import structlog
from sqlalchemy import Connection, Engine, RootTransaction, Row, TextClause, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from onlyonce import environment, settings
from onlyonce.core import stored_names
from onlyonce.core.database_url import EXAMPLE, address, with_driver
from onlyonce.core.errors import CommitStateUnknown, DatabaseAway, Refused
from onlyonce.database import mysql, statements
from onlyonce.database.statements import queries

AWAY = ("57P", "40", "53", "08", "55P03")
"""SQLSTATEs of an unreachable database.

57P    the server shuts down or ended this session
40     serialization
53     resources
08     connection
55P03  lock_timeout
"""
NO_ANSWER = (*AWAY, "25", "57", "58", "XX")
"""SQLSTATEs that are not refusals.

25      the session or the server takes no writes now
57      another session has cancelled
58, XX  the server itself has failed
"""
NOT_LET_IN = re.compile(
    "authentication failed|no password supplied|is not permitted to log in|no pg_hba.conf entry"
    '|permission denied for database|FATAL: +(role|database) ".*" does not exist'
)
"""How PostgreSQL refuses a login; such an error has no SQLSTATE."""
READ_ONLY = "25006"
WHY_READ_ONLY = text("SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool, current_user")


def is_away(error: DBAPIError) -> bool:
    """Return whether the database may do the same statement later."""
    if mysql.code_of(error):
        return error.connection_invalidated or mysql.is_away(error)
    code = getattr(error.orig, "pgcode", None) or ""
    lost = error.connection_invalidated or (isinstance(error, OperationalError) and not code)
    return lost or code.startswith(AWAY)


def is_answer(error: Exception) -> bool:
    """Return whether PostgreSQL has refused the request: it fails again until a person changes something.

    This holds for a COMMIT too: a deferred constraint or trigger that fails there has rolled the transaction back.
    """
    code = getattr(getattr(error, "orig", None) or error, "pgcode", None) or ""
    return bool(code) and not code.startswith(NO_ANSWER)


UNKNOWN_HOST = re.compile(r"could not translate host name|Name or service not known|name resolution|Errno -[25]\b")
"""A host's name that can't be resolved, as libpq and Python say it."""


def is_not_let_in(url: str, error: OperationalError) -> Refused | None:
    """Return the error for a wrong password, role or database, which no patience changes; None for another error."""
    if mysql.is_mysql(url):
        return mysql.not_let_in(url, error, _variable_of(url))
    told = str(getattr(error, "orig", None) or error)
    if not NOT_LET_IN.search(told):
        return None
    place, why = make_url(url), _reason(told)
    if not place.database and why.startswith("database"):
        return Refused(
            f"the URL in {_variable_of(url)} names no database, and PostgreSQL at {place.host}:{place.port} has "
            f"none of the name of the role, {place.username}",
            data="nothing was read or written",
            hint="write the database's name at its end, like postgresql://user:password@host:5432/database",
        )
    others = {
        "database": f"make it: CREATE DATABASE {place.database}",
        "no pg_hba": "let it in by pg_hba.conf there",
        "permission": f"GRANT CONNECT ON DATABASE {place.database} TO {place.username}",
    }
    other = next((what for mark, what in others.items() if why.startswith(mark)), None)
    return Refused(
        f"PostgreSQL at {place.host}:{place.port} does not let {place.username} in: {why}",
        data="nothing was read or written",
        hint=f"correct the URL in {_variable_of(url)}, or "
        f"{other or f'the password of that role: ALTER ROLE {place.username} PASSWORD …'}",
    )


def takes_no_writes(connection: Connection, error: DBAPIError) -> DatabaseAway | Refused | None:
    """Return the error for a server or role that only reads; None for another error, and in a transaction of ours."""
    if getattr(error.orig, "pgcode", None) != READ_ONLY:
        return None
    standby, reads, role = connection.execute(WHY_READ_ONLY).one()
    connection.rollback()
    at = address(str(connection.engine.url))
    if standby:
        return DatabaseAway(
            f"PostgreSQL at {at} is a standby, which takes no writes",
            data="the open transaction was rolled back; nothing is half done",
            hint=f"name the primary in {_variable_of(None)}; after a failover run the same command again",
        )
    if reads:
        return Refused(
            f"PostgreSQL at {at} lets {role} read, but not write: default_transaction_read_only is on",
            data="nothing was written",
            hint="use the URL of the role that writes in ONLYONCE_DATABASE_URL; the reader's URL belongs in "
            "ONLYONCE_READER_URL",
        )
    return None


def _variable_of(url: str | None) -> str:
    """Return the variable that has a URL, to be named in a hint."""
    named = environment.names_of_url(url) if url else []
    return " and ".join(named) or "ONLYONCE_DATABASE_URL, ONLYONCE_READER_URL or the variable that a sink names"


def _reason(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if "FATAL" in line or "fe_sendauth" in line]
    return (lines or [told.strip()])[-1].rpartition("FATAL:")[2].strip()


def database_away(error: Exception, url: str | None = None) -> DatabaseAway:
    """Return the error for an unreachable database. The transaction was rolled back.

    `url`: if no connection opened, since a driver does not always name what it tried to reach.
    """
    kind = "MySQL " if url and mysql.is_mysql(url) else "PostgreSQL " if url else ""
    why, variable = first_line(error), _variable_of(url)
    if url and mysql.is_mysql(url) and why.endswith("during query (timed out)"):
        why = "what listens there took the connection and sent no greeting of MySQL; is it the port of a MySQL server?"
    if UNKNOWN_HOST.search(why):
        hint = f"is the host's name in {variable} right, and known on this machine? Then run the same command again"
    else:
        hint = f"is the database up at that address? The address is in {variable}. Then run the same command again"
    return DatabaseAway(
        f"the {kind}database{f' at {address(url)}' if url else ''} did not answer: {why}",
        data="nothing was read or written there; what is committed stays"
        if url
        else "the open transaction was rolled back; nothing is half done",
        hint=hint,
    )


def first_line(error: BaseException) -> str:
    """Return the server's or the driver's message, on one line."""
    cause = getattr(error, "orig", None) or error
    if isinstance(error, DBAPIError) and mysql.code_of(error):  # (number, message)
        return mysql.told(error)
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


# Connections and transactions, and the meaning of a lost connection.
#
# If a connection breaks before COMMIT was sent, nothing was done: Retryable. If it breaks afterwards, it is unknown
# whether the transaction was committed: CommitStateUnknown. Then the log must be read. If the server answers a COMMIT
# with an error, nothing was done: Refused.


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
"""Options of each session. They override what a role or database has for other work.

An acknowledged commit survives a crash of the server. A statement may take as long as its rows need: a timeout would
end the same batch at each attempt.
"""
NAME = 63
"""PostgreSQL keeps this number of bytes of a session's name."""
SESSION_OPTIONS = " ".join(f"-c {name}={value}" for name, value in OPTIONS.items())
OF_TRANSACTION = "; ".join(
    [*(f"SET LOCAL {name} = '{value}'" for name, value in OPTIONS.items()), "SET LOCAL application_name = %s"]
)
"""None of these statements reads a row, so the transaction may still choose its isolation level."""
KEEPALIVES = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


@dataclass(frozen=True)
class Database:
    """A PostgreSQL, or a sink's MySQL, and the name under which a session shows in pg_stat_activity.

    `name` carries incarnation and epoch (`onlyonce/7/3`), so that a newer driver can end the sessions of an older one.
    Spark's workers get it inside closures; its repr never shows the URLs.

    pooler    the URL by which Spark's tasks reach it, if that is another one
    at_once   how many sessions the tasks of one executor have in it at the same time
    of_task   whether this is how a task reaches it (`held_session`)
    any_format   whether sessions open in a database of another format too. Without it they are refused. Ending an old
                 platform needs no format, nor does looking up a table that another platform may have made
    only_reads   whether its role is to read: a write that is refused is then the statement's fault, not the URL's
    """

    url: str = field(repr=False)
    name: str = stored_names.SESSION
    pooler: str | None = field(default=None, repr=False)
    at_once: int = 4
    of_task: bool = False
    any_format: bool = False
    only_reads: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", with_driver(self.url))
        object.__setattr__(self, "pooler", self.pooler and with_driver(self.pooler))


_engines: OrderedDict[tuple[Database, int], Engine] = OrderedDict()
_turn = Lock()


def _engine(database: Database) -> Engine:
    # The process id is in the key so that a forked Python worker does not use its parent's sockets. Spark's workers
    # outlive a run, and each run has names of its own. So the least recently used engine is disposed, or the server
    # runs out of connection slots.
    key = (replace(database, name="onlyonce-task") if by_transaction(database) else database, os.getpid())
    with _turn:
        engine = _engines.pop(key, None) or _new_engine(key[0])
        _engines[key] = engine
        if len(_engines) > ENGINES:
            (_, process), oldest = _engines.popitem(last=False)
            oldest.dispose(close=process == os.getpid())
        return engine


def connect_seconds() -> int:
    """Return how long one attempt to connect may take: the patience, and from 2 (the smallest of libpq) to 10
    seconds."""
    return int(min(max(settings.database_patience(), 2), 10))


def _new_engine(database: Database) -> Engine:
    is_mysql = mysql.is_mysql(database.url)
    engine = (
        mysql.new_engine(database.url, database.name, connect_seconds()) if is_mysql else _postgres_engine(database)
    )
    if not (database.any_format or database.of_task):  # the task's driver has checked the format
        event.listen(engine, "connect", lambda raw, _: _refuse_other_format(raw, is_mysql))
    return engine


def _postgres_engine(database: Database) -> Engine:
    arguments = {
        "application_name": database.name[:NAME],
        # The default is the encoding of the database, in which psycopg2 misreads names of columns, and COPY the strings
        # of Arrow.
        "client_encoding": "UTF8",
        "connect_timeout": connect_seconds(),
        **KEEPALIVES,
        **({} if database.of_task else {"options": SESSION_OPTIONS}),
    }
    try:
        url = make_url(database.url)
    except (ArgumentError, ValueError):  # neither names the setting, and their text may have the password
        raise Refused(
            f"the URL in {_variable_of(database.url)} can't be read",
            data="nothing was read or written",
            hint=f"write it as {EXAMPLE}, the port as a number, and a character of the password that has a meaning in "
            "URLs as %40 for @",
        ) from None
    # Many rows of one statement are sent together (`do_many`), instead of each with its own round trip.
    return create_engine(
        url,
        pool_size=1,
        max_overflow=3,
        pool_pre_ping=True,
        connect_args=arguments,
        executemany_mode="values_plus_batch",
        hide_parameters=True,  # an error would show values of records, and the salt of an erasure
    )


def _refuse_other_format(raw: Any, is_mysql: bool) -> None:
    """Raise Refused if a new session is in a database of another format. No command, job or page reads or writes
    there.
    """
    try:
        with raw.cursor() as cursor:
            found = statements.format_of_mysql_session(cursor) if is_mysql else statements.format_of_session(cursor)
        raw.rollback()
    except raw.Error as error:
        raise OperationalError("the format of the database", (), error) from error
    statements.refuse_other_format(found, "the sink's database" if is_mysql else "the database")


def by_transaction(database: Database) -> bool:
    """Return whether a session's name and options are set in each transaction: a task's pooler may know no options."""
    return database.of_task and not mysql.is_mysql(database.url)


def end_sessions(database: Database) -> None:
    """Close this process's idle connections to a database."""
    _engine(database).dispose()


def forget_connections() -> None:
    """Drop all pooled connections of this process; tests call it after they have killed a server."""
    with _turn:
        _engines.clear()


@contextmanager
def transaction(database: Database) -> Iterator[Connection]:
    """Yield one transaction: commit when the block ends, roll back if it raises.

    Raise DatabaseAway if the connection broke before COMMIT, and CommitStateUnknown if it broke at COMMIT. Raise
    Refused if the server has answered COMMIT with an error: a deferred constraint or trigger.
    """
    try:
        connection = _engine(database).connect()
    except OperationalError as error:
        raise is_not_let_in(database.url, error) or database_away(error, database.url) from error
    with connection:
        begun = connection.begin()
        try:
            if by_transaction(database):
                connection.exec_driver_sql(OF_TRANSACTION, (database.name[:NAME],))
            yield connection
        except DBAPIError as error:
            _roll_back(connection, begun)
            if is_away(error):
                raise database_away(error) from error
            if not database.only_reads and (refusal := takes_no_writes(connection, error)):
                raise refusal from error
            raise
        except psycopg2.OperationalError as error:
            if error.pgcode and not error.pgcode.startswith(AWAY):
                _roll_back(connection, begun)
                raise  # the server has answered: a row that is too large, for example
            connection.invalidate()
            raise database_away(error) from error
        except BaseException:
            _roll_back(connection, begun)
            raise
        try:
            begun.commit()
        except (DBAPIError, psycopg2.Error) as error:
            connection.invalidate()
            if is_answer(error):
                raise Refused(
                    f"the database has refused to commit: {first_line(error)}",
                    data="the transaction was rolled back; nothing of it is stored",
                    hint="correct the rows that the constraint or trigger rejects, or change the constraint or "
                    "trigger; then run the same command again",
                ) from error
            raise CommitStateUnknown(
                f"the database's answer to a COMMIT was lost: {first_line(error)}",
                data="the transaction is either whole in the log or not in it at all",
                hint="the platform reads the log and decides; if this error reaches you, run the same command again",
            ) from error


class Session:
    """A session that one holder keeps, for a lock that lasts as long as the session.

    Each statement is a transaction. After a broken session the next statement opens a new one.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._engine: Engine | None = None
        self._connection: Connection | None = None

    def ask(self, work: Callable[[Connection], T]) -> T:
        """Run a statement in the session, and open the session if there is none. Raise DatabaseAway."""
        try:
            if self._connection is None:
                # An engine of its own: the shared ones are disposed when they were not used for long.
                self._engine = _new_engine(self._database)
                self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            return work(self._connection)
        except BaseException as error:  # even an interrupt: the answer may still be on its way
            self.close()
            if isinstance(error, DBAPIError):
                raise database_away(error) from error
            raise

    def close(self) -> None:
        """End the session."""
        if self._engine is not None:
            self._engine.dispose()
            if self._connection is not None:
                self._connection.invalidate()
                self._connection.close()
        self._engine, self._connection = None, None


def run(database: Database, work: Callable[[Connection], T]) -> T:
    """Do `work` in one transaction, and again while the database is down or unreachable, for a bounded time.

    `work` must find out by itself what an earlier attempt has committed: a lost answer is followed by another attempt.
    Raise DatabaseAway (exit code 75) when the patience ends, after a minute by default. Any other error of `work` ends
    it immediately.
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
    """Make a transaction that has asked nothing yet read-only, with one snapshot."""
    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def ask(connection: Connection, file: str, query: str, /, **parameters: Any) -> list[Row[Any]]:
    """Return the rows of a named query."""
    return list(connection.execute(_named(connection, file, query), parameters))


def do(connection: Connection, file: str, query: str, /, **parameters: Any) -> int:
    """Run a named statement, and return the number of rows that it touched."""
    return connection.execute(_named(connection, file, query), parameters).rowcount


def do_many(connection: Connection, file: str, query: str, rows: list[dict[str, Any]]) -> None:
    """Run a named statement for many rows, in few round trips."""
    if rows:
        connection.execute(text(queries(file)[query]), rows)


def _named(connection: Connection, file: str, query: str) -> TextClause:
    """Return a named query, in the dialect of the connected database."""
    return text(queries(f"{mysql.DIALECT}/{file}" if connection.dialect.name == mysql.DIALECT else file)[query])


def _roll_back(connection: Connection, begun: RootTransaction) -> None:
    # On a session that has ended there is nothing to roll back, and that error would hide the first one.
    try:
        begun.rollback()
    except DBAPIError:
        connection.invalidate()


SHORT_SECONDS = 10
"""A patience below this is of a command that a person waits for."""


def _say_again(state: RetryCallState) -> None:
    seconds = settings.database_patience()
    if seconds < SHORT_SECONDS:  # the answer says it
        return
    # A warning is shown to a person, who needs it once. The log has every attempt.
    problem = state.outcome.exception() if state.outcome else None
    say = log.warning if state.attempt_number == 1 else log.info
    patience = f"trying again for {seconds:.0f} s"
    say("the database is away", what=f"{first_line(problem or Exception())}; {patience}", attempt=state.attempt_number)


# Statements by concern: a class for each, whose public methods are one transaction.
#
# Over a database a method runs in its own transaction, and again while the database is unreachable (`run`). Over a
# connection it is a part of that connection's transaction, so methods can be composed of others.


Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Scope = Database | Connection
"""Where methods run: each in its own transaction, or all within an open one."""
Concern = TypeVar("Concern", bound="Transactions")


class Transactions:
    """The transactions of one concern, in a database or within an open transaction."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @classmethod
    @contextmanager
    def once(cls, database: Database) -> Iterator[Self]:
        """Yield the concern in one transaction that the caller composes, and that is not retried."""
        with transaction(database) as connection:
            yield cls(connection)

    @classmethod
    @contextmanager
    def at_one_moment(cls, database: Database) -> Iterator[Self]:
        """Yield the concern in one read-only transaction with one snapshot."""
        with cls.once(database) as found:
            snapshot(found.connection)
            yield found

    @property
    def connection(self) -> Connection:
        """The open transaction."""
        assert isinstance(self.scope, Connection), "a method with statements must be @one_transaction"
        return self.scope


def one_transaction(
    work: Callable[Concatenate[Concern, Asked], Answer],
) -> Callable[Concatenate[Concern, Asked], Answer]:
    """Make a method one transaction, or a part of the open one."""

    @wraps(work)
    def whole(self: Concern, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        if isinstance(self.scope, Connection):
            return work(self, *args, **kwargs)
        return run(self.scope, lambda connection: work(type(self)(connection), *args, **kwargs))

    return whole


# The database sessions of Spark's tasks: few at once in an executor, each under the name of its unit and attempt, none
# left idle.
#
# A cluster has hundreds of tasks, and a PostgreSQL has room for a few hundred sessions. So the tasks of an executor
# share a number of slots. A slot is a lock on a file below the executor's own local folder: the system frees it when
# its process ends, however it ends. Slots are not fair. Only a pooler bounds all executors together
# (docs/how-to/cluster.md).


SLOTS = "onlyonce-sessions"


@contextmanager
def held_session(database: Database, work: str, folder: Path) -> Iterator[Database]:
    """Yield the database as one task reaches it.

    `work` is added to the session's name: the unit and the attempt.
    """
    here = replace(
        database, url=database.pooler or database.url, name=stored_names.task_session(database.name, work), of_task=True
    )
    if not by_transaction(here):
        here = replace(here, name=database.name)  # MySQL finds the sessions of an old driver by this name alone
    with _slot(folder / SLOTS, database.at_once):
        try:
            yield here
        finally:
            end_sessions(here)


@contextmanager
def _slot(folder: Path, count: int) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    first = os.getpid() % count  # each process tries another slot first, so that those that wait are spread
    numbers = [*range(first, count), *range(first)]
    files = [os.open(folder / str(number), os.O_RDWR | os.O_CREAT, 0o600) for number in numbers]
    try:
        if not any(map(_taken, files)):
            fcntl.flock(files[0], fcntl.LOCK_EX)
        yield
    finally:
        for file in files:
            os.close(file)


def _taken(file: int) -> bool:
    """Return whether this process got the lock now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
