"""The derived names of tables and folders, the places where a pipeline has data, and who owns a result table. Pure.

Names are derived for a bounded run, for deleted keys, and for sums by window. If its database would cut a name, the
name ends with a hash of the whole, so that no two names become one. A note in a derived table marks it as the
platform's: a team's own table of that name is never written to, and never dropped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any
from uuid import UUID

from onlyonce.core import stored_names
from onlyonce.core.errors import Refused

NOTES = (stored_names.DELETED_NOTE, stored_names.BY_WINDOW_NOTE)
HASH_DIGITS = 12


def _bytes(name: str) -> int:
    return len(name.encode())


@dataclass(frozen=True)
class Names:
    """The names in one kind of database, which takes at most `most` units as counted by `size`."""

    most: int
    size: Callable[[str], int] = _bytes

    def refuse_long(self, output: str, columns: Iterable[str], units: str) -> None:
        """Raise Refused for a column whose name the database does not take. `units`: what `size` counts."""
        for name in columns:
            if self.size(name) > self.most:
                raise Refused(
                    f"output {output}: the name of its column {name} has {self.size(name)} {units}, and the database "
                    f"takes {self.most}",
                    data="nothing was written",
                    hint="give the column a shorter name in the output's function: alias(…), or withColumnRenamed",
                )

    def table(self, declared: str, suffix: str = "") -> str:
        """Return the name of an output's table; `suffix` is what a bounded run adds (@1)."""
        return self._fitting(declared + suffix)

    def deleted(self, table: str) -> str:
        """Return the name of the table that keeps the keys of deleted rows."""
        return self._fitting(table + stored_names.DELETED_SUFFIX)

    def window_sums(self, table: str) -> str:
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
"""The longest part of a path in every file system that we know."""


# The places outside the log where a pipeline or an output has data, written as text.
#
# | place                        | data                                                     | at a drop             |
# |------------------------------|----------------------------------------------------------|-----------------------|
# | data:shop                    | the folder <home>/data/shop, or a folder below it        | removed               |
# | units:VARIABLE:shop/per_shop | units and epochs in the database of a sink               | removed               |
# | delta:shop/per_shop          | a Delta table below <home>/tables                        | kept, unless --tables |
# | postgres:VARIABLE:a.b        | a PostgreSQL table; no variable: the platform's database | kept, unless --tables |
# | mysql:VARIABLE:counts        | a table of MySQL or MariaDB                              | kept, unless --tables |
# | iceberg:catalog:a.b          | a table of an Iceberg catalog                            | kept, unless --tables |
# | files:shop/counts            | a folder below <home>/files, or an object store's URL    | kept, unless --tables |
#
# Rows that were sent outside, to a webhook or BigQuery, are not listed: they can't be removed. A starting driver writes
# to no place that a begun drop has still to remove.


@dataclass(frozen=True)
class TargetKind:
    """A kind of table or folder that outputs write, claim for themselves, and a drop can remove.

    module        its functions (`onlyonce.sinks.target_kinds.Functions`), loaded when they are first used
    in_words      what it is, for people
    named         the second word of its text is a name: of a variable with the URL of a database, or of a catalog
    in_database   it is in a database, which also has the units of its rows
    qualified     its name begins with a schema
    ignores_case  names that differ in case are one table
    folder        the folder of the home that has it, if it is a folder; empty if not
    names         how long its names can be; None: nothing is derived from them
    """

    module: str
    in_words: str
    named: bool = False
    in_database: bool = False
    qualified: bool = False
    ignores_case: bool = False
    folder: str = ""
    names: Names | None = None

    @property
    def in_catalog(self) -> bool:
        """Return whether its text names a catalog, which says where the table is."""
        return self.named and not self.in_database

    def split(self, where: str) -> tuple[str, str]:
        """Return where a table is, split before its own name: `schema.` and the name."""
        at = where.find(".") + 1 if self.qualified else where.rfind("/") + 1 if self.folder else 0
        return where[:at], where[at:]


TARGETS: Mapping[str, TargetKind] = {
    "delta": TargetKind(
        "onlyonce.sinks.delta.delta_target", "Delta table", folder=stored_names.TABLES_FOLDER, names=FOLDER
    ),
    "postgres": TargetKind(
        "onlyonce.sinks.postgres.postgres_target", "PostgreSQL table",
        named=True, in_database=True, qualified=True, names=POSTGRES,
    ),
    "mysql": TargetKind(
        "onlyonce.sinks.mysql.mysql_target", "MySQL table",
        named=True, in_database=True, ignores_case=True, names=MYSQL,
    ),
    "iceberg": TargetKind(
        "onlyonce.sinks.iceberg.iceberg_catalogs", "Iceberg table", named=True, ignores_case=True
    ),
    "files": TargetKind(
        "onlyonce.sinks.files.file_target", "files", folder=stored_names.RESULT_FILES_FOLDER, names=FOLDER
    ),
}  # fmt: skip
"""The kinds that ship, by the first word of a place's text."""
SENT = ("webhook", "bigquery", "kafka", "own")
"""The first words of targets outside, which nothing here can claim, count or remove."""


@cache
def target_kinds() -> Mapping[str, TargetKind]:
    """Return the kinds that ship, and those of installed packages: their entry points in `onlyonce.targets`."""
    return {**{one.name: one.load() for one in entry_points(group="onlyonce.targets")}, **TARGETS}


@dataclass(frozen=True)
class Place:
    """One place outside the log.

    `where` is what follows the kind. `variable` names the URL of the place's database if that is not the platform's;
    for Iceberg it is the catalog."""

    text: str

    @property
    def kind(self) -> str:
        """Return the kind: data, units, or one of `target_kinds`."""
        return self.text.split(":", 1)[0]

    @property
    def of_target(self) -> TargetKind | None:
        """Return what kind of table or folder it is; None if no output writes it."""
        return target_kinds().get(self.kind)

    @property
    def is_named(self) -> bool:
        """Return whether its text names a variable for a database's URL, or a catalog."""
        return self.kind == "units" or (self.of_target is not None and self.of_target.named)

    @property
    def variable(self) -> str | None:
        """Return the environment variable of the sink's connection, or the name of its catalog, or None."""
        return self.text.split(":", 2)[1] or None if self.is_named else None

    @property
    def where(self) -> str:
        """Return what is behind the kind and the name: a folder, a table, or the incarnations of units. A table's name
        is shortened to what its database takes.
        """
        where = self.text.split(":", 2 if self.is_named else 1)[-1]
        kind = self.of_target
        if kind is None or kind.names is None or not kind.in_database:
            return where
        before, name = kind.split(where)
        return before + kind.names.table(name)

    def of_run(self, suffix: str) -> Place:
        """Return the place of a bounded run: its suffix (@1) is added to the name of the table or folder."""
        # The URL of a folder in a store may have options behind a question mark.
        plain, mark, options = self.text.partition("?") if self.kind == "files" else (self.text, "", "")
        plain = plain.rstrip("/")
        if self.of_target is None or not self.of_target.folder:
            return Place(plain + suffix)  # a database's name is cut by `where`
        name = plain.rsplit("/", 1)[-1].removeprefix(f"{self.kind}:")
        return Place(plain.removesuffix(name) + FOLDER.table(name, suffix) + mark + options)


def _is_claimed(place: Place) -> bool:
    """Return whether a place is a table or folder, which an output claims for itself; what is sent has none.

    Raise Refused if the package of the place's kind is not installed here.
    """
    if place.of_target is None and place.kind not in SENT:
        raise Refused(
            f"{place.text} is of a kind that this installation does not know",
            data="nothing was read or written there",
            hint="install the package with the sink that wrote it, then run the same command again",
        )
    return place.of_target is not None


def in_database(place: Place) -> bool:
    """Return whether a place is in a database, which also has the units of its rows."""
    return place.of_target is not None and place.of_target.in_database


def written(instance: str, parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the places that an instance's outputs have written to, under all declarations with which they ran.

    parts   the parts of these declarations, as the log has them (`api.identity`)
    """
    found = [output["target"] for one in parts for output in one.get("outputs", {}).values()]
    ours = [text for text in found if _is_claimed(Place(text))]
    return list(dict.fromkeys(Place(text).of_run(suffix_of(instance)).text for text in ours))


def folders(instance: str, query: str | None, outputs: Iterable[str]) -> list[str]:
    """Return the folders of an instance, or of one query with the outputs that it wrote."""
    if query is None:
        return [f"data:{instance}"]
    return [f"data:{instance}/checkpoints/{query}", *(f"data:{instance}/staged/{name}" for name in outputs)]


def other_databases(instance: str, query: str | None, places: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return where an instance has units in other databases than the platform's: by its places and by the log."""
    variables = {*known, *(place.variable for text in places if in_database(place := Place(text)))} - {None}
    return [f"units:{variable}:{instance}" + (f"/{query}" if query else "") for variable in sorted(map(str, variables))]


def suffix_of(instance: str) -> str:
    """Return what a bounded run adds to the declared name of a target (@1); empty for a stream."""
    _, at, number = instance.partition("@")
    return at + number


# Which platform owns a result table, by the id of the platform's database.
#
# An incarnation is named after its pipeline, so a second platform has incarnations of the same names. So what a sink
# stores in a table under an incarnation's name begins with the platform's id (`stored_names.writer`). And a note in
# each result table or folder names the platform that writes it.


PROPERTY = stored_names.OWNER_PROPERTY
"""The property of a Delta or Iceberg table that names its writer. PostgreSQL and MySQL tables have a comment."""
FILE = stored_names.OWNER_FILE
"""The file that names the writer of a folder of files, or of a prefix in a store. Readers skip a name that begins with
an underscore."""

_NOTE = re.compile(re.escape(stored_names.OWNER_NOTE) + "([0-9a-f-]{36})")


def owner_note(platform: UUID | None) -> str:
    """Return the note in a result table that names its writer."""
    return f"{stored_names.OWNER_NOTE}{platform}"


def refuse_replaced(
    place: str,
    made: str | None,
    found: str | None,
    hint: str = "restore the old table from a backup. If there is none, start again: the error then says how the table "
    "is made again",
) -> None:
    """Raise Refused if a table has another id than the table that the output wrote to.

    If `made` is None, the id is unknown, and nothing is compared. The old table had the rows, and the marks of what is
    committed, such as Delta's transaction ids.
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

    A table without a note, or with a team's own comment, passes.
    """
    noted = _NOTE.fullmatch(found or "")
    if noted is None or noted[1] == str(platform):
        return
    raise Refused(
        f"output {output}: {place} holds the results of another platform, whose database has the id {noted[1]}; "
        f"this is {platform}",
        data="nothing was written: this platform's rows next to the other's would be doubled",
        hint="rename the table or folder, or drop it, or give the output another one. If the old rows are to stay "
        f"among the new ones, take out the note first: the table's comment, its property {PROPERTY} in Delta, or the "
        f"file {FILE} in a folder of files (docs/how-to/start-over.md)",
    )
