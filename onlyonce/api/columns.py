"""Which names and forms a declared column can have, and how its name in the source may differ. Pure.

`events` is a Delta table of Parquet files, and Parquet's writers refuse some characters in a name. A source may have
any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from onlyonce.api import ddl
from onlyonce.api.declaration import unknown
from onlyonce.api.sources import Source
from onlyonce.core import conversions
from onlyonce.core.errors import Refused

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


def named_in_source(columns: Iterable[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the name in the source of each declared column, in order."""
    return {column: aliases.get(column, column) for column in columns}


def check_aliases(whose: str, columns: list[str], aliases: Mapping[str, str], source: Source) -> None:
    """Raise Refused for an alias of no column, for two columns with one source name, and for a source without names."""
    if not aliases:
        return
    for column in aliases:
        if column not in columns:
            raise Refused(
                f"{whose}: aliases: {unknown('column', column, columns).what}",
                hint=f"an alias is a declared column and its name in the source; declared: {', '.join(columns)}",
            )
    names = list(named_in_source(columns, aliases).values())
    if twice := [name for at, name in enumerate(names) if not name or name in names[:at]]:
        raise Refused(
            f"{whose}: aliases: two columns are {twice[0]!r} in the source"
            if twice[0]
            else f"{whose}: aliases: a name is empty",
            hint="give each column a name of its own",
        )
    if why := source.has_no_names:
        raise Refused(
            f"{whose}: aliases with {why}",
            data="nothing was read or written",
            hint="declare the columns by the names that arrive",
        )
    if wrong := [column for column in aliases if column in source.own_columns]:
        raise Refused(
            f"{whose}: aliases: {wrong[0]!r} does not come from a field of the message", hint="leave its alias out"
        )


# Which forms of times a declaration may name for its columns (`formats`). The conversion table defines their meaning.


TIMES = {"date": "date", "timestamp": "timestamp", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz"}


def check_time_forms(whose: str, schema: str, formats: Mapping[str, str], source: Source) -> None:
    """Raise Refused for a form of a column that is not a time, for an invalid form, and for a source with own types."""
    if formats and source.typed_by:
        raise Refused(
            f"{whose}: formats with a source whose columns have {source.typed_by} of their own",
            data="nothing was read or written",
            hint="declare the column as the type that it has, and make the time of it in your function or in "
            "Input(columns=…)",
        )
    kinds = dict(ddl.scalars(schema)) if formats else {}
    for column, form in formats.items():
        kind = TIMES.get(kinds.get(column, ""))
        if kind is None:
            there = [name for name, one in kinds.items() if one in TIMES]
            what = f"which is a {kinds[column]} and no time" if column in kinds else "which is not declared"
            raise Refused(
                f"{whose}: formats has {column!r}, {what}",
                data="nothing was read or written",
                hint="it may have: "
                f"{', '.join(there) or 'none of the columns, since no column is a date or timestamp'}; a "
                "field within a struct by its path, as order.paid",
            )
        if why := _wrong(kind, form):
            raise Refused(
                f"{whose}: formats: {form!r} can't be the form of {column}: {why}",
                data="nothing was read or written",
                hint=f"give one of {', '.join(conversions.EPOCHS)}, or a pattern such as '%d/%m/%Y %H:%M' "
                "(docs/reference/values.md)",
            )


def _wrong(kind: str, form: str) -> str | None:
    if form in conversions.EPOCHS:
        return (
            None
            if kind == "timestamp"
            else f"a count since 1970 is an instant, and the column is a {kind}; declare it as timestamp"
        )
    try:
        conversions.time_reader(form)
    except conversions.Wrong as why:
        return str(why)
    if kind == "date" and conversions.format_has_clock(form):
        return "it has a time of day, and the column is a date; declare it as timestamp_ntz or timestamp"
    if kind == "timestamp_ntz" and conversions.format_has_zone(form):
        return "it has a zone, and the column is a timestamp_ntz; declare it as timestamp"
    return None
