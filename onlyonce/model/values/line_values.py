"""Reads one line of JSON or CSV into the declared columns, by the conversion table, or says why the line is invalid."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from onlyonce.model.values import conversions
from onlyonce.model.values.conversions import Cell, Convert, More, Number, Unfit
from onlyonce.model.visible import in_line

SHOWN = 40
"""How many characters of a value a reason shows. The whole line is in `oo_raw`."""
SPACE = " \t\r\n"
DEEPEST = 1000
"""How deep a line may be nested."""
SHALLOW = 100
"""Python's own limit of calls reaches much further."""
STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
SURROGATE = re.compile("[\ud800-\udfff]")
QUOTED, BARE = r'"[^"]*+(?:""[^"]*+)*+"', r'[^",\r\n]*+'
"""A field of CSV. One without quotes has no quote, comma, carriage return or line feed within."""
FIELD = re.compile(rf"({QUOTED})(,|\Z)|({BARE})(,|\Z)")
NO_OBJECT = "the line is no JSON object of the declared types"
MORE = "there is more on the line than one JSON object"
BLANK = "the line is blank"
NUL = "a string has the NUL character, which PostgreSQL can't store"
WHOLE_MESSAGE = "not a JSON object: "
"""How a landed line begins that has a whole message, since its payload is no record."""
NOT_UTF8 = "the line is not UTF-8"
"""How the reason begins of a line that `events` has in hexadecimal."""
MISPLACED = (
    "a quote is within a value, other characters follow a quoted value, or a line feed or a carriage return "
    "is outside of quotes"
)
OPEN = "a quote is open at the end of the line, and no later line closes it as RFC 4180 says within max_record_bytes"
HALF = "half of a surrogate pair, which is no character"


class Row(NamedTuple):
    """The values of the columns in order; or the reason why there are none.

    `more`: the line has fields that are not declared.
    """

    values: Sequence[Any] | None
    reason: str | None = None
    more: bool = False


class Column(NamedTuple):
    """A declared column: its name, its name in the source, its type as people write it, and its conversion."""

    name: str
    named: str
    kind: str
    convert: Convert


class Invalid(Exception):
    """A line that is no record; the message is the reason."""


def json_reader(columns: Sequence[Column], known: Sequence[str]) -> Callable[[str], Row]:
    """Return what reads a line of JSON. `known`: all fields that do not count as unknown."""
    names = frozenset(known)

    def read(line: str) -> Row:
        try:
            with deep(line):
                found = _checked(line)
                more: More = [name for name in found if name not in names]
                values = _converted(columns, [found.get(column.named) for column in columns], more)
            return Row(values, None, bool(more))
        except Invalid as wrong:
            return Row(None, str(wrong))

    return read


def csv_reader(columns: Sequence[Column]) -> Callable[[str], Row]:
    """Return what reads a line of CSV: one value for each column, in order."""

    def read(line: str) -> Row:
        try:
            cells = _cells(line)
            _check_nul(cells, columns)
            if len(cells) != len(columns):
                raise Invalid(f"the line has not the {len(columns)} columns that are declared")
            return Row(_converted(columns, [_given(*one) for one in zip(cells, columns, strict=True)], []))
        except Invalid as wrong:
            return Row(None, str(wrong))

    return read


def json_object(line: str) -> dict[str, Any]:
    """Return the one JSON object on a line, its numbers as they are written.

    Raise Invalid for a line that is no record.
    """
    with deep(line):
        return _checked(line)


def _checked(line: str) -> dict[str, Any]:
    found = decoded(line)
    if "\\u" in line:
        check_strings(found)
    return found


def decoded(line: str) -> dict[str, Any]:
    """Return the one JSON object on a line, its numbers as they are written.

    Raise Invalid for anything else. Call it within `deep`.
    """
    if not line.strip(SPACE):
        raise Invalid(BLANK)
    try:
        found = DECODER.decode(line)
    except json.JSONDecodeError as error:
        # A number or an array with something behind it is no object either.
        whole = error.msg == "Extra data" and line.lstrip(SPACE).startswith("{")
        raise Invalid(MORE if whole else f"{NO_OBJECT}: {shown(line)}") from None
    if not isinstance(found, dict):
        raise Invalid(f"{NO_OBJECT}: {shown(line)}")
    return found


def csv_cells(line: str) -> list[Cell | None]:
    """Return the values of a record by RFC 4180; an empty one without quotes is None. Raise Invalid."""
    if "\0" in line:
        raise Invalid(NUL)
    return _cells(line)


def _check_nul(cells: Sequence[Cell | None], columns: Sequence[Column]) -> None:
    wrong = next((at for at, cell in enumerate(cells) if cell and "\0" in cell), None)
    if wrong is not None:
        raise Invalid(
            with_nul(columns[wrong].name if wrong < len(columns) else f"number {wrong + 1}", str(cells[wrong]))
        )


def with_nul(column: str, value: str) -> str:
    """Return the reason for a column whose value has the NUL character."""
    return f"{NUL}; column {shown(column)}: {shown(value)}"


def _cells(line: str) -> list[Cell | None]:
    line = line.removesuffix("\n").removesuffix("\r")
    if not line.strip(" "):
        raise Invalid(BLANK)
    if not any(one in line for one in '"\r\n'):
        return [Cell(one) if one else None for one in line.split(",")]
    found, at, after = list[Cell | None](), 0, ","
    while after:
        field = FIELD.match(line, at)
        if field is None:
            even = line.count('"') % 2 == 0
            raise Invalid(MISPLACED if even else OPEN)
        quoted, behind, plain, after = field.groups()
        after = behind if quoted is not None else after
        found.append(Cell(quoted[1:-1].replace('""', '"')) if quoted is not None else Cell(plain) if plain else None)
        at = field.end()
    return found


def is_utf8(content: bytes) -> bool:
    """Return whether some bytes are UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def shown(value: str) -> str:
    """Return the first characters of a value, none of which harms a terminal or PostgreSQL."""
    short = in_line(value[:SHOWN])
    return f"{short}…" if len(value) > SHOWN else short


def _given(cell: Cell | None, column: Column) -> Cell | None:
    """Return a CSV value as its type takes it.

    The empty string, and spaces around a value, belong to strings and bytes only.
    """
    if cell is None or column.kind in ("string", "binary"):
        return cell
    return Cell(cell.strip(" ")) or None


def _converted(columns: Sequence[Column], given: Sequence[Any], more: More) -> list[Any]:
    found = []
    for column, value in zip(columns, given, strict=True):
        try:
            found.append(None if value is None else column.convert(value, more))
        except Unfit as why:
            because = f" ({why})" if str(why) else ""
            raise Invalid(
                f"column {column.name} is no {column.kind}: {shown(conversions.text(value))}{because}"
            ) from None
    return found


def _object(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        there: set[str] = set()
        twice = next(name for name, _ in pairs if name in there or there.add(name))  # type: ignore[func-returns-value]
        raise Invalid(f"the line has the field {shown(twice)} twice")
    return found


def _no_number(name: str) -> Any:
    raise json.JSONDecodeError(f"{name} is no JSON", name, 0)


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=Number, parse_float=Number, parse_constant=_no_number)


def check_strings(found: Mapping[str, Any]) -> None:
    """Raise Invalid if a string within holds what PostgreSQL or UTF-8 can't store. An escape must have written it."""
    for name, value in found.items():
        for each in (name, *_strings(value)):
            if "\0" in each:
                raise Invalid(with_nul(name, each))
            if SURROGATE.search(each):
                raise Invalid(f"a string has {HALF}; column {shown(name)}: {shown(each)}")


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one


@contextmanager
def deep(line: str) -> Iterator[None]:
    """Let Python's decoder go as deep as the line is nested.

    Raise Invalid if that is too deep: else it would depend on who calls.
    """
    if line.count("[") + line.count("{") <= SHALLOW:
        yield
        return
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", STRING.sub("", line)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        raise Invalid(f"{NO_OBJECT}: {shown(line)}")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 4 * DEEPEST)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
