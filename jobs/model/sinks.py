"""The sinks that an output can declare, and what each promises. Pure data, checked when made."""

from __future__ import annotations

from typing import Literal

from jobs.model.declaration import check_one_of, declaration
from jobs.model.errors import Refused


@declaration
class Delta:
    """A Delta table at <home>/tables/<path>; exactly once by txnAppId and txnVersion.

    path    the folder; by default <pipeline>/<output>
    write   'append': each row once. 'upsert': a row replaces the one with the same keys
    keys    what identifies a row of an upsert
    """

    path: str | None = None
    write: Literal["append", "upsert"] = "append"
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_write("Delta", self.write, self.keys, ("append", "upsert"))

    def target(self, default: str) -> str:
        """Where the rows go, as text: the same text means the same place. `default` is <pipeline>/<output>."""
        return f"delta:{self.path or default}"


@declaration
class Postgres:
    """A PostgreSQL table; exactly once, since the rows and the unit commit in one transaction.

    table       'schema.table'; made if it is missing
    write       'append', 'upsert', or 'increment': numbers are added to the row with the same keys; the
                window's columns are left out unless they are keys
    keys        what identifies a row of an upsert or increment
    connection  the environment variable that holds the database's URL; by default the platform's database
    """

    table: str
    write: Literal["append", "upsert", "increment"] = "append"
    keys: tuple[str, ...] = ()
    connection: str | None = None

    def __post_init__(self) -> None:
        _check_write("Postgres", self.write, self.keys, ("append", "upsert", "increment"))
        if self.table.count(".") != 1:
            raise Refused(f"Postgres: table {self.table!r} has no schema", hint="write it as 'schema.table'")
        if self.table.split(".")[0].startswith("onlyonce"):
            raise Refused(f"Postgres: {self.table!r} is in the platform's own schema", hint="choose another schema")

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"postgres:{self.connection or ''}:{self.table}"


Sink = Delta | Postgres


def _check_write(kind: str, write: str, keys: tuple[str, ...], known: tuple[str, ...]) -> None:
    check_one_of(kind, "write", write, known)
    if (write == "append") == bool(keys):
        raise Refused(
            f"{kind}: write={write!r} with keys={keys!r}", hint="upsert and increment need keys, append has none"
        )
