"""Read lines of JSON and CSV by Arrow, a block at a time, where Arrow yields what the conversion table says.

For JSON, Arrow's reader gets an explicit schema and refuses most of what the table refuses. Checks before and after it
find what it accepts in addition. A line that is refused or fails a check is left to the table's reader (`line_values`),
which alone decides what is invalid. So a record does not depend on which of them reads it.

A line that begins with `{` and ends with `}` can't continue in the next line. So if a block has as many rows as lines,
each line is one row. Lines of CSV without a quotation mark are cut at their delimiters. All others are left to the
table's reader.

Three more kinds of lines are read there too. Arrow's reader has no maps, and its strings are not Base64. And a line
with an undeclared field must be counted: if Arrow skipped such fields, it would not report which lines have one, nor
that a field occurs twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import json as arrow_json

from onlyonce.core import conversions, line_values
from onlyonce.core.conversions import Number, Unfit

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]

SAMPLE = 9
"""How many lines of a block are read to see whether a column holds strings or numbers."""
FEW = 8
"""As few lines as this are read one by one and not bisected further."""
MOST_REFUSED = 16
"""If Arrow refuses more than one line in this many, bisecting costs more than it saves."""
PIECE = 1 << 22
"""How many bytes of lines Arrow reads at once, and more only for a longer line."""
OPEN, CLOSE, RETURN = b"{}\r"
EPOCH_FORM = pa.decimal128(38, 9)
FIRST, LAST = conversions.FIRST_DAY * 86_400_000_000, conversions.LAST_INSTANT
"""In microseconds, the first instant of the year 1 and the last one of the year 9999."""
IN_ROW = re.compile(r"in row (\d+)$")
WORD = re.compile(r"\w+", re.ASCII)
MOST_DIGITS = 38
"""The digits of a decimal of 128 bits. Arrow accepts numbers with more digits, or more by their scale, and the value
wraps around."""
WHOLE = r"\A-?(?:0|[1-9][0-9]{0,18})\z"
FLOAT = r"\A-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\z"
DAY = (
    "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
"""Without the 29th of February, which is left to the table's reader."""
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
ZONE = "(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
UNUSUAL = r'["\n\x00]|(?s:\r.)|\A *\r?\z|\A\xef\xbb\xbf'
"""Matches lines of CSV for the table's reader: a quotation mark, NUL, a line end within, only spaces, or a byte
order mark at the beginning."""
PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
}
"""The types for which Arrow accepts nothing more than the table does."""

TYPES = PLAIN | {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""The Arrow types that Spark takes for its own types."""

Checked = tuple[pa.Array, Mask | None]
"""A column in its declared type, and the rows for which Arrow's value is not certain."""


class Shape(NamedTuple):
    """How a declared type is read.

    read_as  the type that Arrow is given
    check    makes the declared type from it
    numeric  the keys whose values must be numbers, each with the most digits before the point
    """

    read_as: pa.DataType
    check: Callable[[pa.Array], Checked]
    numeric: tuple[tuple[str, int], ...] = ()


class Found(NamedTuple):
    """The lines that Arrow has read, and their columns."""

    rows: Rows
    columns: list[pa.Array]


def merged(one: Found, other: Found) -> Found:
    """Return the lines of both, in the order of their rows. They have no row in common."""
    rows = np.concatenate([one.rows, other.rows])
    order = np.argsort(rows, kind="stable")
    return Found(
        rows[order],
        [pa.concat_arrays(pair).take(pa.array(order)) for pair in zip(one.columns, other.columns, strict=True)],
    )


def read(lines: pa.Array, kinds: Mapping[str, Any]) -> Found:
    """Return the lines of a block that Arrow reads as the table does, and their columns.

    `kinds`: `DataType.jsonValue` of each column, with the forms of its times.
    """
    nothing = Found(np.zeros(0, np.int64), [])
    texts = lines.cast(pa.binary())
    rows = np.flatnonzero(_whole(texts))
    samples = [_sample(texts[int(at)].as_py()) for at in rows[:: -(-len(rows) // SAMPLE)]] if len(rows) else []
    shapes = {name: shape(name, kind, [one.get(name) for one in samples]) for name, kind in kinds.items()}
    if not len(rows) or not shapes or None in shapes.values():
        return nothing
    known = {name: one for name, one in shapes.items() if one is not None}
    texts = texts.take(pa.array(rows)) if len(rows) < len(texts) else texts
    doubtful = _doubtful(texts, known)
    if doubtful.any():
        rows, texts = rows[~doubtful], texts.filter(pa.array(~doubtful))
    schema = pa.schema([(name, one.read_as) for name, one in known.items()])
    pieces = [_checked(rows, begin, table, known) for begin, table in _tables(texts, schema)]
    if not pieces:
        return nothing
    columns = [pa.concat_arrays(list(parts)) for parts in zip(*(piece.columns for piece in pieces), strict=True)]
    return Found(np.concatenate([piece.rows for piece in pieces]), columns)


def read_csv(lines: pa.Array, kinds: Mapping[str, Any], delimiter: str = ",", null: Sequence[str] = ()) -> Found:
    """Return the lines of CSV that have no quotation mark and whose values are certain, and their columns.

    `null`: the words for null.
    """
    nothing = Found(np.zeros(0, np.int64), [])
    checks = [_of_cell(kind) for kind in kinds.values()]
    if not checks or None in checks:
        return nothing
    rows = np.flatnonzero(_unquoted(lines.view(pa.binary()) if lines.type == pa.string() else lines))
    texts = pc.replace_substring_regex(lines.take(pa.array(rows)).cast(pa.string()), r"\r\z", "")
    cells = pc.split_pattern(texts, delimiter)
    fits = np.array(pc.equal(pc.list_value_length(cells), len(checks)))
    if not fits.all():
        rows, cells = rows[fits], cells.filter(pa.array(fits))
    if not len(rows):
        return nothing
    each = cells.flatten()
    given = [each.take(pa.array(np.arange(at, len(each), len(checks)))) for at in range(len(checks))]
    checked = [
        check(pc.if_else(_null_cells(column, kind, null), None, column))
        for check, column, kind in zip(checks, given, kinds.values(), strict=True)
        if check
    ]
    return _certain(rows, checked)


def _null_cells(column: pa.Array, kind: Any, null: Sequence[str]) -> pa.Array:
    """Return which cells are null. Spaces around a word for null belong to the value of a string only."""
    if not null:
        return pc.equal(column, "")
    bare = column if kind in ("string", "binary") else pc.utf8_trim(column, " ")
    return pc.or_(pc.equal(column, ""), pc.is_in(bare, pa.array(null, column.type)))


def _unquoted(texts: pa.Array) -> Mask:
    """Return which lines of CSV can be cut at their delimiters.

    They are UTF-8, not blank, and have no byte order mark, quotation mark, NUL, line feed or carriage return."""
    usual = np.array(pc.fill_null(pc.invert(pc.match_substring_regex(texts, UNUSUAL)), False))
    return usual & _utf8(texts)


def declared(kind: Any) -> pa.DataType | None:
    """Return the Arrow type that Spark takes for a declared type; None if lines with the type are never read here."""
    if isinstance(kind, str):
        digits = conversions.DECIMAL.fullmatch(kind)
        return (
            pa.decimal128(int(digits[1]), int(digits[2])) if digits else TYPES.get(conversions.OF_SPARK.get(kind, kind))
        )
    if kind["type"] == "array":
        element = declared(kind["elementType"])
        return element and pa.list_(pa.field("element", element))
    if kind["type"] == "struct":
        fields = [(one["name"], declared(one["type"])) for one in kind["fields"]]
        return pa.struct(fields) if fields and all(found for _, found in fields) else None
    return TYPES[kind["of"]] if kind["type"] == conversions.FORMATTED else None


def typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in a type that differs from its own only in names and nullability."""
    return column if column.type == kind else column.cast(kind)


def _whole(texts: pa.Array) -> Mask:
    """Return which lines begin with `{`, end with `}`, are UTF-8 and have no NUL."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    usual = np.diff(bounds) >= 2
    usual &= np.array(texts.is_valid())
    if not usual.any():
        return usual
    octets = np.frombuffer(data, np.uint8)
    begins, ends = bounds[:-1][usual], bounds[1:][usual] - 1
    ends = ends - (octets[ends] == RETURN)
    usual[usual] = (octets[begins] == OPEN) & (octets[ends] == CLOSE) & (ends > begins)
    if not octets[bounds[0] : bounds[-1]].all():
        usual &= ~np.array(pc.fill_null(pc.match_substring_regex(texts, r"\x00"), True))
    return usual & _utf8(texts)


def _utf8(texts: pa.Array) -> Mask:
    try:
        texts.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return np.array([one is not None and line_values.is_utf8(one) for one in texts.to_pylist()])
    return np.ones(len(texts), bool)


def _sample(line: bytes) -> Mapping[str, Any]:
    try:
        return line_values.json_object(line.decode())
    except line_values.Invalid:
        return {}


def shape(name: str, kind: Any, samples: Sequence[Any]) -> Shape | None:
    """Return how to read a column whose values look like these samples; None if Arrow can't read its type."""
    seen = [one for one in samples if one is not None]
    if isinstance(kind, str):
        return _scalar(name, conversions.OF_SPARK.get(kind, kind), seen)
    if kind["type"] == "array":
        within = shape("", kind["elementType"], [one for each in seen if isinstance(each, list) for one in each])
        return within and Shape(pa.list_(within.read_as), _of_list(within), within.numeric)
    if kind["type"] == "struct":
        objects = [one for one in seen if isinstance(one, dict)]
        fields = {
            one["name"]: shape(one["name"], one["type"], [each.get(one["name"]) for each in objects])
            for one in kind["fields"]
        }
        known = {field: one for field, one in fields.items() if one is not None}
        if not fields or len(known) < len(fields):
            return None
        read_as = pa.struct([(field, one.read_as) for field, one in known.items()])
        return Shape(read_as, _of_struct(known), tuple(key for one in known.values() for key in one.numeric))
    return _formatted(name, kind, seen) if kind["type"] == conversions.FORMATTED else None


def _formatted(name: str, kind: Mapping[str, str], seen: Sequence[Any]) -> Shape:
    places = conversions.EPOCHS.get(kind["form"])
    if places is not None and _as_numbers(name, seen):
        return _number(name, pa.decimal128(MOST_DIGITS, EPOCH_FORM.scale - places), _of_epoch)
    return Shape(pa.string(), _by_values(kind))


def _by_values(kind: Any) -> Callable[[pa.Array], Checked]:
    """Return a check that converts each distinct string of a column once, by the table."""
    convert, to = conversions.of_type(kind), TYPES[kind["of"]]

    def check(column: pa.Array) -> Checked:
        coded = column.dictionary_encode()
        values, wrong = _one_by_one(coded.dictionary, convert, to)
        of_row = coded.indices
        doubt = pc.fill_null(pc.take(pa.array(wrong), of_row), False)
        return values.take(of_row), np.array(doubt) if wrong.any() else None

    return check


def _as_numbers(name: str, seen: Sequence[Any]) -> bool:
    """Return whether a column is read as numbers.

    In an array no key precedes a value, so there a number can't be recognised as no string.
    """
    return bool(WORD.fullmatch(name)) and 2 * sum(isinstance(one, Number) for one in seen) > len(seen)


def _scalar(name: str, kind: str, seen: Sequence[Any]) -> Shape | None:
    if kind in PLAIN:
        return Shape(PLAIN[kind], lambda column: (column, None))
    if kind in conversions.EXACT_INTEGERS:
        bound = conversions.EXACT_INTEGERS[kind]
        # From `bound` on an integer may have been rounded. NaN and infinities are not less than `bound` either.
        return Shape(
            pa.float64() if kind == "double" else pa.float32(),
            lambda column: (column, _mask(pc.less(pc.abs(column), float(bound)))),
        )
    as_numbers = _as_numbers(name, seen)
    if kind == "date":
        return Shape(pa.string(), _day)
    if kind == "timestamp":
        return _number(name, EPOCH_FORM, _of_epoch) if as_numbers else Shape(pa.string(), _instant)
    if kind == "timestamp_ntz":
        return Shape(pa.string(), _wall_clock)
    if digits := conversions.DECIMAL.fullmatch(kind):
        precision, scale = int(digits[1]), int(digits[2])
        to = pa.decimal128(precision, scale)
        return _number(name, to, lambda column: (column, None)) if as_numbers else Shape(pa.string(), _decimal(to))
    return None


def _number(name: str, to: pa.DataType, check: Callable[[pa.Array], Checked]) -> Shape:
    return Shape(to, check, ((name, to.precision - to.scale),))


def _of_cell(kind: Any) -> Callable[[pa.Array], Checked] | None:
    """Return a check that makes a declared type from the strings of CSV; only strings keep spaces around a value."""
    if kind == "string":
        return lambda column: (column, None)
    check = (
        _of_scalar_cell(conversions.OF_SPARK.get(kind, kind))
        if isinstance(kind, str)
        else _by_values(kind)
        if kind["type"] == conversions.FORMATTED
        else None
    )
    return check and (lambda column: check(pc.utf8_trim(column, " ")))


def _of_scalar_cell(kind: str) -> Callable[[pa.Array], Checked] | None:
    digits = conversions.DECIMAL.fullmatch(kind)
    by_kind: dict[str, Callable[[pa.Array], Checked]] = {
        "boolean": _boolean,
        "date": _day,
        "timestamp": _instant,
        "timestamp_ntz": _wall_clock,
        **{one: _cast(one, WHOLE) for one in conversions.BITS},
        **{one: _cast(one, FLOAT) for one in conversions.EXACT_INTEGERS},
    }
    return _decimal(pa.decimal128(int(digits[1]), int(digits[2]))) if digits else by_kind.get(kind)


def _boolean(column: pa.Array) -> Checked:
    small = pc.utf8_lower(column)
    return pc.equal(small, "true"), _mask(pc.is_in(small, pa.array(["true", "false", None])))


def _cast(kind: str, form: str) -> Callable[[pa.Array], Checked]:
    to, convert, bound = TYPES[kind], conversions.of_type(kind), conversions.EXACT_INTEGERS.get(kind)

    def check(column: pa.Array) -> Checked:
        wrong = _mask(pc.match_substring_regex(column, form))
        column = _without(column, wrong)
        try:
            found, over = column.cast(to), None
        except pa.ArrowInvalid:
            found, over = _one_by_one(column, convert, to)
        if bound is not None:
            over = _either(over, _mask(pc.less(pc.abs(found), float(bound))))
        return found, _either(wrong, over)

    return check


def _mask(right: pa.Array) -> Mask | None:
    """Return which values are not right (a null is right); None if all are."""
    wrong = ~np.array(pc.fill_null(right, True))
    return wrong if wrong.any() else None


def _without(column: pa.Array, wrong: Mask | None) -> pa.Array:
    return column if wrong is None else pc.if_else(pa.array(wrong), None, column)


def _day(column: pa.Array) -> Checked:
    wrong = _mask(pc.match_substring_regex(column, rf"\A{DAY}\z"))
    return _without(column, wrong).cast(pa.date32()), wrong


def _instant(column: pa.Array) -> Checked:
    wrong = _mask(pc.match_substring_regex(column, rf"\A{DAY}[T ]{CLOCK}{ZONE}?\z"))
    column = _without(column, wrong)
    if not pc.all(pc.ends_with(column, "Z")).as_py():
        # A time without a zone is UTC. Arrow requires a zone for all of them or for none.
        zoned = pc.match_substring_regex(column, rf"{ZONE}\z")
        column = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
    times = column.cast(pa.timestamp("us", "UTC"))
    return times, _either(wrong, _mask(pc.less_equal(times.cast(pa.int64()), LAST)))


def _wall_clock(column: pa.Array) -> Checked:
    wrong = _mask(pc.match_substring_regex(column, rf"\A{DAY}[T ]{CLOCK}\z"))
    return _without(column, wrong).cast(pa.timestamp("us")), wrong


def _of_epoch(column: pa.Array) -> Checked:
    """Convert billionths of a second since 1970 in 128 bits; in 64 bits they would end in the year 2262."""
    low, high = _halves(column)
    wrong = np.where(np.array(column.is_valid()), high != low >> 63, False)
    micros = pa.array(np.floor_divide(low, 1000), mask=np.array(column.is_null()))
    return micros.cast(pa.timestamp("us", "UTC")), wrong if wrong.any() else None


def _halves(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    octets = column.buffers()[1]
    both = np.frombuffer(octets, np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
    return both[::2], both[1::2]


def _decimal(to: pa.DataType) -> Callable[[pa.Array], Checked]:
    convert = conversions.decimal(to.precision, to.scale)
    whole = to.precision - to.scale
    before = f"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
    form = (
        rf"\A-?{before}(?:\.[0-9]{{1,{MOST_DIGITS - max(whole, 1)}}})?\z" if whole < MOST_DIGITS else rf"\A-?{before}\z"
    )

    def check(column: pa.Array) -> Checked:
        wrong = _mask(pc.match_substring_regex(column, form))
        column = _without(column, wrong)
        try:
            return column.cast(to), wrong
        except pa.ArrowInvalid:
            found, over = _one_by_one(column, convert, to)
        return found, _either(wrong, over)

    return check


def _one_by_one(column: pa.Array, convert: conversions.Convert, to: pa.DataType) -> tuple[pa.Array, Mask]:
    values, wrong = [], np.zeros(len(column), bool)
    for at, one in enumerate(column.to_pylist()):
        try:
            values.append(None if one is None else convert(one, []))
        except Unfit:
            values.append(None)
            wrong[at] = True
    return pa.array(values, to), wrong


def _of_list(within: Shape) -> Callable[[pa.Array], Checked]:
    def check(column: pa.Array) -> Checked:
        # `flatten` leaves out the values under nulls, and the values before a slice of a longer array.
        items, wrong = within.check(column.flatten())
        sizes = np.array(pc.fill_null(pc.list_value_length(column), 0))
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        mask = pc.is_null(column) if column.null_count else None
        made = pa.ListArray.from_arrays(pa.array(offsets), items, mask=mask)
        if wrong is None:
            return made, None
        rows = np.zeros(len(column), bool)
        rows[np.searchsorted(offsets, np.flatnonzero(wrong), "right") - 1] = True
        return made, rows

    return check


def _of_struct(fields: Mapping[str, Shape]) -> Callable[[pa.Array], Checked]:
    def check(column: pa.Array) -> Checked:
        wrong, made = None, []
        for one, values in zip(fields.values(), column.flatten(), strict=True):
            found, doubt = one.check(values)
            made.append(found)
            wrong = _either(wrong, doubt)
        return pa.StructArray.from_arrays(
            made, [*fields], mask=pc.is_null(column) if column.null_count else None
        ), wrong

    return check


def _either(one: Mask | None, other: Mask | None) -> Mask | None:
    return other if one is None else one if other is None else one | other


def _doubtful(texts: pa.Array, shapes: Mapping[str, Shape]) -> Mask:
    """Return the lines that Arrow would misread: a string as a number, a number that wraps around, an escaped NUL."""
    numeric = sorted({one for shape in shapes.values() for one in shape.numeric})
    found = np.array(pc.match_substring(texts, rb"\u0000"))
    if numeric:
        # A letter of the key itself may be written as an escape.
        longest = rf"[0-9.]{{{MOST_DIGITS + 2}}}|[0-9.]*[eE]"
        values = (
            rf'"{re.escape(key)}"[ \t\r\n]*:[ \t\r\n]*(?:"|-?(?:[1-9][0-9]{{{whole}}}|{longest}))'
            for key, whole in numeric
        )
        pattern = rf"{'|'.join(values)}|\\u00[2-7]"
        found |= np.array(pc.match_substring_regex(texts, pattern))
    return found


def _tables(texts: pa.Array, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
    """Yield the tables that Arrow makes from the lines, with the number of the first line of each, in order.

    Lines that Arrow refuses are in no table.
    """
    left = [*_pieces(texts)][::-1]
    allowed = FEW + len(texts) // MOST_REFUSED
    while left and allowed > 0:
        begin, end = left.pop()
        found, at = _table(texts.slice(begin, end - begin), schema)
        if found is not None:
            yield begin, found
        elif end - begin <= FEW:
            allowed -= end - begin
        elif at is None:
            middle = (begin + end) // 2
            left += [(middle, end), (begin, middle)]
        else:
            # The line in the message should be the first refused one. If it is not, only speed is lost.
            at = begin + min(at, end - begin - 1)
            allowed -= 1
            left += [part for part in ((at + 1, end), (begin, at)) if part[0] < part[1]]


def _pieces(texts: pa.Array) -> Iterator[tuple[int, int]]:
    bounds = np.cumsum(np.array(pc.binary_length(texts)), dtype=np.int64)
    begin = 0
    while begin < len(texts):
        before = bounds[begin - 1] if begin else 0
        end = max(int(np.searchsorted(bounds, before + PIECE, "right")), begin + 1)
        yield begin, end
        begin = end


def _table(texts: pa.Array, schema: pa.Schema) -> tuple[pa.Table | None, int | None]:
    """Return Arrow's table if each line is one row of it; else the number of the line in Arrow's message."""
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), b"\n").buffers()[2]
    # After the last line feed Arrow would count rows from zero again.
    whole = pa.py_buffer(joined.to_pybytes() + b"\n")
    try:
        found = arrow_json.read_json(
            pa.BufferReader(whole),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=whole.size + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid as refused:
        named = IN_ROW.search(str(refused))
        return None, int(named[1]) if named else None
    return (found, None) if found.num_rows == len(texts) else (None, None)


def _checked(rows: Rows, begin: int, table: pa.Table, shapes: Mapping[str, Shape]) -> Found:
    """Return the rows of a table that pass all checks, in the declared types."""
    checked = [one.check(table.column(name).combine_chunks()) for name, one in shapes.items()]
    return _certain(rows[begin : begin + table.num_rows], checked)


def _certain(rows: Rows, checked: Sequence[Checked]) -> Found:
    wrong: Mask | None = None
    for _, doubt in checked:
        wrong = _either(wrong, doubt)
    columns = [column for column, _ in checked]
    if wrong is None:
        return Found(rows, columns)
    return Found(rows[~wrong], [column.filter(pa.array(~wrong)) for column in columns])


def read_lines(lines: pa.Array, kinds: Mapping[str, Any], layout: str) -> Found:
    """Return the lines of a layout (`line_values.csv_layout`) that Arrow reads, and their columns."""
    delimiter = line_values.csv_delimiter(layout)
    return read_csv(lines, kinds, delimiter, line_values.csv_null(layout)) if delimiter else read(lines, kinds)
