"""The places outside the log where a pipeline or an output has data, written as text. Pure.

| place                        | what is there                                           | at a drop             |
|------------------------------|---------------------------------------------------------|-----------------------|
| data:shop                    | the folder <home>/data/shop, or a folder below it       | removed               |
| units:VARIABLE:shop/per_shop | units and epochs in the database of a sink              | removed               |
| delta:shop/per_shop          | a Delta table below <home>/tables                       | kept, unless --tables |
| postgres:VARIABLE:a.b        | a PostgreSQL table; no variable: the platform's database | kept, unless --tables |
| mysql:VARIABLE:counts        | a table of MySQL or MariaDB                             | kept, unless --tables |
| iceberg:catalog:a.b          | a table of an Iceberg catalog                           | kept, unless --tables |
| files:shop/counts            | a folder below <home>/files, or an object store's URL   | kept, unless --tables |

Rows that were sent outside, to a webhook or BigQuery, are not listed: they can't be removed.

Who calls it: `onlyonce.operate.drop`; a starting driver, which writes to no place that a drop has still to clear.
Errors: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from onlyonce.model.sinks import names

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
            return f"{schema}.{names.POSTGRES.table(table)}"
        return names.MYSQL.table(where) if self.kind == "mysql" else where

    def of_run(self, suffix: str) -> Place:
        """Return the place of a run: the suffix of a bounded run (@1) is in the name of its table or folder, however
        that is written."""
        plain, mark, options = self.text.partition("?") if self.kind == "files" else (self.text, "", "")
        plain = plain.rstrip("/")
        if self.kind not in ("delta", "files"):
            return Place(plain + suffix)  # a database's name is cut by `where`
        name = plain.rsplit("/", 1)[-1].removeprefix(f"{self.kind}:")
        return Place(plain.removesuffix(name) + names.FOLDER.table(name, suffix) + mark + options)


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
