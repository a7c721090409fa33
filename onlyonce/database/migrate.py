"""Makes the tables of a new database, once and under a lock; then the views, if they have changed.

`onlyonce up` and each run call it, and a Postgres or MySQL sink for the database that it writes to. A database of
another format is refused (`statements.refuse_other_format`).

The tables are made in parts, each once: `authority` (epochs and units), `platform` (the log), `mysql` (the epochs and
units of a MySQL sink). The views are made again if their files have changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from onlyonce.core.errors import Refused, Retryable
from onlyonce.database import mysql, statements
from onlyonce.database.connect import Database, ask, run
from onlyonce.database.statements import FOLDER, views

VIEWS = "views"
OTHER_COLUMNS = "42P16"
"""The SQLSTATE of a CREATE OR REPLACE VIEW that drops, renames or retypes a column."""
FIRST_AT_ONCE = frozenset({"23505", "42P06", "42P07", "42710"})
"""SQLSTATEs of a CREATE … IF NOT EXISTS if another transaction has made the object meanwhile: unique_violation,
duplicate schema, table or object.
"""
FORMATS = """
CREATE SCHEMA IF NOT EXISTS onlyonce_private;
CREATE TABLE IF NOT EXISTS onlyonce_private.formats (
    part text NOT NULL, format text NOT NULL, made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT formats_one_for_each_part PRIMARY KEY (part));
COMMENT ON TABLE onlyonce_private.formats IS
    'The format of each part of this database: authority (epochs and units), platform (the log). Others are refused.';
CREATE TABLE IF NOT EXISTS onlyonce_private.views_made (
    one boolean NOT NULL DEFAULT true, checksum text NOT NULL,
    CONSTRAINT views_made_once PRIMARY KEY (one), CONSTRAINT views_made_one_is_true CHECK (one));
COMMENT ON TABLE onlyonce_private.views_made IS
    'The checksum of the files that made the views: they follow them, and are no part of the format.'
"""

MYSQL_FORMATS = """
CREATE TABLE IF NOT EXISTS onlyonce_formats (
    part VARCHAR(64) NOT NULL, format VARCHAR(255) NOT NULL, made_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    CONSTRAINT onlyonce_formats_one_for_each_part PRIMARY KEY (part))
    ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""

MYSQL_LOCK = "CONCAT('onlyonce/', LEFT(SHA2(DATABASE(), 256), 40))"
MYSQL_LOCK_SECONDS = 60


def migrate(url: str) -> list[str]:
    """Make the tables and views of the platform's database, and write the format into a new home (ONLYONCE_HOME).

    Return the names of the parts made. Raise Refused if the database or the home has another format.
    """
    statements.check_home()
    made = run(Database(url, "onlyonce/migrate"), lambda conn: _apply(conn, ["authority", "platform"], with_views=True))
    statements.make_home()
    return made


def migrate_authority(url: str) -> list[str]:
    """Make the tables for epochs and units in a sink's own database. Return the names of the parts made."""
    database = Database(url, "onlyonce/migrate")
    if mysql.is_mysql(url):
        return run(database, _apply_mysql)
    return run(database, lambda conn: _apply(conn, ["authority"], with_views=False))


def missing(connection: Connection) -> list[str]:
    """Return the names of the parts that `migrate` would make in the platform's database."""
    if statements.format_of_database(connection) is None:
        return ["authority", "platform", VIEWS]
    made = _made(connection)
    return [part for part in ("authority", "platform") if part not in made] + (
        [VIEWS] if _views_changed(connection) else []
    )


def _apply(connection: Connection, parts: list[str], *, with_views: bool) -> list[str]:
    statements.refuse_other_format(statements.format_of_database(connection), "the database")
    _make_formats(connection)
    _lock_formats(connection)
    statements.refuse_other_format(statements.format_of_database(connection), "the database")  # made in between
    made = _made(connection)
    new = [part for part in parts if part not in made]
    for part in new:
        _script(connection, statements.baseline_format(part))
        note = text("INSERT INTO onlyonce_private.formats (part, format) VALUES (:part, :format)")
        connection.execute(note, {"part": part, "format": statements.FORMAT})
    if with_views and _views_changed(connection):
        _replace_views(connection)
        note = text(
            "INSERT INTO onlyonce_private.views_made (checksum) VALUES (:checksum) "
            "ON CONFLICT (one) DO UPDATE SET checksum = excluded.checksum"
        )
        connection.execute(note, {"checksum": _checksum(_views())})
        new.append(VIEWS)
    return new


def _make_formats(connection: Connection) -> None:
    """Make the tables that say what is made, if they are missing. `_lock_formats` needs the first of them."""
    try:
        with connection.begin_nested():
            _script(connection, FORMATS)
    except DBAPIError as error:
        if getattr(error.orig, "pgcode", None) not in FIRST_AT_ONCE:
            raise
        _script(connection, FORMATS)  # the other session has committed them


def _lock_formats(connection: Connection) -> None:
    """Let no other session make tables of ours until the transaction ends."""
    connection.exec_driver_sql("LOCK TABLE onlyonce_private.formats IN SHARE ROW EXCLUSIVE MODE")


def _apply_mysql(connection: Connection) -> list[str]:
    """Make the tables in MySQL. Each CREATE TABLE commits by itself, so each statement may run again after a kill."""
    mysql.refuse_old(connection)
    if not connection.exec_driver_sql(f"SELECT GET_LOCK({MYSQL_LOCK}, %s)", (MYSQL_LOCK_SECONDS,)).scalar():
        raise Retryable(
            f"another session has been making tables in the sink's MySQL database for more than {MYSQL_LOCK_SECONDS} s",
            data="nothing was read or written",
            hint="run the same command again when it has ended; SHOW PROCESSLIST in that database names it",
        )
    try:
        connection.exec_driver_sql(MYSQL_FORMATS)
        found = connection.exec_driver_sql("SELECT format FROM onlyonce_formats").scalar()
        statements.refuse_other_format(found, "the sink's database")  # made since the session has checked the format
        if found is not None:
            return []
        for statement in filter(str.strip, statements.baseline_format(mysql.DIALECT).split(";\n")):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(
            "INSERT INTO onlyonce_formats (part, format) VALUES (%s, %s)", (mysql.DIALECT, statements.FORMAT)
        )
        return [mysql.DIALECT]
    finally:
        connection.exec_driver_sql(f"DO RELEASE_LOCK({MYSQL_LOCK})")


def _made(connection: Connection) -> set[str]:
    return set(connection.execute(text("SELECT part FROM onlyonce_private.formats")).scalars())


def _replace_views(connection: Connection) -> None:
    """Replace each view in place.

    If PostgreSQL can't replace a view in place, make all views again, unless something else depends on a view of ours.
    """
    pieces = list(_cut_before_views(_views()))
    for view, piece in pieces:
        try:
            with connection.begin_nested():
                _script(connection, piece)
        except DBAPIError as error:
            if view is None or getattr(error.orig, "pgcode", None) != OTHER_COLUMNS:
                raise
            _refuse_dependents(connection, view, [name for name, _ in pieces if name])
            # Our own views on it are dropped too, so all are made again.
            _script(
                connection, "".join(f"DROP VIEW IF EXISTS {name} CASCADE;" for name, _ in pieces if name) + _views()
            )
            return


def _cut_before_views(script: str) -> Iterator[tuple[str | None, str]]:
    """Cut the script before each view; yield each piece with its view's name, or None before the first."""
    for piece in re.split(r"^(?=CREATE OR REPLACE VIEW )", script, flags=re.MULTILINE):
        found = re.match(r"CREATE OR REPLACE VIEW (\S+)", piece)
        yield (found[1] if found else None), piece


def _refuse_dependents(connection: Connection, view: str, ours: list[str]) -> None:
    lost = [f"{row.dependent} ({name})" for name in ours for row in ask(connection, "dependents", "of_view", view=name)]
    if lost:
        raise Refused(
            f"the view {view} of this version has other columns than the database's, and these depend on our "
            f"views: {', '.join(lost)}",
            data="nothing was changed: the view would be dropped, and these with it",
            hint="keep the definitions of these views and grants, drop or revoke them, run the same command "
            "again, then make them again",
        )


def _views() -> str:
    return views(FOLDER)


def _checksum(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()


def _views_changed(connection: Connection) -> bool:
    made = connection.execute(text("SELECT checksum FROM onlyonce_private.views_made")).scalar()
    return made != _checksum(_views())


def _script(connection: Connection, script: str) -> None:
    """Run several statements as they are written: a % in them is not a placeholder."""
    connection.execution_options(no_parameters=True).exec_driver_sql(script)
