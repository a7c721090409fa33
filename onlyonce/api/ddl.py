"""Check the types of declared columns without a JVM.

A type that Spark does not have is refused, and the most similar one is named. Spark may still refuse a type that passes
here, such as `decimal(50,2)`; the check before a run asks Spark itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from onlyonce.core.errors import Refused
from onlyonce.core.near_names import did_you_mean, near

TYPES = (
    "string",
    "boolean",
    "tinyint",
    "byte",
    "smallint",
    "short",
    "int",
    "integer",
    "bigint",
    "long",
    "float",
    "real",
    "double",
    "decimal",
    "dec",
    "numeric",
    "date",
    "time",
    "timestamp",
    "timestamp_ltz",
    "timestamp_ntz",
    "binary",
    "char",
    "character",
    "varchar",
    "void",
    "variant",
    "interval",
    "array",
    "map",
    "struct",
    "geometry",
    "geography",
)
PARTS = {"array": 1, "map": 2}
WITH_LENGTH = ("char", "character", "varchar")
DECIMALS = ("decimal", "dec", "numeric")
MOST_DIGITS = 38
"""Digits of a decimal in Spark."""
OTHER_NAMES = {
    "text": "string",
    "str": "string",
    "number": "double",
    "datetime": "timestamp",
    "bool": "boolean",
    "bytes": "binary",
    "list": "array",
    "json": "variant",
    "float64": "double",
    "float32": "float",
    "int64": "long",
    "integer64": "long",
    "uint32": "long",
    "int32": "int",
    "uuid": "string",
    "object": "struct",
    "money": "decimal(18,2)",
    "currency": "decimal(18,2)",
    "timestamptz": "timestamp",
    "serial": "long",
    "blob": "binary",
}
"""Names of types elsewhere, with the type of Spark to choose."""
"""The names of types in other systems."""
SAME_TYPE = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "real": "float"}
_QUOTED = re.compile(r"\s*`((?:[^`]|``)+)`\s*:?\s*(.*?)\s*", re.DOTALL)
_COLUMN = re.compile(r"\s*`?(\w+)`?[\s:]+(\w+)")
"""The beginning of a string that looks like the next column."""
AFTER_A_TYPE = ("not", "comment", "collate", "default")
"""The words that may follow a type."""
_TYPE = re.compile(r"\s*(\w+)\s*(?:([<(])(.*)[>)])?(.*)", re.DOTALL)


def placed(schema: str) -> Iterator[tuple[int, str]]:
    """Yield the definition of each column, and where it begins in the schema."""
    at = 0
    for part in split(schema):
        at = schema.index(part, at)
        yield at + len(part) - len(part.lstrip()), part
        at += len(part)


def check(whose: str, parts: list[str]) -> None:
    """Raise Refused for a column without a type, or with an unknown one.

    `parts` are the definitions of the columns.
    """
    for part in parts:
        name, kind = named(part)
        if name.endswith(":") or kind.startswith(":"):
            column = name.removesuffix(":")
            raise Refused(
                f"{whose}: column {column} has a colon before its type",
                data="nothing was read or written",
                hint=f"take out the colon: '{column} {kind.removeprefix(':').strip()}'",
            )
        if not kind:
            raise Refused(f"{whose}: column {name} has no type", hint=f"write it as '{name} string', for example")
        _check_brackets(f"{whose}: column {name}", kind)
        _check(f"{whose}: column {name}", kind)


def extra_comma(schema: str) -> tuple[int, str] | None:
    """Return where the first column ends that has a comma too many behind it, and its definition; None if none has."""
    at, before = 0, ""
    for part in _parts(schema):
        if not part.strip():
            return max(at - 1, 0), before.strip()
        at, before = at + len(part) + 1, part
    return None


_CLOSED_BY = {"(": ")", "<": ">"}
_SIMPLE = r"\s*\w+(?:\s*\([\d\s,]*\))?"
_DIGITS = re.compile(r"\w+\s*\(\s*\d+(?:\s*,\s*\d+)?(?!\s*[\d)])")
_BEGUN = (
    re.compile(rf"array\s*<{_SIMPLE}(?![\w<])", re.IGNORECASE),
    re.compile(rf"map\s*<{_SIMPLE}\s*,{_SIMPLE}(?![\w<])", re.IGNORECASE),
    re.compile(rf"struct\s*<\s*\w+\s*:{_SIMPLE}(?:\s*,\s*\w+\s*:{_SIMPLE})*(?![\w<])", re.IGNORECASE),
)
"""Types whose bracket is open, as far as they surely go: what follows may be the next column."""


def _check_brackets(column: str, kind: str) -> None:
    plain = re.sub(r"'[^']*'|`[^`]*`", "", kind)
    if ";" in plain:
        raise Refused(
            f"{column} is followed by ';', which separates no columns",
            data="nothing was read or written",
            hint="put ',' between the columns",
        )
    for opening, closing in _CLOSED_BY.items():
        if plain.count(opening) > plain.count(closing):
            begun = [_DIGITS.search(plain)] if opening == "(" else [one.match(plain) for one in _BEGUN]
            first = next((found[0] for found in begun if found), None)
            raise Refused(
                f"{column} has the type {first or kind.split(',')[0].strip()!r}, whose bracket is not closed",
                data="nothing was read or written",
                hint=f"did you mean '{first}{closing}'?" if first else f"close it by {closing!r}",
            )
        if plain.count(opening) < plain.count(closing):
            before, _, behind = kind.rpartition(closing)
            raise Refused(
                f"{column} has the type {kind.strip()!r}, which has {closing!r} once too often",
                data="nothing was read or written",
                hint=f"did you mean '{before}{behind}'?",
            )


def types(schema: str) -> dict[str, str]:
    """Return the type of each column, as Spark writes it, in order."""
    return dict(_typed(part) for part in split(schema))


def plain_types(parts: Iterable[str]) -> dict[str, str]:
    """Return the name of each column's type, as Spark writes it: without its length, its parts and a comment.

    `parts` are the definitions of the columns. A nested type is `array`, `map` or `struct`.
    """
    found = {}
    for name, kind in map(named, parts):
        word = (_TYPE.fullmatch(kind) or [kind, kind])[1].lower()
        found[name] = SAME_TYPE.get(word, word)
    return found


def _typed(part: str) -> tuple[str, str]:
    name, _, kind = part.strip().partition(" ")
    plain = " ".join(kind.lower().split())
    return name.strip("`"), SAME_TYPE.get(plain, plain)


def named(part: str) -> tuple[str, str]:
    """Return the name of a column, and the rest of its definition: its type."""
    if quoted := _QUOTED.fullmatch(part):
        return quoted[1].replace("``", "`"), quoted[2]
    name, *kind = part.split(None, 1)
    return name, kind[0].strip() if kind else ""


def _check(column: str, kind: str) -> None:
    found = _TYPE.fullmatch(kind)
    name = found[1].lower() if found else kind
    if found is None or name not in TYPES:
        if found:
            _refuse_joined(column, found)
        close = OTHER_NAMES.get(name) or near(name, TYPES, 0.5)
        raise Refused(
            f"{column} has the type {kind.strip()!r}, which Spark does not have",
            data="nothing was read or written",
            hint=did_you_mean(close).rstrip() or f"choose one of: {', '.join(TYPES)}",
        )
    if name in WITH_LENGTH:
        raise Refused(
            f"{column} has the type {kind.strip()!r}, and the strings of records have no length",
            data="nothing was read or written",
            hint="did you mean 'string'?",
        )
    if name in DECIMALS and found[2] == "(":
        _check_digits(column, kind.strip(), found[3])
    if (more := _COLUMN.match(found[4])) and more[2].lower() in TYPES and more[1].lower() not in AFTER_A_TYPE:
        raise Refused(
            f"{column} is followed by {more[0].strip()!r} without a comma",
            data="nothing was read or written",
            hint=f"put a comma before {more[1]!r}",
        )
    if found[2] == "<":
        for inner in split(found[3]):
            _check(column, _field(inner)[1] if name == "struct" else inner)
        if name in PARTS and len(split(found[3])) != PARTS[name]:
            raise Refused(f"{column}: {kind.strip()!r}", hint=f"{name} has {PARTS[name]} types in its brackets")
    elif name in (*PARTS, "struct"):
        raise Refused(f"{column}: {kind.strip()!r} does not say of what", hint=f"write it as '{name}<…>'")


def _refuse_joined(column: str, found: re.Match[str]) -> None:
    """Raise Refused for a type with the name of the next column at its end: `at timestampcents long`."""
    word, behind = found[1], found[4].split("<")[0].split("(")[0].split()
    kind = next((one for one in sorted(TYPES, key=len, reverse=True) if word.lower().startswith(one)), None)
    following = word[len(kind) :] if kind else ""
    if following and word.lower() not in OTHER_NAMES and behind and behind[0].lower() in TYPES:
        kind = word[: -len(following)]
        first, second = f"{column.rpartition(' ')[2]} {kind}", f"{following} {found[4].strip()}"
        raise Refused(
            f"{column.rpartition(': ')[0]}: a comma is missing between {first!r} and {second!r}",
            data="nothing was read or written",
            hint=f"put a comma behind {first!r}: at the end of its string, if {following!r} begins the next string",
        )


def _check_digits(column: str, kind: str, given: str) -> None:
    digits = [int(one) for one in given.split(",") if one.strip().isdigit()]
    whole, behind = (*digits, 0)[:2] if digits else (0, 0)
    if not 1 <= whole <= MOST_DIGITS or behind > whole:
        raise Refused(
            f"{column} has the type {kind!r}: a decimal has 1 to {MOST_DIGITS} digits, and no more of them behind the "
            "point",
            data="nothing was read or written",
            hint=f"for example decimal({MOST_DIGITS},{min(behind, MOST_DIGITS)})",
        )


def fields(kind: str) -> Iterator[str]:
    """Yield the names of the fields of structs in a type, at any depth."""
    found = _TYPE.fullmatch(kind)
    if found is None or found[2] != "<":
        return
    for inner in split(found[3]):
        if found[1].lower() == "struct":
            name, inner = _field(inner)
            yield name
        yield from fields(inner)


def scalars(schema: str) -> Iterator[tuple[str, str]]:
    """Yield the path and type of each scalar column and of each scalar part of a nested one.

    The path of a struct's field ends with a point and the field's name. The elements of an array and the values of a
    map have the path of the whole column."""
    for name, kind in map(named, split(schema)):
        yield from _within(name, kind)


def _within(path: str, kind: str) -> Iterator[tuple[str, str]]:
    found = _TYPE.fullmatch(kind)
    if found is None or found[2] != "<":
        yield path, kind.lower().split()[0]
    elif found[1].lower() == "struct":
        for name, inner in map(_field, split(found[3])):
            yield from _within(f"{path}.{name}", inner)
    else:
        yield from _within(path, split(found[3])[-1])


def _field(part: str) -> tuple[str, str]:
    """Return the name and type of a field, with or without a colon between them."""
    name, mark, kind = part.strip().partition(":")
    return (name.strip(), kind) if mark and " " not in name.strip() and not _QUOTED.fullmatch(part) else named(part)


def split(text: str) -> list[str]:
    """Return the parts between commas. Commas inside <>, (), backticks or a comment's text do not separate."""
    return [part for part in _parts(text) if part.strip()]


def _parts(text: str) -> list[str]:
    parts, depth, current, quote = [], 0, "", ""
    for sign in text:
        if sign in "'`":
            quote = {"": sign, sign: ""}.get(quote, quote)
        depth = depth if quote else max(depth + (sign in "<(") - (sign in ">)"), 0)
        if sign == "," and depth == 0 and not quote:
            parts.append(current)
            current = ""
        else:
            current += sign
    return [*parts, current]
