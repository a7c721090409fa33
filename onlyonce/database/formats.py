"""The format of what onlyonce stores: the platform's database, each sink's own database and the home folder each hold
it.

A format has no past: another one is refused, never converted. Views are not part of it.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection

from onlyonce import settings
from onlyonce.database.statements import FOLDER
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.settings import home_folders

BASELINES = ("authority", "platform", "mysql")
STORED_NAMES = "stored_names.txt"
"""The names outside the databases that a stored byte depends on. A test compares them with the code."""
OLD = "the migrations of a version before formats"
NO_FILE = "none (it has data, and no file named format)"
STATE = ("data", "postgres")
"""The folders of a home that nothing makes before the format is there. Input, results and logs may come earlier."""

_TABLES = """
    SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('onlyonce', 'onlyonce_private') AND c.relname IN ('formats', 'migrations')
"""


@cache
def baseline(part: str) -> str:
    """Return the SQL that makes the tables of one part."""
    return (FOLDER / "migrations" / f"{part}.sql").read_text()


@cache
def needed() -> str:
    """Return the format of this version. Until the first release it is a hash of all that it describes."""
    return "dev-" + described(FOLDER / "migrations")


def described(folder: Traversable) -> str:
    """Hash the baselines and the stored names of a folder."""
    files = [*(f"{part}.sql" for part in BASELINES), STORED_NAMES]
    return hashlib.sha256("\0".join((folder / name).read_text() for name in files).encode()).hexdigest()[:8]


def refuse_other(found: str | None, where: str) -> None:
    """Raise Refused if something was made in another format. None: it is new."""
    if found in (None, needed()):
        return
    raise Refused(
        f"{where} has the format {found}, and this version needs {needed()}",
        data="nothing was changed; result tables stay readable, as the plain Delta and PostgreSQL tables that they are",
        hint="use the version that made it, or start over with a new ONLYONCE_HOME, a new database and the old "
        "result tables renamed "
        "(docs/how-to/start-over.md)",
    )


def of_database(connection: Connection) -> str | None:
    """Return the format of a PostgreSQL database, as the writer or the reader sees it; None for a new one."""
    return of_session(connection.connection.cursor())


def of_session(cursor: Any) -> str | None:
    """Do the same by a cursor of the driver."""
    cursor.execute(_TABLES)
    names = {name for (name,) in cursor.fetchall()}
    if "onlyonce_private.formats" not in names:
        return OLD if "onlyonce_private.migrations" in names else None
    # The reader has no access to private tables, and a sink's own database has no views.
    schema = stored_names.VIEWS_SCHEMA if "onlyonce.formats" in names else stored_names.PRIVATE_SCHEMA
    return _stored(cursor, f"{schema}.formats")


def of_mysql_session(cursor: Any) -> str | None:
    """Return the format of a MySQL sink's database, by a cursor of its driver; None for a new one."""
    cursor.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN "
        "('onlyonce_formats', 'onlyonce_migrations')"
    )
    names = {name for (name,) in cursor.fetchall()}
    if "onlyonce_formats" not in names:
        return OLD if "onlyonce_migrations" in names else None
    return _stored(cursor, "onlyonce_formats")


def _stored(cursor: Any, table: str) -> str | None:
    """Return what a table of formats has; its name is one of ours."""
    cursor.execute(f"SELECT DISTINCT format FROM {table} ORDER BY format")
    return " and ".join(found for (found,) in cursor.fetchall()) or None


def of_home(home: Path) -> str | None:
    """Return the format of a home folder; None for a new one."""
    try:
        return (home / stored_names.FORMAT_FILE).read_text().strip()
    except FileNotFoundError:
        return NO_FILE if any((home / name).exists() for name in STATE) else None


def check_home() -> None:
    """Raise Refused if the home was made in another format."""
    home = settings.home()
    refuse_other(of_home(home), f"the home {home}")


def make_home() -> None:
    """Let a new home hold the format, and its private folders. Raises Refused if it was made in another one."""
    check_home()
    home = settings.home()
    if not (home / stored_names.FORMAT_FILE).exists():
        home_folders.make(home, ())
        whole = home / f".format-{uuid4().hex}"
        whole.write_text(needed() + "\n")
        whole.replace(home / stored_names.FORMAT_FILE)
    home_folders.make(home)  # after the format: a home with data and without it is refused
