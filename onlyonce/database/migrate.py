"""Applies the numbered SQL files, each once, under a lock and with checksums; then the views, if they have changed.

Called by `onlyonce up`, by each run, and by a Postgres or MySQL sink for the database that it writes to.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from sqlalchemy import Connection, text

from onlyonce.database import mysql
from onlyonce.database.connect import Database, run
from onlyonce.database.statements import FOLDER
from onlyonce.model.errors import Refused

VIEWS = "inspect"
LOCK = 0x0_0E_0CE
JOURNAL = """
CREATE SCHEMA IF NOT EXISTS onlyonce_private;
CREATE TABLE IF NOT EXISTS onlyonce_private.migrations (
    name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())
"""

MYSQL_JOURNAL = """
CREATE TABLE IF NOT EXISTS onlyonce_migrations (
    name VARCHAR(255) NOT NULL, checksum CHAR(64) NOT NULL, applied_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    CONSTRAINT onlyonce_migrations_once PRIMARY KEY (name)) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""


class Migration(NamedTuple):
    """A file of SQL, by the name under which the journal keeps it."""

    name: str
    script: str

    @property
    def checksum(self) -> str:
        """Of the file as it is now."""
        return hashlib.sha256(self.script.encode()).hexdigest()


def migrate(url: str) -> list[str]:
    """Bring the platform's database to this version; gives the names of what was applied.

    Raises Refused when a file that was applied has been changed since, or when the database is newer.
    """
    return run(Database(url, "onlyonce/migrate"), lambda conn: _apply(conn, ["authority", "platform"], views=True))


def migrate_authority(url: str) -> list[str]:
    """Bring the epochs and units to a sink's own database."""
    there = Database(url, "onlyonce/migrate")
    if mysql.is_mysql(url):
        return run(there, _apply_mysql)
    return run(there, lambda conn: _apply(conn, ["authority"], views=False))


def missing(connection: Connection) -> list[str]:
    """The names of what `migrate` would apply to the platform's database; changes nothing. Raises Refused like it."""
    if connection.execute(text("SELECT to_regclass('onlyonce_private.migrations')")).scalar() is None:
        return ["all"]
    known, found = _journal(connection, ["authority", "platform"])
    return [one.name for one in found if _is_new(one, known)] + ([VIEWS] if _views_changed(known) else [])


def _apply(connection: Connection, folders: list[str], *, views: bool) -> list[str]:
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    _script(connection, JOURNAL)
    known, found = _journal(connection, folders)
    applied = [one.name for one in found if _apply_one(connection, one, known)]
    if views and _views_changed(known):
        _script(connection, _views().script)
        _note(connection, _views())
        applied.append(VIEWS)
    return applied


def _apply_mysql(connection: Connection) -> list[str]:
    """The same there, where each CREATE TABLE commits by itself: so each of its statements may run again."""
    mysql.refuse_old(connection)
    connection.exec_driver_sql("SELECT GET_LOCK(CONCAT('onlyonce/', LEFT(SHA2(DATABASE(), 256), 40)), 60)")
    connection.exec_driver_sql(MYSQL_JOURNAL)
    known = {row.name: row.checksum for row in connection.exec_driver_sql("SELECT name, checksum FROM onlyonce_migrations")}
    found = migrations(mysql.DIALECT)
    _refuse_newer(set(known), {one.name for one in found})
    new = [one for one in found if _is_new(one, known)]
    for one in new:
        for statement in filter(str.strip, one.script.split(";\n")):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(
            "INSERT INTO onlyonce_migrations (name, checksum) VALUES (%s, %s)", (one.name, one.checksum)
        )
    connection.exec_driver_sql("DO RELEASE_LOCK(CONCAT('onlyonce/', LEFT(SHA2(DATABASE(), 256), 40)))")
    return [one.name for one in new]


def _journal(connection: Connection, folders: list[str]) -> tuple[dict[str, str], list[Migration]]:
    """What was applied, by its checksum, and the files that are to be. Raises Refused for a database that is newer."""
    journal = connection.execute(text("SELECT name, checksum FROM onlyonce_private.migrations"))
    known = {row.name: row.checksum for row in journal}
    found = [one for folder in folders for one in migrations(folder)]
    _refuse_newer({name for name in known if name.split("/")[0] in folders}, {one.name for one in found})
    return known, found


def migrations(folder: str) -> list[Migration]:
    """The numbered files of one folder, in their order."""
    found = (path for path in (FOLDER / "migrations" / folder).iterdir() if path.name.endswith(".sql"))
    return sorted(Migration(f"{folder}/{path.name.removesuffix('.sql')}", path.read_text()) for path in found)


def _views() -> Migration:
    return Migration(VIEWS, (FOLDER / f"{VIEWS}.sql").read_text())


def _views_changed(known: dict[str, str]) -> bool:
    return known.get(VIEWS) != _views().checksum


def _apply_one(connection: Connection, one: Migration, known: dict[str, str]) -> bool:
    new = _is_new(one, known)
    if new:
        _script(connection, one.script)
        _note(connection, one)
    return new


def _is_new(one: Migration, known: dict[str, str]) -> bool:
    if one.name in known and known[one.name] != one.checksum:
        raise Refused(
            f"migration {one.name} was applied in another version of the file",
            data="nothing was changed",
            hint="put the file back as it was, and make the change in a new numbered file",
        )
    return one.name not in known


def _refuse_newer(known: set[str], here: set[str]) -> None:
    if newer := sorted(known - here):
        raise Refused(
            f"the database has migrations that this version does not know: {', '.join(newer)}",
            data="nothing was changed",
            hint="a newer onlyonce has run here; use that version",
        )


def _note(connection: Connection, one: Migration) -> None:
    statement = """
        INSERT INTO onlyonce_private.migrations (name, checksum) VALUES (:name, :checksum)
        ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, applied_at = clock_timestamp()"""
    connection.execute(text(statement), {"name": one.name, "checksum": one.checksum})


def _script(connection: Connection, script: str) -> None:
    connection.execution_options(no_parameters=True).exec_driver_sql(script)
