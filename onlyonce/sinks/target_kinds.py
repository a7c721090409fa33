"""Find a target, read its owner, count its rows and remove it, by the target's kind. No Spark.

A kind's module has these functions. `onlyonce.core.ownership.TARGETS` names it, or the entry point of a package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import import_module
from typing import Protocol, cast

import pyarrow as pa

from onlyonce.commitlog import units
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import Place
from onlyonce.core.stored_names import WINDOW_END, WINDOW_START
from onlyonce.database.connect import Database

WINDOW = [WINDOW_START, WINDOW_END]
Windows = Counter[tuple[datetime | None, datetime | None]]
"""Rows by the start and the end of their window, in UTC."""


class Functions(Protocol):
    """The functions that the module of a target kind defines. Each may raise Refused or Retryable.

    The place that a function gets may not exist.
    """

    def is_there(self, place: Place) -> bool:
        """Return whether the table or folder exists. A folder that needs no making is always there."""

    def table_id(self, place: Place) -> str | None:
        """Return the id that a table got when it was made and keeps; None if tables of this kind have none."""

    def note(self, place: Place) -> str | None:
        """Return the note that names the platform that writes there; None without one."""

    def put_note(self, place: Place, note: str) -> None:
        """Put the note there. A table that this account or library can't alter stays without it."""

    def rows_by_window(self, place: Place, windowed: bool) -> Windows:
        """Return the rows by window, of all of the table under (None, None) if not `windowed`; none without a table.

        Read no row into memory as a whole. Raise Refused if the rows can't be counted.
        """

    def drop(self, place: Place) -> None:
        """Remove the table or folder, with what the platform has derived from it. A second call does nothing."""


def functions(place: Place) -> Functions:
    """Return the functions of a place's kind. Raise Refused for a place that no output writes."""
    if place.of_target is None:
        raise Refused(
            f"{place.text} is of a kind that this installation does not know",
            data="nothing was read or written there",
            hint="install the package with the sink that wrote it",
        )
    return cast(Functions, import_module(place.of_target.module))


def database_of(place: Place) -> Database:
    """Return the database of a table. Raise Refused if its variable is not set."""
    return Database(units.url_of(place.variable), "onlyonce-target")


# Counting, for the modules of the kinds.


def count_windows(parts: Iterable[pa.RecordBatch]) -> Windows:
    """Count the rows of parts of a table by their window."""
    found: Windows = Counter()
    for part in parts:
        for group in pa.Table.from_batches([part]).group_by(WINDOW).aggregate([([], "count_all")]).to_pylist():
            found[in_utc(group[WINDOW_START]), in_utc(group[WINDOW_END])] += group["count_all"]
    return found


def check_windows(columns: Iterable[str], table: object) -> None:
    """Raise Refused if a table lacks a column of the windows."""
    if missing := [name for name in WINDOW if name not in columns]:
        raise Refused(f"{table} has no column {missing[0]}")


def in_utc(time: datetime | None) -> datetime | None:
    """Return a time in UTC. A time without a zone is taken as UTC."""
    if time is None:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
