"""The names of tables and folders that are derived from the declared one: of a bounded run, of what was deleted, of
sums by window.

Pure.

A name that its database would cut has a hash of the whole name at its end, so that no two names become one. A derived
table is known by its note as the platform's: a team's own table of that name is never written to, and never dropped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from onlyonce.core import stored_names
from onlyonce.core.errors import Refused

NOTES = (stored_names.DELETED_NOTE, stored_names.BY_WINDOW_NOTE)
HASH_DIGITS = 12


def _bytes(name: str) -> int:
    return len(name.encode())


@dataclass(frozen=True)
class Names:
    """The names of one kind of database, which takes `most` units as `size` counts them."""

    most: int
    size: Callable[[str], int] = _bytes

    def table(self, declared: str, suffix: str = "") -> str:
        """Return the name of an output's table; `suffix` is what a bounded run adds (@1)."""
        return self._fitting(declared + suffix)

    def deleted(self, table: str) -> str:
        """Return the name of the table that keeps the keys of deleted rows."""
        return self._fitting(table + stored_names.DELETED_SUFFIX)

    def by_window(self, table: str) -> str:
        """Return the name of the table that keeps what each window has added."""
        return self._fitting(table + stored_names.BY_WINDOW_SUFFIX)

    def _fitting(self, name: str) -> str:
        if self.size(name) <= self.most:
            return name
        mark = f"_{hashlib.sha256(name.encode()).hexdigest()[:HASH_DIGITS]}"
        start = name
        while self.size(start + mark) > self.most:
            start = start[:-1]
        return start + mark


POSTGRES = Names(63)
MYSQL = Names(64, len)
FOLDER = Names(255)
"""A part of a path, in every file system that we know."""


# The places outside the log where a pipeline or an output has data, written as text. Pure.
#
# | place                        | what is there                                           | at a drop             |
# |------------------------------|---------------------------------------------------------|-----------------------|
# | data:shop                    | the folder <home>/data/shop, or a folder below it       | removed               |
# | units:VARIABLE:shop/per_shop | units and epochs in the database of a sink              | removed               |
# | delta:shop/per_shop          | a Delta table below <home>/tables                       | kept, unless --tables |
# | postgres:VARIABLE:a.b        | a PostgreSQL table; no variable: the platform's database | kept, unless --tables |
# | mysql:VARIABLE:counts        | a table of MySQL or MariaDB                             | kept, unless --tables |
# | iceberg:catalog:a.b          | a table of an Iceberg catalog                           | kept, unless --tables |
# | files:shop/counts            | a folder below <home>/files, or an object store's URL   | kept, unless --tables |
#
# Rows that were sent outside, to a webhook or BigQuery, are not listed: they can't be removed.
#
# Who calls it: `onlyonce.operate.drop`; a starting driver, which writes to no place that a drop has still to clear.
# Errors: none.


Kind = Literal["data", "units", "delta", "postgres", "mysql", "iceberg", "files"]
TABLES = ("delta", "postgres", "mysql", "iceberg", "files")
NAMED = ("units", "postgres", "mysql", "iceberg")
"""What a variable names the database of; of Iceberg, the configuration the catalog."""


@dataclass(frozen=True)
class Place:
    """One of them.

    `where` is what follows the kind; `variable` holds the URL of its database, if that is not ours; of Iceberg it is
    the name of the catalog."""

    text: str

    @property
    def kind(self) -> str:
        """data, units, delta, postgres, mysql, iceberg or files."""
        return self.text.split(":", 1)[0]

    @property
    def variable(self) -> str | None:
        """The environment variable of the sink's connection."""
        return self.text.split(":", 2)[1] or None if self.kind in NAMED else None

    @property
    def where(self) -> str:
        """Return the folder, table or lineages. A table's name is as long as its database takes it."""
        where = self.text.split(":", 2 if self.kind in NAMED else 1)[-1]
        if self.kind == "postgres":
            schema, table = where.split(".", 1)
            return f"{schema}.{POSTGRES.table(table)}"
        return MYSQL.table(where) if self.kind == "mysql" else where

    def of_run(self, suffix: str) -> Place:
        """Return the place of a run: the suffix of a bounded run (@1) is in the name of its table or folder, however
        that is written."""
        plain, mark, options = self.text.partition("?") if self.kind == "files" else (self.text, "", "")
        plain = plain.rstrip("/")
        if self.kind not in ("delta", "files"):
            return Place(plain + suffix)  # a database's name is cut by `where`
        name = plain.rsplit("/", 1)[-1].removeprefix(f"{self.kind}:")
        return Place(plain.removesuffix(name) + FOLDER.table(name, suffix) + mark + options)


def written(instance: str, parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """The places that an instance's outputs have written to, by all declarations that they ran under."""
    found = [output["target"] for one in parts for output in one.get("outputs", {}).values()]
    ours = [text for text in found if Place(text).kind in TABLES]
    return list(dict.fromkeys(Place(text).of_run(suffix_of(instance)).text for text in ours))


def folders(instance: str, query: str | None, outputs: Iterable[str]) -> list[str]:
    """The folders of an instance, or of one query of it with the outputs that it wrote."""
    if query is None:
        return [f"data:{instance}"]
    return [f"data:{instance}/checkpoints/{query}", *(f"data:{instance}/staged/{name}" for name in outputs)]


def other_databases(instance: str, query: str | None, places: Iterable[str], known: Iterable[str]) -> list[str]:
    """Where units of an instance are beside the platform's own database: by its places, and by what the log
    remembers."""
    variables = {*known, *(Place(text).variable for text in places if text.startswith(("postgres:", "mysql:")))} - {
        None
    }
    return [f"units:{variable}:{instance}" + (f"/{query}" if query else "") for variable in sorted(map(str, variables))]


def suffix_of(instance: str) -> str:
    """What a bounded run adds to the declared name of a target: @1; nothing for a stream."""
    _, at, number = instance.partition("@")
    return at + number


# Tell the platforms apart that write to one result table, by the id of their databases. Pure.
#
# A lineage is named after its pipeline, so a second platform has lineages of the same names. What a sink stores in a
# table under a lineage's name has the platform's id in front (`stored_names.writer`). And each result table or folder
# says which platform writes it (`note`).


PROPERTY = stored_names.OWNER_PROPERTY
"""The property of a Delta or Iceberg table that names its writer. PostgreSQL and MySQL tables have a comment."""
FILE = stored_names.OWNER_FILE
"""The file that names the writer of a folder of files, or of a prefix in a store. Readers skip a name that begins with
an underscore."""

_NOTE = re.compile(re.escape(stored_names.OWNER_NOTE) + "([0-9a-f-]{36})")


def owner_note(platform: UUID | None) -> str:
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


def refuse_other_owner(found: str | None, platform: UUID | None, output: str, place: str) -> None:
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
