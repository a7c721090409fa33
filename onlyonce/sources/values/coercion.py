"""Convert the columns of a source to the declared ones: by name, in whole arrays, within the memory of a worker."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from onlyonce.api.pipeline import split_ddl
from onlyonce.core import conversions, records
from onlyonce.core.errors import Refused
from onlyonce.core.line_values import NUL, not_convertible
from onlyonce.core.records import Damaged
from onlyonce.sources.values import arrow_lines

NANOSECONDS = 1000
COARSER = {"s": 1_000_000, "ms": 1000}
LARGEST = (1 << 63) - 1


def in_microseconds(array: pa.Array) -> pa.Array:
    """Return an array with each time, at any depth, in microseconds, the unit of every declared time.

    Nanoseconds are rounded towards the past, as in JSON."""
    kind = array.type
    if types.is_timestamp(kind) and kind.unit == "ns":
        # Arrow's cast rounds towards 1970.
        counts = np.floor_divide(array.cast(pa.int64()).fill_null(0).to_numpy(), NANOSECONDS)
        missing = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(counts, pa.int64(), mask=missing).cast(pa.timestamp("us", kind.tz))
    if types.is_timestamp(kind) and kind.unit in COARSER:
        # A time that has no number in microseconds gets the largest number, whose year makes its record invalid. Arrow
        # would refuse the whole file.
        factor = COARSER[kind.unit]
        counts = (
            np.clip(array.cast(pa.int64()).fill_null(0).to_numpy(), -(LARGEST // factor), LARGEST // factor) * factor
        )
        missing = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(counts, pa.int64(), mask=missing).cast(pa.timestamp("us", kind.tz))
    if types.is_struct(kind):
        parts = [in_microseconds(array.field(number)) for number in range(kind.num_fields)]
        if all(part.type == field.type for part, field in zip(parts, kind.fields, strict=True)):
            return array
        fields = [pa.field(field.name, part.type) for field, part in zip(kind.fields, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if types.is_map(kind):
        keys, items = in_microseconds(array.keys), in_microseconds(array.items)
        if (keys.type, items.type) == (kind.key_type, kind.item_type):
            return array
        return _with_child(
            array, pa.map_(keys.type, items.type), pa.StructArray.from_arrays([keys, items], ["key", "value"])
        )
    if types.is_list(kind) or types.is_large_list(kind):
        values = in_microseconds(array.values)
        if values.type == kind.value_type:
            return array
        return _with_child(array, (pa.list_ if types.is_list(kind) else pa.large_list)(values.type), values)
    if types.is_fixed_size_list(kind):
        found = in_microseconds(array.cast(pa.list_(kind.value_type)))
        return array if found.type.value_type == kind.value_type else found
    return array


def _with_child(array: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    # The array's own buffers and offset, so that a slice needs no copy.
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[child])


# The bytes of each row. Rows are grouped so that each group fits into memory, and too large rows are kept apart.
#
# Many rows may share one value (a dictionary), and copying it into each row takes memory for each. So rows are measured
# before they are copied, and copied some at a time.


AT_ONCE = 1 << 26
"""The most bytes of rows that are written out together, unless one row has more."""
Sizes = NDArray[np.int64]


def sizes_of_rows(batch: pa.RecordBatch) -> Sizes:
    """Return the bytes of each row."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes = sizes + of_values(column)
    return sizes


def of_values(array: Any) -> Sizes:
    """Return the bytes of each value when it is written out."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return of_values(array.storage)
    if types.is_dictionary(kind):
        indices = pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False)
        inner = of_values(array.dictionary)
        return inner[indices] if len(inner) else np.zeros(len(array), np.int64)
    if types.is_struct(kind):
        return sum((of_values(array.field(at)) for at in range(kind.num_fields)), np.zeros(len(array), np.int64))
    if types.is_map(kind):
        return _bytes_between(array.offsets, of_values(array.keys) + of_values(array.items))
    if types.is_list(kind) or types.is_large_list(kind):
        return _bytes_between(array.offsets, of_values(array.values))
    if types.is_fixed_size_list(kind):
        lists = max(len(array.values) // max(kind.list_size, 1), 1)
        # The average: exact for lists of numbers, an estimate for lists of strings.
        return np.full(len(array), array.values.nbytes // lists, np.int64)
    if types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return np.full(len(array), kind.bit_width // 8, np.int64)
    try:
        return pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    except pa.ArrowNotImplementedError:  # Arrow has no function for the parts of views
        return np.full(len(array), -(-array.nbytes // max(len(array), 1)), np.int64)


def groups_of_rows(sizes: Sizes) -> Iterator[slice]:
    """Yield slices of rows that are written out together."""
    until = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = until[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(until, before + AT_ONCE, "right")))
        yield slice(start, end)
        start = end


def _bytes_between(offsets: pa.Array, inner: Sizes) -> Sizes:
    until = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])
    return np.diff(until[offsets.to_numpy()])


# The conversion.
#
# A type fits if the declared type may hold its values: whole numbers, times of any unit in microseconds. A string is
# never read as a number or a time, since a program that writes columns knows their types. A file with a column that
# does not fit is Damaged. If the declared type can't hold a value without loss, its record is invalid, and not its file
# (3,000,000,000 as an int, 1e300 as a float, the year 10000).


BESIDE = "oo_line string, oo_refused string, oo_file long, oo_position long, oo_rest string"
"""The platform's columns of each row: its beginning and the reason if it is too large, its place, and the names of
undeclared columns."""
_BESIDE = [
    ("oo_line", pa.string()),
    ("oo_refused", pa.string()),
    ("oo_file", pa.int64()),
    ("oo_position", pa.int64()),
    ("oo_rest", pa.string()),
]
KINDS = {
    "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_(), "date": pa.date32(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()), **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()), **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()), "double": pa.float64(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", "UTC")), "timestamp_ntz": pa.timestamp("us"),
    **dict.fromkeys(("decimal", "dec", "numeric"), pa.decimal128(10, 0)),
}  # fmt: skip
WHOLE = pa.decimal128(20, 0)
YEARS = {
    "day": (conversions.FIRST_DAY, conversions.LAST_DAY),
    "us": (arrow_lines.FIRST, arrow_lines.LAST),
}  # fmt: skip
"""The first and the last date, in days since 1970, and time, in microseconds."""
MOST_NAMES = 1000
"""In characters: each row of a batch repeats the names."""
BUILT = re.compile(r"(\w+)\s*[<(](.*)[>)]", re.DOTALL)


class Unheld(Damaged):
    """A value that the declared type can't hold: the message names the column and the reason.

    In a file, `fit` refuses only the row of this value. Any other Damaged refuses the whole file.
    """


def declared(ddl: str) -> pa.Schema:
    """Return the declared columns as Arrow types. It needs no JVM, unlike Spark's own parser. Raise Refused."""
    return pa.schema([_field(part, " ") for part in split_ddl(ddl)])


def _field(part: str, after_name: str) -> pa.Field:
    name, _, kind = part.strip().partition(after_name)
    return pa.field(name.strip("` "), _kind(re.sub(r"(?i)\s+(not\s+null|comment\s.*)$", "", kind.strip())))


def _kind(text: str) -> pa.DataType:
    text = text.strip()
    if known := KINDS.get(text.lower()):
        return known
    name, inner = (found[1].lower(), split_ddl(found[2])) if (found := BUILT.fullmatch(text)) else ("", [])
    if name in ("decimal", "dec", "numeric"):
        return pa.decimal128(*map(int, inner))
    if name in ("varchar", "char"):
        return pa.string()
    if name == "array":
        return pa.list_(_kind(inner[0]))
    if name == "map":
        return pa.map_(*map(_kind, inner))
    if name == "struct":
        return pa.struct([_field(part, ":" if ":" in part else " ") for part in inner])
    raise Refused(f"a column of type {text!r} can't be read from columns", hint="declare one of Spark's plain types")


def check_names(there: Sequence[str], needed: Sequence[str]) -> None:
    """Raise Damaged if a column that identifies a record is missing, or if a name occurs twice."""
    if twice := sorted(name for name, times in Counter(there).items() if times > 1):
        raise Damaged(f"it has two columns of the name {twice[0][:300]}")
    if missing := [name for name in needed if name not in there]:
        raise Damaged(f"it has no column {missing[0]}; its columns are {', '.join(there)[:300]}")


def undeclared(there: Sequence[str], wanted: Collection[str]) -> str | None:
    """Return the names of undeclared columns in each row: some names, and the number of others."""
    known = set(wanted)
    names = [name for name in there if name not in known]
    told, length = [], 0
    for name in names:
        length += len(name) + len(", ")
        if length > MOST_NAMES:
            break
        told.append(name)
    others = len(names) - len(told)
    return ", ".join([*told, *([f"{others} others"] if others else [])]) or None


def undeclared_within(there: pa.Schema, wanted: pa.Schema) -> list[str]:
    """Return the undeclared fields of structs, at any depth: `customer.phone`."""
    return [
        name
        for field in wanted
        if (at := there.get_field_index(field.name)) >= 0
        for name in _more(there.field(at).type, field.type, field.name)
    ]


def _more(there: pa.DataType, wanted: pa.DataType, path: str) -> list[str]:
    if _is_list(there) and _is_list(wanted):
        return _more(there.value_type, wanted.value_type, path)
    if types.is_map(there) and types.is_map(wanted):
        return _more(there.item_type, wanted.item_type, path)
    if not (types.is_struct(there) and types.is_struct(wanted)):
        return []
    found = [f"{path}.{field.name}" for field in there if wanted.get_field_index(field.name) < 0]
    return found + [
        name
        for field in wanted
        if (at := there.get_field_index(field.name)) >= 0
        for name in _more(there.field(at).type, field.type, f"{path}.{field.name}")
    ]


@dataclass(frozen=True)
class Place:
    """Where rows are from: in words with %s for a row's number, as a number (`key`), and the most bytes of a row."""

    told: str
    key: int
    most: int


def fit(
    batch: pa.RecordBatch, there: Sequence[str], wanted: pa.Schema, place: Place, position: int
) -> Iterator[pa.RecordBatch]:
    """Yield a batch as rows with the platform's columns and the wanted ones, as many at once as memory holds.

    `there` are all columns of the batch's file. A row that is too large has only a reason and its beginning. A row with
    a value that its type can't hold has a reason too. Raise Damaged."""
    sizes = sizes_of_rows(batch)
    over = sizes > place.most
    for rows in groups_of_rows(np.where(over, 0, sizes)):
        some = batch.slice(rows.start, rows.stop - rows.start)
        yield _fit(some, there, wanted, place, position + rows.start, np.where(over, sizes, 0)[rows])


def _fit(
    batch: pa.RecordBatch,
    there: Sequence[str],
    wanted: pa.Schema,
    place: Place,
    position: int,
    over: Sizes,
) -> pa.RecordBatch:
    rows = batch.num_rows
    readable_rows = None  # all rows. Else their numbers, and null for a row that is too large
    values: list[str | None] = [None] * rows
    reasons: list[str | None] = [None] * rows
    if over.any():
        readable_rows = pa.array(np.arange(rows), mask=over > 0)
        for row in np.flatnonzero(over).tolist():
            values[row] = _beginning(batch.slice(row, 1))
            reasons[row] = records.record_too_large(place.told % (position + row), int(over[row]), place.most)
    rest = undeclared([*there, *undeclared_within(batch.schema, wanted)], wanted.names)
    columns = [
        pa.array(values, pa.string()),
        pa.array(reasons, pa.string()),
        pa.repeat(pa.scalar(place.key, pa.int64()), rows),
        pc.add(pa.array(np.arange(rows, dtype=np.int64)), position),
        pa.repeat(pa.scalar(rest, pa.string()), rows),
    ]
    for field in wanted:
        at = batch.schema.get_field_index(field.name)
        found = pa.nulls(rows, field.type) if at < 0 else batch.column(at)
        columns.append(_held(found if readable_rows is None else found.take(readable_rows), field, reasons, 0))
    for row in [at for at, reason in enumerate(reasons) if reason is not None and values[at] is None]:
        values[row] = _as_json(batch.slice(row, 1))
    columns[:2] = [pa.array(values, pa.string()), pa.array(reasons, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*_BESIDE, *wanted]))


def _held(array: pa.Array, field: pa.Field, reasons: list[str | None], first: int) -> pa.Array:
    """Return a column in its declared type, with null for each value that the type can't hold.

    The reasons are written into `reasons`, from row `first` on."""
    try:
        return cast(array, field)
    except Unheld as wrong:
        if len(array) == 1:
            reasons[first] = reasons[first] or str(wrong)
            return pa.nulls(1, field.type)
    half = len(array) // 2
    parts = [(0, half), (half, len(array))]
    return pa.concat_arrays([_held(_part(array, *part), field, reasons, first + part[0]) for part in parts])


def _part(array: pa.Array, start: int, stop: int) -> pa.Array:
    """Return some values as an array of their own.

    A slice of lists or maps still has all elements, and Arrow would cast all of them."""
    return array.take(pa.array(np.arange(start, stop))) if types.is_nested(array.type) else array[start:stop]


def elements(array: pa.Array) -> pa.Array:
    """Return the elements of lists, or the keys and values of maps, for which Arrow has no function."""
    kind = array.type
    pairs = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])) if types.is_map(kind) else kind
    return array.cast(pairs).flatten()


def _as_json(row: pa.RecordBatch) -> str:
    """Return a row as JSON, for people."""
    return json.dumps(
        {name: _plain(column) for name, column in zip(row.schema.names, row.columns, strict=True)},
        ensure_ascii=False,
        default=str,
    )


def _plain(value: pa.Array) -> Any:
    """Return one value as a Python value, or as characters if Python can't hold it (the year 10000, invalid UTF-8)."""
    try:
        return value.to_pylist()[0]
    except UnicodeDecodeError:
        return (
            value.cast(pa.binary()).to_pylist()[0].decode("utf-8", "replace")
            if _is_text(value.type)
            else f"a {value.type}"
        )
    except (ValueError, OverflowError):
        return (
            f"{value.cast(pa.int64())[0]} {value.type}"
            if types.is_temporal(value.type) and value.type.bit_width == 64
            else f"a {value.type}"
        )


def _beginning(row: pa.RecordBatch) -> str:
    """Return the beginnings of a row's strings and bytes, as JSON."""
    found = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        value = column[0]
        if types.is_dictionary(column.type) and value.is_valid:
            value = column.dictionary[column.indices[0].as_py()]
        if value.is_valid and hasattr(value, "as_buffer"):
            found[name] = bytes(value.as_buffer()[: records.BEGINNING]).decode("utf-8", "replace")
    return records.beginning_of_record(json.dumps(found, ensure_ascii=False).encode()).decode()


def cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return an array as the declared type. Raise Damaged with both types; Unheld if the type can't hold a value."""
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type != field.type and not _fits(array.type, field.type):
        raise Damaged(f"column {field.name} is {array.type}, which does not fit the declared {field.type}")
    try:
        fitted = in_microseconds(array).cast(_between(array.type, field.type)).cast(field.type)
        fitted.validate(full=True)  # strings may not be UTF-8
        why = _unheld(array, fitted)
    except pa.ArrowInvalid as error:
        why = str(error)[:300]
    if why:
        value = str(_plain(array)) if len(array) == 1 else None
        raise Unheld(not_convertible(f"column {field.name}", str(field.type), value, why))
    return fitted


def _between(there: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return the wanted type, with decimals of 20 digits in place of integer types.

    Arrow casts no integer to a decimal that is too small for some values of its type."""
    if types.is_integer(there) and types.is_decimal(wanted):
        return WHOLE
    if _is_list(there) and _is_list(wanted):
        return pa.list_(_between(there.value_type, wanted.value_type))
    if types.is_map(there) and types.is_map(wanted):
        return pa.map_(_between(there.key_type, wanted.key_type), _between(there.item_type, wanted.item_type))
    if types.is_struct(there) and types.is_struct(wanted):
        return pa.struct(
            [
                (
                    one.name,
                    _between(there.field(one.name).type, one.type)
                    if there.get_field_index(one.name) >= 0
                    else one.type,
                )
                for one in wanted
            ]
        )
    return wanted


def _unheld(array: pa.Array, fitted: pa.Array) -> str | None:
    """Return why Arrow's cast changed a value, or made a value that no sink holds; None if all values are right."""
    kind = fitted.type
    if types.is_null(array.type):
        return None
    if _is_list(kind) or types.is_map(kind):
        return _unheld(elements(array), elements(fitted))
    if types.is_struct(kind):
        there = (
            dict(zip((field.name for field in array.type), array.flatten(), strict=True))
            if types.is_struct(array.type)
            else {}
        )
        parts = zip((field.name for field in kind), fitted.flatten(), strict=True)
        return next((why for name, part in parts if name in there and (why := _unheld(there[name], part))), None)
    if types.is_float32(kind) and types.is_float64(array.type):
        return "it is out of range" if pc.any(pc.and_(pc.is_finite(array), pc.is_inf(fitted))).as_py() else None
    if types.is_date(kind) or types.is_timestamp(kind):
        first, last = YEARS["day" if types.is_date(kind) else "us"]
        ends = pc.min_max(fitted.cast(pa.int32() if types.is_date(kind) else pa.int64()))
        return (
            "its year is not in 1 to 9999"
            if len(fitted) > fitted.null_count and (ends["min"].as_py() < first or ends["max"].as_py() > last)
            else None
        )
    return NUL if types.is_string(kind) and pc.any(pc.match_substring(fitted, "\0")).as_py() else None


def _fits(there: pa.DataType, wanted: pa.DataType) -> bool:
    if types.is_null(there) or there == wanted:
        return True
    if types.is_dictionary(there):
        return _fits(there.value_type, wanted)
    if types.is_nested(wanted) or types.is_nested(there):
        return _parts_fit(there, wanted)
    if types.is_timestamp(wanted):
        # A time without a zone is UTC, as in receive; a time with a zone is not a clock time.
        return types.is_timestamp(there) and (wanted.tz is not None or there.tz is None)
    if types.is_integer(there):
        return types.is_integer(wanted) or types.is_floating(wanted) or types.is_decimal(wanted)
    return any(
        is_it(there) and is_it(wanted)
        for is_it in (types.is_floating, types.is_decimal, types.is_date, _is_text, _is_bytes)
    )


def _parts_fit(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether each part fits.

    A struct may lack a field, which is then null, and may have others, which count as undeclared.
    """
    if _is_list(there) and _is_list(wanted):
        return _fits(there.value_type, wanted.value_type)
    if types.is_map(there) and types.is_map(wanted):
        return _fits(there.key_type, wanted.key_type) and _fits(there.item_type, wanted.item_type)
    if types.is_struct(there) and types.is_struct(wanted):
        return all(
            _fits(there.field(field.name).type, field.type)
            for field in wanted
            if there.get_field_index(field.name) >= 0
        )
    return False


def _is_list(kind: pa.DataType) -> bool:
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
