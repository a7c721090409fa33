"""Whose a table of an Iceberg catalog is, as the table itself says: by whatever name of its catalog it is reached, and
from whatever platform.

The log's own claim (`onlyonce.commitlog.sinks.targets`) knows a target by its text, and this platform only. Who calls
it: `sink_iceberg`. Errors: Refused for the table of another output, Retryable where another commit came in between. Not
promised: that two which claim at one moment are both told at once; one of them is told at its next batch.
"""

from __future__ import annotations

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.sinks.owner import PROPERTY as OWNER
from onlyonce.sinks.iceberg.catalogs import answering


def claim(table: Table, owner: str) -> None:
    """Make a table the output's own, if it is nobody's."""
    check(table, owner)
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
    check(table, owner)


def check(table: Table, owner: str) -> None:
    """Raise Refused for the table of another output."""
    there = table.properties.get(OWNER, owner)
    if there != owner:
        raise Refused(
            f"the Iceberg table {'.'.join(table.name())} belongs to {there}, by its property {OWNER}; this is {owner}",
            data="nothing was written; a backfill of one would remove the rows of the other",
            hint="give this output another table. If that output is gone, or its platform, and its rows may stay "
            "beside these, take the property out of the table",
        )
