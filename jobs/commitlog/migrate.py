"""Numbered SQL, applied once each, under a lock, with checksums; then the views, when they have changed.

Called by `onlyonce up`, by each run, and by a Postgres sink for the database that it writes to.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sqlalchemy import Connection, text

from jobs.commitlog.connect import Database, run
from jobs.model.errors import Refused
from sql import FOLDER

LOCK = 0x0_0E_0CE
JOURNAL = """
CREATE SCHEMA IF NOT EXISTS onlyonce_private;
CREATE TABLE IF NOT EXISTS onlyonce_private.migrations (
    name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())
"""


def migrate(url: str) -> list[str]:
    """Bring the platform's database to this version; gives the names of what was applied.

    Raises Refused when a file that was applied has been changed since, or when the database is newer.
    """
    return run(Database(url, "onlyonce/migrate"), lambda conn: _apply(conn, ["authority", "platform"], views=True))


def migrate_authority(url: str) -> list[str]:
    """Bring the epochs and units to a sink's own database."""
    return run(Database(url, "onlyonce/migrate"), lambda conn: _apply(conn, ["authority"], views=False))


def missing(connection: Connection) -> list[str]:
    """The names of what `migrate` would apply to the platform's database; changes nothing. Raises Refused like it."""
    if connection.execute(text("SELECT to_regclass('onlyonce_private.migrations')")).scalar() is None:
        return ["all"]
    known, files = _journal(connection, ["authority", "platform"])
    return [_name(path) for path in files if _is_new(path, known)] + (["inspect"] if _views_changed(known) else [])


def _apply(connection: Connection, folders: list[str], *, views: bool) -> list[str]:
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    _script(connection, JOURNAL)
    known, files = _journal(connection, folders)
    applied = [_name(path) for path in files if _apply_file(connection, path, known)]
    if views and _views_changed(known):
        _script(connection, (FOLDER / "inspect.sql").read_text())
        _note(connection, "inspect", _checksum(FOLDER / "inspect.sql"))
        applied.append("inspect")
    return applied


def _journal(connection: Connection, folders: list[str]) -> tuple[dict[str, str], list[Path]]:
    """What was applied, by its checksum, and the files that are to be. Raises Refused for a database that is newer."""
    journal = connection.execute(text("SELECT name, checksum FROM onlyonce_private.migrations"))
    known = {row.name: row.checksum for row in journal}
    files = [path for folder in folders for path in sorted((FOLDER / "migrations" / folder).glob("*.sql"))]
    _refuse_newer({name for name in known if name.split("/")[0] in folders}, {_name(path) for path in files})
    return known, files


def _views_changed(known: dict[str, str]) -> bool:
    return known.get("inspect") != _checksum(FOLDER / "inspect.sql")


def _apply_file(connection: Connection, path: Path, known: dict[str, str]) -> bool:
    new = _is_new(path, known)
    if new:
        _script(connection, path.read_text())
        _note(connection, _name(path), _checksum(path))
    return new


def _is_new(path: Path, known: dict[str, str]) -> bool:
    name = _name(path)
    if name in known and known[name] != _checksum(path):
        raise Refused(
            f"migration {name} was applied in another version of the file",
            data="nothing was changed",
            hint="put the file back as it was, and make the change in a new numbered file",
        )
    return name not in known


def _refuse_newer(known: set[str], here: set[str]) -> None:
    if newer := sorted(known - here):
        raise Refused(
            f"the database has migrations that this version does not know: {', '.join(newer)}",
            data="nothing was changed",
            hint="a newer onlyonce has run here; use that version",
        )


def _note(connection: Connection, name: str, checksum: str) -> None:
    statement = """
        INSERT INTO onlyonce_private.migrations (name, checksum) VALUES (:name, :checksum)
        ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, applied_at = clock_timestamp()"""
    connection.execute(text(statement), {"name": name, "checksum": checksum})


def _script(connection: Connection, script: str) -> None:
    connection.execution_options(no_parameters=True).exec_driver_sql(script)


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
