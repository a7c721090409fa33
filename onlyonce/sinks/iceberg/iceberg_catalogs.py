"""Open and claim tables of Iceberg catalogs, which pyiceberg's own configuration describes, without a JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.utils.config import Config
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError

from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.ownership import PROPERTY as OWNER
from onlyonce.core.ownership import Place
from onlyonce.sinks import target_kinds
from onlyonce.sinks.target_kinds import Windows

if TYPE_CHECKING:
    import pandas as pd


AWAY = (
    exceptions.ServerError,
    exceptions.ServiceUnavailableError,
    exceptions.TooManyRequestsError,
    exceptions.CommitStateUnknownException,
    exceptions.WaitingForLockException,
    OperationalError,
    InterfaceError,
    OSError,
)
"""Errors of a catalog or store that may answer another time. An HTTP error is an OSError, too."""
DENIED = (exceptions.UnauthorizedError, exceptions.ForbiddenError, exceptions.OAuthError)
WRONG = (ValueError, ArgumentError, exceptions.NotInstalledError)
"""Errors of pyiceberg for a configuration that can't work, or for a missing package."""


def catalog(name: str) -> Catalog:
    """Return the catalog of that name, by the present configuration.

    Raise Refused if it is not configured or can't be opened, and Retryable while it does not answer.
    """
    with answering(name):
        given = Config().get_catalog_config(name)
        if not given:
            # pyiceberg reads `_` in the name of a variable as `-`.
            variables = "" if "_" in name else f", or by PYICEBERG_CATALOG__{name.upper()}__URI and its companions"
            raise Refused(
                f"no Iceberg catalog {name!r} is configured here",
                data="nothing was read or written",
                hint=f"describe it in .pyiceberg.yaml{variables}, where drivers run. docs/how-to/iceberg.md",
            )
        try:
            # A session that the server has ended since the last batch is opened again.
            return load_catalog(name, **{"pool_pre_ping": "true", **given})
        except WRONG as error:
            raise Refused(
                f"the Iceberg catalog {name!r} can't be opened as it is configured here: {_first(error)}",
                data="nothing was read or written",
                hint="put pyiceberg's configuration right, or install the package that it names. "
                "docs/how-to/iceberg.md",
            ) from error


@contextmanager
def open_catalog(name: str) -> Iterator[Catalog]:
    """Open the catalog for the block, and close its connections at the end."""
    found = catalog(name)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def answering(where: str) -> Iterator[None]:
    """Run the block; raise Retryable if the catalog or store does not answer now, and Refused if access is denied."""
    try:
        yield
    except DENIED as error:
        raise Refused(
            f"the Iceberg catalog refuses each login to {where}: {_first(error)}",
            data="nothing of this was read or written",
            hint="see the credentials in pyiceberg's configuration, and what they may do",
        ) from error
    except AWAY as error:
        raise Retryable(
            f"the Iceberg catalog or store of {where} does not answer: {_first(error)}",
            data="the table has all of a batch or nothing; the next attempt asks it",
            hint="see that catalog and store can be reached from here, then run the same command again",
        ) from error


def _first(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def find_table(among: Catalog, name: str) -> Table | None:
    """Return a table; None if the catalog does not have it."""
    with answering(name):
        try:
            return among.load_table(name)
        except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
            return None


def table(among: Catalog, place: Place, output: str) -> Table:
    """Return the table that an output writes to. Raise Refused if it is gone since the run began."""
    found = find_table(among, place.where)
    if found is None:
        raise Refused(
            f"output {output}: {place.where} is gone from the catalog {place.variable}",
            data="nothing was written: a new table would hold the newest rows only, while the log says that all "
            "are there",
            hint="put the table back; the next start says how to make it again",
        )
    return found


def of_target(place: Place) -> Table | None:
    """Return a target's table; None if it is not in its catalog."""
    with open_catalog(str(place.variable)) as among:
        return find_table(among, place.where)


def table_id(place: Place) -> str | None:
    """Return the id that a target's table got when it was made; None if it is not in its catalog."""
    found = of_target(place)
    return str(found.metadata.table_uuid) if found else None


def table_frame(place: str) -> pd.DataFrame | None:
    """Return all rows of a target's table in memory; None if the catalog does not have it."""
    at = Place(place)
    with open_catalog(str(at.variable)) as found, answering(at.where):
        there = find_table(found, at.where)
        return there.scan().to_pandas() if there else None


# A table as a target (`onlyonce.sinks.target_kinds.Functions`).


def is_there(place: Place) -> bool:
    """Return whether the catalog has the table."""
    return of_target(place) is not None


def note(place: Place) -> None:
    """Return None: a table's owners have a property of their own (`claim_table`)."""


def put_note(place: Place, note: str) -> None:
    """Do nothing, as `note`."""


def rows_by_window(place: Place, windowed: bool) -> Windows:
    """Return the rows by window, read file by file."""
    with open_catalog(str(place.variable)) as among, answering(place.where):
        found = find_table(among, place.where)
        if found is None:
            return Counter()
        if not windowed:
            return Counter({(None, None): found.scan().count()})
        target_kinds.check_windows(found.schema().column_names, place.where)
        return target_kinds.count_windows(found.scan(selected_fields=(*target_kinds.WINDOW,)).to_arrow_batch_reader())


def drop(place: Place) -> None:
    """Remove a target's table from its catalog, with its files. Do nothing if it is gone."""
    gone = suppress(exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError)
    with open_catalog(str(place.variable)) as found, answering(place.where), gone:
        found.purge_table(place.where)


# The owner of a table in an Iceberg catalog, in a property of the table. The property holds for each name by which the
# catalog reaches the table, and for each platform. The log's own claim (`onlyonce.commitlog.dropping`) compares names,
# and knows this platform only.


def claim_table(table: Table, owner: str) -> None:
    """Make a table the output's own if it has no owner.

    Raise Refused for the table of another output, and Retryable if another commit came in between. If two outputs claim
    it at the same time, one of them may be refused only at its next batch.
    """
    check_owner(table, owner)
    if OWNER in table.properties:
        return
    try:
        with answering(table.location()), table.transaction() as change:
            change.set_properties({OWNER: owner})
    except CommitFailedException as error:
        raise Retryable(
            f"{'.'.join(table.name())}: another commit came in between as the table was claimed",
            data="nothing was written",
            hint="run the same command again",
        ) from error
    check_owner(table, owner)


def check_owner(table: Table, owner: str) -> None:
    """Raise Refused for the table of another output."""
    there = table.properties.get(OWNER, owner)
    if there != owner:
        raise Refused(
            f"the Iceberg table {'.'.join(table.name())} belongs to {there}, by its property {OWNER}; this is {owner}",
            data="nothing was written; a backfill of one would remove the rows of the other",
            hint="give this output another table. If that output is gone, or its platform, and its rows may stay "
            "next to these, take the property out of the table",
        )
