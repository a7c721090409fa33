"""Compare the types of an output's columns with those of the table that it is written to: one rule for every sink and
for `check`.

Pure.

A function's type says which values may come. A table whose type holds fewer of them, or other ones, is refused before
any row. How long a string or binary value is, no type of a function says: a column with a length takes the rows, and
each row is compared with it (`sinks.held_values`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
"""MySQL's types whose length is one of bytes."""


@dataclass(frozen=True)
class Length:
    """The longest value that a column takes: in bytes, or in characters."""

    most: int
    in_bytes: bool
    kind: str


def length(kind: str, *, mysql: bool) -> Length | None:
    """Return the longest value of a table's type; None if values may be as long as the function's."""
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
    """Raise Refused for the first column of the rows whose type in a table is another one.

    A column that the table lacks is no matter here.

    wanted     the columns of the rows, with the types that the sink has for them
    declared   the same with the types that the function gives, where the sink's are other words
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
