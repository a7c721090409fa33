"""Tell the platforms apart that write to one result table, by the id of their databases. Pure.

A lineage is named after its pipeline, so a second platform has lineages of the same names. What a sink stores in a
table under a lineage's name has the platform's id in front (`stored_names.writer`). And each result table or folder
says which platform writes it (`note`).
"""

from __future__ import annotations

import re
from uuid import UUID

from onlyonce.model import stored_names
from onlyonce.model.errors import Refused

PROPERTY = stored_names.OWNER_PROPERTY
"""The property of a Delta or Iceberg table that names its writer. PostgreSQL and MySQL tables have a comment."""
FILE = stored_names.OWNER_FILE
"""The file that names the writer of a folder of files, or of a prefix in a store. Readers skip a name that begins with
an underscore."""

_NOTE = re.compile(re.escape(stored_names.OWNER_NOTE) + "([0-9a-f-]{36})")


def note(platform: UUID | None) -> str:
    """Return what a result table says of its writer."""
    return f"{stored_names.OWNER_NOTE}{platform}"


def refuse_replaced(
    place: str,
    made: str | None,
    found: str | None,
    hint: str = "put the old table back from a copy; the next start says how to make it again",
) -> None:
    """Raise Refused if a table has another id than the one that the output wrote to.

    None: nothing is known of the id, so nothing is compared.

    The marks of what is committed, such as Delta's transaction ids, are in the old table, and so are its rows.
    """
    if made is None or found == made:
        return
    raise Refused(
        f"{place} is another table than the one that the output wrote to (id {found}, not {made}): it was dropped "
        "and made again, or replaced",
        data="nothing was written now: this table would hold the newest rows only, while the log says that all "
        "are there",
        hint=hint,
    )


def refuse_other(found: str | None, platform: UUID | None, output: str, place: str) -> None:
    """Raise Refused if a table's note names another platform.

    A table without a note, or with a comment of a team, passes.
    """
    noted = _NOTE.fullmatch(found or "")
    if noted is None or noted[1] == str(platform):
        return
    raise Refused(
        f"output {output}: {place} holds the results of another platform, whose database has the id {noted[1]}; "
        f"this is {platform}",
        data="nothing was written: this platform's rows beside the other's would be doubled",
        hint="rename the table or folder, or drop it, or give the output another one. If the old rows are to stay "
        "among the new ones, take out the note first: "
        f"the table's comment, its property {PROPERTY} in Delta, or the file {FILE} in a folder of files "
        "(docs/how-to/start-over.md)",
    )
