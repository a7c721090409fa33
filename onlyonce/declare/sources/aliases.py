"""Names of columns in the source that differ from the declared ones, and which names a declared column can have.

`events` is a Delta table of Parquet files, and Parquet's writers refuse some characters in a name. A source may have
any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from onlyonce.declare import ddl
from onlyonce.declare.declaration import unknown
from onlyonce.declare.sources.kafka import Kafka
from onlyonce.declare.sources.ranges import Custom
from onlyonce.declare.sources.sources import PubSub, Source
from onlyonce.declare.sources.tables import DeltaSource
from onlyonce.model.errors import Refused

NOT_IN_A_NAME = re.compile(r"[ ,;={}()\[\]\x00-\x1f]")


def check_names(whose: str, parts: list[str]) -> None:
    """Raise Refused for a column, or a field of a struct, with a name that `events` can't hold.

    `parts` are the definitions of the columns.
    """
    for name, kind in map(ddl.named, parts):
        for one in (name, *ddl.fields(kind)):
            _check_name(whose, one)


def _check_name(whose: str, name: str) -> None:
    if found := NOT_IN_A_NAME.search(name):
        plain = re.sub(r"\W+", "_", name).strip("_").lower() or "amount"
        raise Refused(
            f"{whose}: the column {name!r} has the character {found[0]!r} in its name, which a Delta table can't hold",
            data="nothing was read or written",
            hint=f"declare {plain} and say what the source calls it: aliases={{{plain!r}: {name!r}}}; declare a "
            "struct with such a field as a string, which holds it as JSON",
        )


def named(columns: Iterable[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the name in the source of each declared column, in order."""
    return {column: aliases.get(column, column) for column in columns}


def check(whose: str, columns: list[str], aliases: Mapping[str, str], source: Source) -> None:
    """Raise Refused for an alias of no column, for two columns of one name in the source, and for a source without such
    names."""
    if not aliases:
        return
    for column in aliases:
        if column not in columns:
            raise Refused(
                f"{whose}: aliases: {unknown('column', column, columns).what}",
                hint=f"an alias is a declared column and its name in the source; declared: {', '.join(columns)}",
            )
    names = list(named(columns, aliases).values())
    if twice := [name for at, name in enumerate(names) if not name or name in names[:at]]:
        raise Refused(
            f"{whose}: aliases: two columns are {twice[0]!r} in the source"
            if twice[0]
            else f"{whose}: aliases: a name is empty",
            hint="give each column a name of its own",
        )
    if why := _without_names(source):
        raise Refused(
            f"{whose}: aliases with {why}",
            data="nothing was read or written",
            hint="declare the columns by the names that arrive",
        )
    own = [source.id_column] if isinstance(source, PubSub) else list(source.beside) if isinstance(source, Kafka) else []
    if wrong := [column for column in aliases if column in own]:
        raise Refused(
            f"{whose}: aliases: {wrong[0]!r} does not come from a field of the message", hint="leave its alias out"
        )


def _without_names(source: Source) -> str | None:
    if isinstance(source, Custom):
        return "a Custom source, whose reader gives the declared columns"
    if isinstance(source, DeltaSource):
        return "a DeltaSource, whose table has names that a declaration can have"
    if isinstance(source, Kafka) and source.format == "columns":
        return "messages of a schema, which has names that a declaration can have"
    if source.format == "csv" and not source.header:
        return "CSV without a header, in which a column is known by its position"
    return None
