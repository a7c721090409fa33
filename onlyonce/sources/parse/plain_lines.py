"""Reads plain lines by Arrow, a block at a time. The table's reader reads line by line.

A line is plain by its text alone (`onlyonce/model/sources/plain_json.py`). The definition is so narrow that Arrow and
the table's reader give the same values. Lines of one layout are cut into their values (`alike_lines`); the others of a
block go by an expression and Arrow's JSON reader. Every line that is not plain, and every line of a block that Arrow
refuses (a key twice, the 30th of February), is left to the table's reader, which alone decides what is invalid. So a
record's fate does not depend on which of them reads it.

Who calls it: `plain_records`. Not promised: which lines are read here. A line longer than LONGEST never is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from onlyonce.model.sources import plain_json
from onlyonce.sources.parse import alike_lines, arrow_lines
from onlyonce.sources.parse.alike_lines import Alike

LONGEST = 4096
"""In bytes. A block is 65,536 lines, which a worker holds a few times over."""
TYPES = arrow_lines.TYPES | {"seconds": pa.int64()}
AS_TEXT = ("date", "timestamp")
"""Of these JSON has no values: they are read as text and cast."""
ZONED = r"(?:Z|[+-][0-9]{2}:[0-9]{2})\z"

Kinds = Mapping[str, str]
Found = tuple[pa.Array, list[pa.Array]]


def read(lines: pa.Array, kinds: Kinds) -> Found:
    """Return which lines of a block are plain and have times of the years 1 to 9999, and the columns of those."""
    found, columns = _read(lines, kinds)
    right = np.ones(len(columns[0]), bool) if columns else np.zeros(0, bool)
    for column in columns:
        if column.type == TYPES["timestamp"]:
            # An offset leads into the year 10000, and a number of seconds before the year 1.
            micros = column.cast(pa.int64())
            right &= np.array(
                pc.fill_null(
                    pc.and_(pc.greater_equal(micros, arrow_lines.FIRST), pc.less_equal(micros, arrow_lines.LAST)), True
                )
            )
    if right.all():
        return found, columns
    mask = np.array(found)
    mask[np.flatnonzero(mask)[~right]] = False
    return pa.array(mask), [column.filter(pa.array(right)) for column in columns]


def _read(lines: pa.Array, kinds: Kinds) -> Found:
    lines = _texts(pc.if_else(pc.less_equal(pc.binary_length(lines), LONGEST), lines, None))
    alike = alike_lines.read(lines, kinds)
    try:
        columns = [_of_alike(alike, name, kind) for name, kind in kinds.items()] if alike else []
    except pa.ArrowInvalid:
        alike = None
    if alike is None:
        return _by_expression(lines, kinds)
    rows = alike.rows
    found = np.zeros(len(lines), bool)
    found[rows] = True
    if not found.all():
        others = np.flatnonzero(~found)
        read_on, more = _by_expression(lines.take(pa.array(others)), kinds)
        others = others[read_on.to_numpy(zero_copy_only=False)]
        found[others] = True
        columns = arrow_lines.merged(arrow_lines.Found(rows, columns), arrow_lines.Found(others, more)).columns
    return pa.array(found), columns


def _texts(lines: pa.Array) -> pa.Array:
    """Without the lines that are no UTF-8. RE2 takes half of a surrogate for a sign, and more signs than there are."""
    try:
        lines.validate(full=True)
    except pa.ArrowInvalid:
        return pc.if_else(pc.match_substring_regex(lines.view(pa.binary()), plain_json.UTF8), lines, None)
    return lines


def _of_alike(alike: Alike, name: str, kind: str) -> pa.Array:
    if name not in alike.texts:
        return pa.nulls(len(alike.rows), TYPES[kind])
    return _cast(alike.texts[name], alike.kinds[name])


def _by_expression(lines: pa.Array, kinds: Kinds) -> Found:
    """Times are texts or seconds since 1970: of a block that has both, the fewer are left to the table's reader."""
    form, found = kinds, _found(lines, kinds)
    if 2 * found.true_count < len(lines):
        other = {name: plain_json.SECONDS.get(kind, kind) for name, kind in kinds.items()}
        form, found = max((form, found), (other, _found(lines, other)), key=lambda each: each[1].true_count)
    try:
        return found, _parsed(lines.filter(found), form)
    except pa.ArrowInvalid:
        return pa.repeat(pa.scalar(False), len(lines)), [pa.nulls(0, TYPES[kind]) for kind in kinds.values()]


def _found(lines: pa.Array, kinds: Kinds) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(lines, plain_json.exact(kinds)), False)


def _parsed(lines: pa.Array, kinds: Kinds) -> list[pa.Array]:
    if not len(lines):
        return [pa.nulls(0, TYPES[kind]) for kind in kinds.values()]
    whole = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
    text = whole.buffers()[2]
    fields = [(name, pa.string() if kind in AS_TEXT else TYPES[kind]) for name, kind in kinds.items()]
    table = arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error"),
    )
    return [_cast(table.column(name).combine_chunks(), kind) for name, kind in kinds.items()]


def _cast(column: pa.Array, kind: str) -> pa.Array:
    if kind == "timestamp" and not pc.all(pc.ends_with(column, "Z")).as_py():
        # A time without a zone is UTC, as in every session of ours; Arrow wants a zone for all of them or for none.
        zoned = pc.match_substring_regex(column, ZONED)
        column = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
    if kind == "seconds":
        return pc.multiply(column.cast(pa.int64()), 1_000_000).cast(TYPES["timestamp"])
    return column.cast(TYPES[kind])
