"""Read one line into the declared columns, or give the reason why the line is invalid. Pure.

A line is JSON, CSV or a Debezium envelope; the conversion table reads its values. The module also writes the string
of a value that a record's id hashes.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from onlyonce.core import conversions
from onlyonce.core.conversions import Cell, Convert, Number, Unfit, UnknownFields
from onlyonce.core.errors import in_line

SHOWN = 40
"""How many characters of a value a reason shows. The whole line is in `oo_raw`."""
SPACE = " \t\r\n"
"""The blanks of JSON. A no-break space or a form feed is none of them."""
DEEPEST = 1000
"""How deep a line may be nested."""
SHALLOW = 100
"""The depth up to which Python's recursion limit needs no change."""
STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
SURROGATE = re.compile("[\ud800-\udfff]")
QUOTED, BARE = r'"[^"]*+(?:""[^"]*+)*+"', r'[^",\r\n]*+'
"""A field of CSV. Without quotes it has no quote, comma, carriage return or line feed within."""
FIELD = re.compile(rf"({QUOTED})(,|\Z)|({BARE})(,|\Z)")
DELIMITERS = (",", ";", "\t", "|")
"""The delimiters of CSV. All are read by the grammar of commas, with commas and delimiters swapped."""
SWAPS = {one: str.maketrans(f"{one},", f",{one}") for one in DELIMITERS}
NO_OBJECT = "the line is no JSON object of the declared types"
PARQUET = "PAR1"
"""The first characters of a Parquet file."""
NO_JSON_NUMBER = "no JSON number"
"""Python's reader takes NaN, Infinity and -Infinity for numbers."""
MORE = "there is more on the line than one JSON object"
BLANK = "the line is blank"
NUL = "a string has the NUL character, which PostgreSQL can't store"
WHOLE_MESSAGE = "not a JSON object: "
"""How a pulled line begins that holds a whole message, since its payload is not a record."""
NOT_UTF8 = "the line is not UTF-8"
"""How the reason of a line begins that `events` stores in hexadecimal."""
MISPLACED = (
    "a quote is within a value, other characters follow a quoted value, or a line feed or a carriage return "
    "is outside of quotes"
)
OPEN = "a quote is open at the end of the line, and no later line closes it as RFC 4180 says within max_record_bytes"
UNDECLARED = ("", conversions.OUT_OF_YEARS)
"""Why a time has no meaning whose form is not declared: the characters, or a number that is too large for seconds."""
HALF = "half of a surrogate pair, which is no character"


class Row(NamedTuple):
    """The values of the columns in order, or the reason why there are none.

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
    """A line that is not a record; the message is the reason."""


def json_reader(columns: Sequence[Column], known: Sequence[str]) -> Callable[[str], Row]:
    """Return a function that reads a line of JSON. `known`: all fields that do not count as unknown."""
    names = frozenset(known)

    def read(line: str) -> Row:
        try:
            with deep(line):
                found = _checked(line)
                unknown: UnknownFields = [name for name in found if name not in names]
                values = _converted(columns, [found.get(column.named) for column in columns], unknown)
            return Row(values, None, bool(unknown))
        except Invalid as wrong:
            return Row(None, str(wrong))

    return read


def csv_reader(columns: Sequence[Column], delimiter: str = ",", null: Collection[str] = ()) -> Callable[[str], Row]:
    """Return a function that reads a line of CSV: one value for each column, in order. `null`: the words for null."""

    def read(line: str) -> Row:
        try:
            cells = _cells(line, delimiter, null)
            _check_nul(cells, columns)
            if len(cells) != len(columns):
                raise Invalid(f"the line has not the {len(columns)} columns that are declared")
            given = [_given(cell, column, null) for cell, column in zip(cells, columns, strict=True)]
            return Row(_converted(columns, given, []))
        except Invalid as wrong:
            return Row(None, str(wrong))

    return read


def json_object(line: str) -> dict[str, Any]:
    """Return the JSON object on a line, with its numbers as they are written.

    Raise Invalid for a line that is not a record.
    """
    with deep(line):
        return _checked(line)


def _checked(line: str) -> dict[str, Any]:
    found = decoded(line)
    if "\\u" in line:
        check_strings(found)
    return found


def decoded(line: str) -> dict[str, Any]:
    """Return the JSON object on a line, with its numbers as they are written.

    Leading and trailing blanks are valid: spaces, tabs and line ends. Raise Invalid for anything else on the line. Call
    it within `deep`.
    """
    if not line.strip(SPACE):
        raise Invalid(BLANK)
    try:
        found = DECODER.decode(line)
    except json.JSONDecodeError as error:
        # A number or an array followed by something is not an object either.
        whole = error.msg == "Extra data" and line.lstrip(SPACE).startswith("{")
        raise Invalid(MORE if whole else f"{NO_OBJECT}{_broken(line, error)}: {shown(line)}") from None
    if not isinstance(found, dict):
        raise Invalid(f"{NO_OBJECT}: {shown(line)}")
    return found


def _broken(line: str, error: json.JSONDecodeError) -> str:
    """Return where a line is not JSON. It is the same in each version of Python, unlike Python's own words."""
    if line.startswith(PARQUET):
        return ", but the beginning of a Parquet file"
    if error.msg == NO_JSON_NUMBER:
        return f" ({error.doc} is no JSON number)"
    at = error.pos
    if error.msg.startswith("Illegal trailing comma"):  # Python 3.13; earlier versions name the bracket after it
        at = len(line) - len(line[at + 1 :].lstrip(SPACE))
    if at >= len(line.rstrip(SPACE)) or error.msg.startswith("Unterminated string"):
        return f" (the line ends before its object does, after {len(line)} characters)"
    return f" (it is no JSON from character {at + 1} on)" if at else ""


def csv_cells(line: str, delimiter: str = ",", null: Collection[str] = ()) -> list[Cell | None]:
    """Return the values of a record by RFC 4180. An empty value, or a word for null, is None without quotes.

    Raise Invalid.
    """
    if "\0" in line:
        raise Invalid(NUL)
    return _cells(line, delimiter, null)


def csv_layout(delimiter: str, null: Sequence[str] = ()) -> str:
    """Return the layout of lines of CSV: 'csv', or with the delimiter and the words for null behind it."""
    return "csv" if delimiter == "," and not null else f"csv{delimiter}" + "\n".join(null)


def csv_delimiter(layout: str) -> str | None:
    """Return the delimiter of a layout of lines; None if it is not CSV."""
    return (layout[3:4] or ",") if layout.startswith("csv") else None


def csv_null(layout: str) -> tuple[str, ...]:
    """Return the words for null of a layout of lines of CSV."""
    return tuple(layout[4:].split("\n")) if layout[4:] else ()


def _check_nul(cells: Sequence[Cell | None], columns: Sequence[Column]) -> None:
    wrong = next((at for at, cell in enumerate(cells) if cell and "\0" in cell), None)
    if wrong is not None:
        raise Invalid(
            with_nul(columns[wrong].name if wrong < len(columns) else f"number {wrong + 1}", str(cells[wrong]))
        )


def with_nul(column: str, value: str) -> str:
    """Return the reason for a column whose value has the NUL character."""
    return f"{NUL}; column {shown(column)}: {shown(value)}"


def _cells(line: str, delimiter: str, null: Collection[str]) -> list[Cell | None]:
    if delimiter != ",":
        swap = SWAPS[delimiter]
        swapped = [word.translate(swap) for word in null]
        return [cell and Cell(cell.translate(swap)) for cell in _cells(line.translate(swap), ",", swapped)]
    line = line.removesuffix("\n").removesuffix("\r")
    if not line.strip(" "):
        raise Invalid(BLANK)
    if not any(one in line for one in '"\r\n'):
        return [Cell(one) if one and one not in null else None for one in line.split(",")]
    found, at, after = list[Cell | None](), 0, ","
    while after:
        field = FIELD.match(line, at)
        if field is None:
            even = line.count('"') % 2 == 0
            raise Invalid(MISPLACED if even else OPEN)
        quoted, behind, plain, after = field.groups()
        after = behind if quoted is not None else after
        if quoted is not None:
            found.append(Cell(quoted[1:-1].replace('""', '"')))
        else:
            found.append(Cell(plain) if plain and plain not in null else None)
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
    """Return the first characters of a value, without any that a terminal would obey or PostgreSQL can't store."""
    short = in_line(value[:SHOWN])
    return f"{short}…" if len(value) > SHOWN else short


def not_convertible(what: str, kind: str, value: str | None = None, why: str = "") -> str:
    """Return the reason for a value that exists and has no meaning as its type; only a null counts as missing.

    `value`: how the value is written, if the reason may show it.
    """
    beginning = "" if value is None else f": {shown(value)}"
    return f"{what} is no {kind}{beginning}{f' ({why})' if why else ''}"


def _given(cell: Cell | None, column: Column, null: Collection[str]) -> Cell | None:
    """Return a CSV value as its type takes it.

    The empty string, a quoted word for null, and spaces around a value, are kept for strings and bytes only.
    """
    if cell is None or column.kind in ("string", "binary"):
        return cell
    stripped = Cell(cell.strip(" "))
    return None if stripped in null else stripped or None


def _converted(columns: Sequence[Column], given: Sequence[Any], unknown: UnknownFields) -> list[Any]:
    found = []
    for column, value in zip(columns, given, strict=True):
        try:
            found.append(None if value is None else column.convert(value, unknown))
        except Unfit as why:
            hint = conversions.form_to_declare(column.name, column.kind, value) if str(why) in UNDECLARED else str(why)
            raise Invalid(
                not_convertible(f"column {column.name}", column.kind, conversions.text(value), hint)
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
    raise json.JSONDecodeError(NO_JSON_NUMBER, name, 0)


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=Number, parse_float=Number, parse_constant=_no_number)


def check_strings(found: Mapping[str, Any]) -> None:
    """Raise Invalid if a string has characters that PostgreSQL or UTF-8 can't store; only escapes write them."""
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
    """Raise Python's recursion limit for a line that is deeply nested.

    Raise Invalid if the line is too deep, so that the result does not depend on the caller's own depth.
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


# Debezium's envelope: the row as a line of JSON, what happened, its position in the database's log, and the time.
#
# The row's numbers keep their characters. The conversion table then reads the row like any other line. An envelope in
# Avro arrives as JSON.
#
# - PostgreSQL: source.lsn of the change itself, in 20 digits; a row is locked until its transaction ends.
# - MySQL, MariaDB: number of source.file (10), source.pos (20), source.row (10 digits); the binlog has transactions one
#   after the other.
#
# A digit follows: 0 for a row of the snapshot, 1 for a change, so the snapshot comes first at one position. All
# positions of a database have one length.


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CONNECTORS = ("postgresql", "mysql", "mariadb")
"""The connectors whose positions are known."""
CHANGES = ("c", "u", "d", "r")
NO_ENVELOPE = "the message is no envelope of Debezium, which has op and source"
NO_ROW = {
    "t": "the table was truncated: which rows that deletes the change does not say",
    "m": "a message in the log of the database, and no change of a row",
}
NO_PLACE = "the change has no place in the log of the database: source has no lsn, or no file and pos"
NO_KEY = (
    "the delete does not say which row: the table needs a primary key, or REPLICA IDENTITY FULL; or declare "
    "the message's key"
)
UNAVAILABLE = (
    "column %s has Debezium's placeholder for a value that did not change and that PostgreSQL stores out of line "
    "(TOAST): the value is not in the message. Run ALTER TABLE … REPLICA IDENTITY FULL on the table, then take its "
    "snapshot again"
)
FILE = re.compile(r"\.([0-9]{1,10})\Z")
POSITION = conversions.whole("bigint")


class Change(NamedTuple):
    """The parts of an envelope, or the reason why it is not a change, with the op if it has one."""

    reason: str | None
    row: str | None = None
    op: str | None = None
    position: str | None = None
    time: datetime | None = None


def envelope_reader(columns: Collection[str], placeholder: str, *, keyed: bool) -> Callable[[str], Change]:
    """Return a function that takes an envelope apart.

    `columns`: the declared columns of the row. `keyed`: the message's key identifies the row that a delete removed.
    """
    names = frozenset(columns)

    def read(line: str) -> Change:
        op = None
        try:
            with deep(line):
                envelope = _envelope(line)
                op = shown(envelope["op"])
                return _change(envelope, names, placeholder, keyed)
        except Invalid as wrong:
            return Change(str(wrong), op=op)

    return read


def _envelope(line: str) -> dict[str, Any]:
    try:
        found = decoded(line)
    except Invalid as wrong:
        raise Invalid(f"{NO_ENVELOPE} ({wrong})") from None
    # A message with the schema in it has the envelope as its payload.
    envelope = found.get("payload", found)
    if (
        not isinstance(envelope, dict)
        or not conversions.is_string(envelope.get("op"))
        or not isinstance(envelope.get("source"), dict)
    ):
        raise Invalid(NO_ENVELOPE)
    return envelope


def _change(envelope: dict[str, Any], columns: Collection[str], placeholder: str, keyed: bool) -> Change:
    op, source = envelope["op"], envelope["source"]
    if op in NO_ROW:
        raise Invalid(NO_ROW[op])
    if op not in CHANGES:
        raise Invalid(f"the op of the change is not one of c, u, d and r: {shown(op)}")
    if source.get("connector") not in CONNECTORS:
        raise Invalid(
            f"the order of changes by this connector is not known: {shown(conversions.text(source.get('connector')))}"
        )
    position = f"{_position(source)}{int(op != 'r')}"
    row = _row(envelope, columns, placeholder, keyed)
    check_strings(row)
    return Change(None, conversions.text(row), op, position, _time(envelope))


def _row(envelope: dict[str, Any], columns: Collection[str], placeholder: str, keyed: bool) -> dict[str, Any]:
    before, after = envelope.get("before"), envelope.get("after")
    if envelope["op"] == "d":
        if not isinstance(before, dict):
            if keyed:
                return {}
            raise Invalid(NO_KEY)
        return {name: None if _is_unavailable(value, placeholder) else value for name, value in before.items()}
    if not isinstance(after, dict):
        raise Invalid("the change has no row after it")
    return {name: _available(name, value, before, columns, placeholder) for name, value in after.items()}


def _available(name: str, value: Any, before: Any, columns: Collection[str], placeholder: str) -> Any:
    """Return the value, or the value before the change if the envelope has the placeholder: it did not change.

    Raise Invalid if the value before the change is missing too.
    """
    if name not in columns or not _is_unavailable(value, placeholder):
        return value
    if not isinstance(before, dict) or name not in before or _is_unavailable(before[name], placeholder):
        raise Invalid(UNAVAILABLE % name)
    return before[name]


def _is_unavailable(value: Any, placeholder: str) -> bool:
    # Debezium writes the placeholder as a string, as bytes in base64, in an array, or as key and value of a map.
    if isinstance(value, list):
        return len(value) == 1 and _is_unavailable(value[0], placeholder)
    if isinstance(value, dict):
        return list(value.items()) == [(placeholder, placeholder)]
    return conversions.is_string(value) and value in (placeholder, base64.b64encode(placeholder.encode()).decode())


def _position(source: dict[str, Any]) -> str:
    if source["connector"] == "postgresql":
        return _digits("lsn", source.get("lsn"), 20)
    name, row = source.get("file"), source.get("row")
    file = FILE.search(name) if conversions.is_string(name) else None
    if name is not None and file is None:
        raise Invalid(
            not_convertible("source.file", "name of a binlog file, which ends in digits", conversions.text(name))
        )
    return (
        _digits("file", Number(int(file[1])) if file else None, 10)
        + _digits("pos", source.get("pos"), 20)
        + _digits("row", Number("0") if row is None else row, 10)
    )


def _digits(field: str, value: Any, width: int) -> str:
    if value is None:
        raise Invalid(NO_PLACE)
    try:
        number = POSITION(value, [])
    except Unfit:
        number = -1
    if number < 0 or len(str(number)) > width:
        raise Invalid(
            not_convertible(f"source.{field}", f"whole number of at most {width} digits", conversions.text(value))
        ) from None
    return f"{number:0{width}}"


def _time(envelope: dict[str, Any]) -> datetime | None:
    """Return when the database made the change; None if the envelope has no time.

    Raise Invalid for a time that is not a number of milliseconds from year 1 to 9999.
    """
    value = envelope["source"].get("ts_ms")
    value = envelope.get("ts_ms") if value is None else value
    try:
        return None if value is None else EPOCH + timedelta(milliseconds=POSITION(value, []))
    except (Unfit, OverflowError) as why:
        because = str(why) if isinstance(why, Unfit) else "its year is not in 1 to 9999"
        raise Invalid(
            not_convertible(
                "the time of the change (ts_ms)", "number of milliseconds since 1970", conversions.text(value), because
            )
        ) from None


# The string of a value in a record's id: one form for each type, whatever format the value came in.
#
# The id hashes these strings (`onlyonce/sources/record_id.py`). `docs/reference/values.md` is generated from the
# docstrings below.


def string(value: str) -> str:
    """The string itself."""
    return value


def boolean(value: bool) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


def whole(value: int) -> str:
    """Its digits, with `-` for a negative number."""
    return str(value)


def floating(value: float) -> str:
    """The double in hexadecimal, exactly, as Python's `float.hex` writes it: `0x1.8000000000000p+0` is 1.5.

    Zero is `0x0.0p+0`, without a sign.
    """
    return (value + 0.0).hex()


def decimal(value: Decimal) -> str:
    """All digits of its scale after the point, no exponent: `1.50` of decimal(12,2). Zero has no sign."""
    return format(value if value else abs(value), "f")


def day(value: date) -> str:
    """`YYYY-MM-DD`."""
    return value.isoformat()


def time(value: datetime) -> str:
    """`YYYY-MM-DD HH:MM:SS` in UTC; after it a fraction of a second without zeros at its end, if there is one."""
    plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    whole_seconds = plain.replace(microsecond=0).isoformat(sep=" ")
    return f"{whole_seconds}.{plain.microsecond:06}".rstrip("0") if plain.microsecond else whole_seconds


def octets(value: bytes) -> str:
    """Its bytes in hexadecimal, in small letters."""
    return value.hex()


FORMS: dict[str, Callable[[Any], str]] = {
    "string": string, "boolean": boolean, **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), whole),
    **dict.fromkeys(("float", "double"), floating), "decimal": decimal, "date": day,
    **dict.fromkeys(("timestamp", "timestamp_ntz"), time), "binary": octets,
}  # fmt: skip
"""By the name of the type, without its brackets."""
SAME = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
    "char": "string",
    "character": "string",
    "varchar": "string",
}


def named_id_form(kind: str) -> str:
    """Return the key of a declared type in FORMS, or the name of a type that no id has."""
    found = re.match(r"\w+", kind.strip().lower())
    name = found[0] if found else kind
    return SAME.get(name, name)
