"""A Delta table as a lookup: its newest version, and the table as of a version.

VACUUM removes the files of old versions after a week, or after the time that it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import DataFrame, SparkSession

from onlyonce import settings
from onlyonce.api.declaration import declared_at
from onlyonce.api.joins_and_state import Lookup
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, is_url, location
from onlyonce.core.near_names import choose, near
from onlyonce.lookups.seen import Version, gone
from onlyonce.tables import opening, stores


def folder(lookup: Lookup) -> Location:
    """Return where the table is. A relative path is below <home>/tables, as in a sink."""
    return settings.table_location(lookup.table.target("").partition(":")[2])


def newest(lookup: Lookup) -> Version:
    """Return the version that the table has now. Raise Refused if there is no table."""
    path = folder(lookup)
    try:
        table = opening.table(path)
    except TableNotFoundError as error:
        raise Refused(
            f"{declared_at(lookup)}lookup {lookup.name}: no Delta table is at {path}{_no_log(path)}",
            data="nothing was read or written",
            hint=_how_to_make(lookup.table.target("").partition(":")[2], path),
        ) from error
    return {stored_names.LOOKUP_VERSION: table.version(), stored_names.LOOKUP_TABLE: str(table.metadata().id)}


def _no_log(path: Location) -> str:
    """Return that a folder is there, if it is one with other files."""
    is_other = isinstance(path, Path) and any(stores.of(path).names(path))
    return ": the folder is there, and has no _delta_log" if is_other else ""


ALIKE = 0.75
"""The similarity, from 0 to 1, from which another table is proposed: tables of one pipeline begin alike."""
MOST_TABLES = 10
"""How many tables an error lists if no name among them is near."""


def _how_to_make(declared: str, path: Location) -> str:
    """Return the hint for a table that does not exist: the tables near its place, and what makes one."""
    is_absolute = declared.startswith("/")
    base = path.parent if is_absolute else settings.table_location("")
    found: list[str] = []
    if isinstance(base, Path):  # the listing of an object store takes long
        there = _tables_below(base, 1 if is_absolute else 2)
        found = sorted(str(table if is_absolute else table.relative_to(base)) for table in there)
    is_short = 0 < len(found) <= MOST_TABLES or near(declared, found, ALIKE)
    first = f"{choose(declared, found, ALIKE)}. Or make it" if is_short else "make the table first"
    return (
        f"{first}: a pipeline with sink=Delta(path={declared!r}) does, or Spark: "
        f"df.write.format('delta').save('{path}')"
        + ("" if is_absolute or is_url(declared) else f". A relative path is below {base}")
    )


def _tables_below(folder: Path, depth: int) -> Iterator[Path]:
    with suppress(OSError):
        for name in stores.of(folder).names(folder):
            with suppress(OSError):  # a folder that may not be read
                if opening.any_in(folder / name):
                    yield folder / name
                elif depth > 1:
                    yield from _tables_below(folder / name, depth - 1)


BY_AGE = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
"""Delta refuses a version that was committed more than a week ago, even if it was the newest until a moment ago.

Here `refuse_gone` checks that the files of a version exist, so its age does not matter.
"""


def frame(spark: SparkSession, lookup: Lookup, version: Version) -> DataFrame:
    """Return the table as of a version, however old its commit is. Nothing is read yet."""
    spark.conf.set(BY_AGE, "false")
    return (
        spark.read.format("delta").option("versionAsOf", version[stored_names.LOOKUP_VERSION]).load(str(folder(lookup)))
    )


def refuse_gone(lookup: Lookup, version: Version) -> None:
    """Raise Refused if the table can't be read as of a version that the log names."""
    path, number = folder(lookup), version[stored_names.LOOKUP_VERSION]
    now = newest(lookup)
    if now[stored_names.LOOKUP_TABLE] != version[stored_names.LOOKUP_TABLE]:
        raise gone(lookup, version, f"the table at {path} was made again since, as another one")
    try:
        files = opening.table(path, version=number).file_uris()
    except DeltaError as error:
        raise gone(lookup, version, f"the table's log does not have it any more ({str(error)[:200]})") from error
    if missing := [file for file in files if stores.of(path).look(location(file)) is None]:
        raise gone(
            lookup, version, f"{len(missing)} of its {len(files)} files are removed (VACUUM), {missing[0]} first"
        )
