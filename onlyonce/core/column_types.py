"""Compare the columns of an output with its table's: one rule for every sink and for `check`. Pure.

A function's type limits the values that may come. If the table's type holds fewer or other values, the output is
refused before any row is written. A function's type does not limit the length of a string or binary value. So a
column with a length passes, and each row is compared with it later (`sinks.base.held_values`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onlyonce.core.errors import Refused

_LENGTH = re.compile(r"(?P<kind>character varying|varchar|varbinary)\((?P<most>\d+)\)")
_BYTES = {
    "tinytext": 255,
    "text": 65_535,
    "mediumtext": 16_777_215,
    "tinyblob": 255,
    "blob": 65_535,
    "mediumblob": 16_777_215,
}
"""MySQL's types whose length counts bytes."""


Types = tuple[dict[str, str], dict[str, str], str]
"""The types that the sink stores for a function's columns, the types of the existing table, and where the table is."""


@dataclass(frozen=True)
class Length:
    """The longest value that a column takes: in bytes, or in characters."""

    most: int
    in_bytes: bool
    kind: str


def length(kind: str, *, mysql: bool) -> Length | None:
    """Return the longest value of a table's type; None if it takes any value that the function's type has."""
    if found := _LENGTH.fullmatch(kind):
        return Length(int(found["most"]), found["kind"] == "varbinary", kind)
    return Length(_BYTES[kind], True, kind) if mysql and kind in _BYTES else None


def refuse_other(
    whose: str,
    where: object,
    wanted: Mapping[str, str],
    there: Mapping[str, str],
    declared: Mapping[str, str] | None = None,
) -> None:
    """Raise Refused for the first column of the rows that has another type in the table.

    A column that the table lacks passes.

    wanted     the columns of the rows, with the sink's names of their types
    declared   the same columns with the function's names of their types, if they differ from the sink's
    """
    known = {name.lower(): kind for name, kind in there.items()}
    for name, kind in wanted.items():
        found = there.get(name, known.get(name.lower(), kind))
        if found.replace(" ", "") == kind.replace(" ", ""):
            continue
        given = (declared or wanted).get(name, kind)
        raise Refused(
            f"{whose}: column {name} is {given}{'' if given == kind else f' ({kind})'}, but in {where} it is {found}",
            data="nothing was written: the table's type does not hold each value that may come",
            hint="change the column there, let the function give the table's type (a cast) or another name, or "
            "write to a new table",
        )


def refuse_required(
    whose: str, where: object, given: Iterable[str], required: Iterable[str], data: str = "nothing was written"
) -> None:
    """Raise Refused if a table requires a column that the rows do not have.

    given      the columns of the rows
    required   the table's columns that take no null and get no value from the table
    """
    known = {name.lower() for name in given}
    if lacking := [name for name in required if name.lower() not in known]:
        raise Refused(
            f"{whose}: {where} requires the column {lacking[0]} (NOT NULL), which the rows do not have",
            data=data,
            hint="let the function give it, or let the column there take nulls or have a default",
        )
