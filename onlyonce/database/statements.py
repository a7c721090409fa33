"""Named queries, the views, and the format of what is stored.

A file `sql/statements/<name>.sql` holds queries, each under a line `-- query_name --`. `queries("units")["claim"]` is
one; the comment below the name says what it is for. Parameters are SQLAlchemy's (`:incarnation`). In a wheel the files
are data of the package; they can be read from a zip.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection

from onlyonce import settings
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused

_PACKED = files("onlyonce") / "sql"
FOLDER: Traversable = _PACKED if _PACKED.is_dir() else Path(__file__).parents[2] / "sql"
"""The wheel puts the folder into the package; in a checkout it is next to the package."""
_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def queries(name: str) -> dict[str, str]:
    """Return the queries of one file, by name. Raise FileNotFoundError."""
    parts = _NAME.split((FOLDER / "statements" / f"{name}.sql").read_text())
    return dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))


def views(folder: Traversable = FOLDER) -> str:
    """Return the script that makes all views.

    It joins the files of `views/` in the order of their names, since views read earlier ones.
    """
    files = sorted((folder / "views").iterdir(), key=lambda file: file.name)
    return "\n".join(file.read_text() for file in files)


# The format of what onlyonce stores. The platform's database, each sink's own database and the home folder each hold
# it.
#
# A database or home of another format is refused, never converted. Views are not part of the format: they only grow.


FORMAT = "1"
"""The format of this version. A test holds a hash of what it describes: sql/migrations."""
OLD = "the migrations of a version before formats"
NO_FILE = "none (it has data, and no file named format)"
BOTH = " and "
"""Between the formats of a database whose parts have different ones."""
STATE = ("data", "postgres")
"""Folders of a home that are made only after the format. Input, results and logs may be made earlier."""

_TABLES = """
    SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('onlyonce', 'onlyonce_private') AND c.relname IN ('formats', 'migrations')
"""


@cache
def baseline_format(part: str) -> str:
    """Return the SQL that makes the tables of one part."""
    return (FOLDER / "migrations" / f"{part}.sql").read_text()


def refuse_other_format(found: str | None, where: str) -> None:
    """Raise Refused if something was made in another format. None: it is new."""
    if found in (None, FORMAT):
        return
    raise Refused(
        f"{where} has the format {found}, and this version needs {FORMAT}",
        data="nothing was changed; result tables stay readable, as the plain Delta and PostgreSQL tables that they are",
        hint="a newer onlyonce made it: install that version or a later one, and all of it is as you left it "
        "(docs/how-to/start-over.md)"
        if _is_newer(found)
        else "use the version that made it, or start over with a new ONLYONCE_HOME, a new database and the old "
        "result tables renamed (docs/how-to/start-over.md)",
    )


def _is_newer(found: str) -> bool:
    """Return whether a later version made it. A database may have parts of several formats: `1 and 2`."""
    return any(part.isdecimal() and int(part) > int(FORMAT) for part in found.split(BOTH))


def format_of_database(connection: Connection) -> str | None:
    """Return the format of a PostgreSQL database, as the writer or the reader sees it; None for a new one."""
    return format_of_session(connection.connection.cursor())


def refuse_unused(connection: Connection) -> None:
    """Raise Refused if a PostgreSQL database has no tables of a platform yet, so there is nothing to read."""
    if format_of_database(connection) is None:
        raise Refused(
            "no run has used this database yet",
            data="nothing was read",
            hint="start a run (onlyonce run PIPELINE, or its DAG): the first one makes the tables and the views",
        )


def format_of_session(cursor: Any) -> str | None:
    """Return the format of a PostgreSQL database, by a cursor of the driver; None for a new one."""
    cursor.execute(_TABLES)
    names = {name for (name,) in cursor.fetchall()}
    if "onlyonce_private.formats" not in names:
        return OLD if "onlyonce_private.migrations" in names else None
    # The reader has no access to private tables, and a sink's own database has no views.
    schema = stored_names.VIEWS_SCHEMA if "onlyonce.formats" in names else stored_names.PRIVATE_SCHEMA
    return _stored(cursor, f"{schema}.formats")


def format_of_mysql_session(cursor: Any) -> str | None:
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
    """Return the formats that a table of formats has. Its name is one of ours."""
    cursor.execute(f"SELECT DISTINCT format FROM {table} ORDER BY format")
    return BOTH.join(found for (found,) in cursor.fetchall()) or None


def of_home(home: Path) -> str | None:
    """Return the format of a home folder; None for a new one. Raise Refused if the home is a file.

    It looks for data first: another process that makes the home just now writes its format before any data.
    """
    has_data = any((home / name).exists() for name in STATE)
    try:
        return (home / stored_names.FORMAT_FILE).read_text().strip()
    except FileNotFoundError:
        return NO_FILE if has_data else None
    except NotADirectoryError as error:
        raise Refused(
            f"the platform's home {home} is a file",
            data="nothing was read or written",
            hint="let ONLYONCE_HOME name a folder",
        ) from error


def check_home() -> None:
    """Raise Refused if the home was made in another format."""
    home = settings.home()
    refuse_other_format(of_home(home), f"the home {home}")


def make_home() -> None:
    """Write the format into a new home, and make its private folders. Raise Refused if it has another format."""
    check_home()
    home = settings.home()
    if not (home / stored_names.FORMAT_FILE).exists():
        settings.make_folder(home, ())
        whole = home / f".format-{uuid4().hex}"
        whole.write_text(FORMAT + "\n")
        whole.replace(home / stored_names.FORMAT_FILE)
    settings.make_folder(home)  # after the format: a home with data and without a format is refused
