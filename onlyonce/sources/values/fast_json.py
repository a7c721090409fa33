"""The fast JSON path: read lines by comparing whole columns, and put their records into blocks for the partitions.

The lines of one program differ in their values only. The layout of most lines (`onlyonce/core/line_template.py`)
defines between which quotation marks the values are. A line is of that layout if it has as many of them, and all fixed
parts in their places. These comparisons of whole columns take a quarter of the time of an expression and a JSON parser,
and find the same lines as `line_template.exact`. Nothing is decided here about the other lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import json as arrow_json

from onlyonce.api.pipeline import Kafka, Pipeline
from onlyonce.api.sources import line_layout
from onlyonce.catalog import filters
from onlyonce.core import conversions, line_template
from onlyonce.core.batch import to_micros
from onlyonce.core.line_template import Layout
from onlyonce.core.stored_names import OO_EVENT_TIME, OO_HIGH, OO_LOW
from onlyonce.engine import session
from onlyonce.sources.values import arrow_lines, parse
from onlyonce.sources.values.parse import BESIDE, BOUND, GIVEN, PLACE

SAMPLE = 9
"""How many lines of a block are sampled for their layout."""
QUOTE, BACKSLASH, SPACE = b'"\\ '
WORD = 8

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]


class TemplateLines(NamedTuple):
    """The lines that are of the layout, the strings of their values by column, and the kinds of the values."""

    rows: Places
    texts: Mapping[str, pa.Array]
    kinds: Mapping[str, str]


class _Block(NamedTuple):
    """Lines as one text, where each begins, and where the last ends.

    More bytes follow the text, so that a word of eight bytes can be read from any byte of it."""

    text: NDArray[np.uint8]
    bounds: Places


def read_by_template(lines: pa.Array, kinds: Mapping[str, str]) -> TemplateLines | None:
    """Return the lines of one layout among a block of UTF-8 strings; None if they are at most half of it."""
    block = _block(lines)
    layout = _layout(lines, kinds) if block else None
    if block is None or layout is None:
        return None
    rows, places = _placed(block, layout, _usual(block, lines))
    columns = [
        _between(block, where + len(fixed), after)
        for where, fixed, after in zip(places, layout.fixed, places[1:], strict=False)
    ]
    right = np.ones(len(rows), bool)
    for column, (_, kind) in zip(columns, layout.values, strict=True):
        right &= _right(column, kind)
    if not right.all():
        rows, columns = rows[right], [column.filter(pa.array(right)) for column in columns]
    if 2 * len(rows) <= len(lines):
        return None
    found = dict(layout.values)
    return TemplateLines(rows, dict(zip(found, columns, strict=True)), found)


def _block(lines: pa.Array) -> _Block | None:
    """Return a block of lines; None if they are all empty."""
    _, offsets, data = lines.buffers()
    bounds = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1].astype(np.int64)
    begin, end = (int(bounds[0]), int(bounds[-1])) if len(lines) else (0, 0)
    if begin == end:
        return None
    text = np.zeros(end - begin + WORD, np.uint8)
    text[:-WORD] = np.frombuffer(data, np.uint8)[begin:end]
    return _Block(text, bounds - begin)


def _layout(lines: pa.Array, kinds: Mapping[str, str]) -> Layout | None:
    """Return the most frequent layout of some lines from all over the block."""
    sample = (lines[at].as_py() for at in range(0, len(lines), -(-len(lines) // SAMPLE)))
    found = Counter(filter(None, (line_template.layout(line, kinds) for line in sample if line)))
    return found.most_common(1)[0][0] if found else None


def _usual(block: _Block, lines: pa.Array) -> Mask:
    """Return which lines have neither a backslash nor a control character."""
    usual = np.array(lines.is_valid())
    signs = block.text[:-WORD]
    odd = signs == BACKSLASH
    if signs.min() < SPACE:
        odd |= signs < SPACE
    if odd.any():
        usual[np.searchsorted(block.bounds, np.flatnonzero(odd), "right") - 1] = False
    return usual


def _placed(block: _Block, layout: Layout, usual: Mask) -> tuple[Places, list[Places]]:
    """Return the lines that have all fixed parts, and where in them each part begins.

    The parts do not overlap, cover the line from its beginning to its end, and have all its quotation marks. So no
    value has a quotation mark.
    """
    quotes = np.flatnonzero(block.text == QUOTE)
    before = np.searchsorted(quotes, block.bounds)
    of_line = sum(piece.count(QUOTE) for piece in layout.fixed)
    fits = usual & (np.diff(before) == of_line)
    rows = np.flatnonzero(fits)
    marks = (
        quotes.reshape(-1, of_line) if len(rows) == len(usual) else quotes[before[rows][:, None] + np.arange(of_line)]
    )
    ends = block.bounds[rows + 1]
    places, passed = list[Places](), 0
    for piece in layout.fixed[:-1]:
        places.append(marks[:, passed] - piece.index(QUOTE))
        passed += piece.count(QUOTE)
    places.append(ends - len(layout.fixed[-1]))

    in_order = places[0] == block.bounds[rows]
    for piece, where, after in zip(layout.fixed, places, places[1:], strict=False):
        in_order &= where + len(piece) <= after
    rows, places = _only(in_order, rows, places)
    there = np.ones(len(rows), bool)
    for piece, where in zip(layout.fixed, places, strict=True):
        there &= _has(block, where, piece)
    return _only(there, rows, places)


def _only(these: Mask, rows: Places, places: list[Places]) -> tuple[Places, list[Places]]:
    return (rows, places) if these.all() else (rows[these], [where[these] for where in places])


def _has(block: _Block, where: Places, piece: bytes) -> Mask:
    """Return whether the text has this part at each of these places."""
    size = -(-len(piece) // WORD) * WORD
    at = np.ndarray(len(block.text) - size + 1, f"V{size}", block.text, strides=(1,))
    there = at[where].view("<u8").reshape(-1, size // WORD)
    same = np.ones(len(where), bool)
    for number, begin in enumerate(range(0, len(piece), WORD)):
        part = piece[begin : begin + WORD]
        mask = np.uint64((1 << 8 * len(part)) - 1)
        same &= there[:, number] & mask == np.uint64(int.from_bytes(part, "little"))
    return same


def _between(block: _Block, begins: Places, ends: Places) -> pa.Array:
    """Return the strings from each beginning to its end: every second string between all these bounds."""
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[::2], bounds[1::2] = begins, ends
    texts = pa.StringArray.from_buffers(max(len(bounds) - 1, 0), pa.py_buffer(bounds), pa.py_buffer(block.text))
    return texts.take(pa.array(np.arange(0, len(texts), 2)))


def _right(column: pa.Array, kind: str) -> Mask | bool:
    """Return which values are of their kind. Any string is."""
    if kind == "string":
        return True
    return pc.match_substring_regex(column, line_template.inner(kind)).to_numpy(zero_copy_only=False)


# Plain lines of all layouts, read by Arrow, a block at a time. The table's reader reads line by line.
#
# A line is plain by its text alone (`onlyonce/core/line_template.py`). The definition is so narrow that Arrow and the
# table's reader yield the same values. Lines of one layout are cut into their values; the others of a block go through
# an expression and Arrow's JSON reader. The table's reader, which alone decides what is invalid, reads all lines that
# are not plain. It also reads all lines of a block that Arrow refuses (a key that occurs twice, the 30th of February).
# So a record's fate does not depend on which of them reads it. A line longer than LONGEST is never read here.


LONGEST = 4096
"""In bytes. A block is 65,536 lines, and a worker holds it several times."""
TYPES = arrow_lines.TYPES | {"seconds": pa.int64()}
AS_TEXT = ("date", "timestamp")
"""JSON has no values of these types: they are read as strings and cast."""
ZONED = r"(?:Z|[+-][0-9]{2}:[0-9]{2})\z"

Kinds = Mapping[str, str]
Found = tuple[pa.Array, list[pa.Array]]


def read_plain(lines: pa.Array, kinds: Kinds) -> Found:
    """Return which lines of a block are plain and have times of the years 1 to 9999, and the columns of these lines."""
    found, columns = _read(lines, kinds)
    right = np.ones(len(columns[0]), bool) if columns else np.zeros(0, bool)
    for column in columns:
        if column.type == TYPES["timestamp"]:
            # An offset may lead into the year 10000, and a number of seconds to before the year 1.
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
    lines_of_template = read_by_template(lines, kinds)
    try:
        columns = (
            [_of_template(lines_of_template, name, kind) for name, kind in kinds.items()] if lines_of_template else []
        )
    except pa.ArrowInvalid:
        lines_of_template = None
    if lines_of_template is None:
        return _by_expression(lines, kinds)
    rows = lines_of_template.rows
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
    """Return the lines, with null for lines that are not UTF-8: RE2 misreads surrogates and invalid characters."""
    try:
        lines.validate(full=True)
    except pa.ArrowInvalid:
        return pc.if_else(pc.match_substring_regex(lines.view(pa.binary()), line_template.UTF8), lines, None)
    return lines


def _of_template(lines_of_template: TemplateLines, name: str, kind: str) -> pa.Array:
    if name not in lines_of_template.texts:
        return pa.nulls(len(lines_of_template.rows), TYPES[kind])
    return _cast(lines_of_template.texts[name], lines_of_template.kinds[name])


def _by_expression(lines: pa.Array, kinds: Kinds) -> Found:
    """Read lines whose times are all strings or all seconds since 1970.

    If a block mixes both, read the more frequent form.
    """
    form, found = kinds, _found(lines, kinds)
    if 2 * found.true_count < len(lines):
        other = {name: line_template.SECONDS.get(kind, kind) for name, kind in kinds.items()}
        form, found = max((form, found), (other, _found(lines, other)), key=lambda each: each[1].true_count)
    try:
        return found, _parsed(lines.filter(found), form)
    except pa.ArrowInvalid:
        return pa.repeat(pa.scalar(False), len(lines)), [pa.nulls(0, TYPES[kind]) for kind in kinds.values()]


def _found(lines: pa.Array, kinds: Kinds) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(lines, line_template.exact(kinds)), False)


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
        # A time without a zone is UTC, as in all our sessions; Arrow requires a zone for all of them or for none.
        zoned = pc.match_substring_regex(column, ZONED)
        column = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
    if kind == "seconds":
        return pc.multiply(column.cast(pa.int64()), 1_000_000).cast(TYPES["timestamp"])
    return column.cast(TYPES[kind])


# Blocks of records: they are read, get their id and are sorted into their partition, without a row in the JVM.
#
# A block is an Arrow message with the records of one partition of the batch. It waits in a file for its task
# (`block_files`). A line stays a line if it is neither plain nor read by Arrow as the table reads it (`arrow_lines`).
# The same holds for a line whose record would not be kept: without id or event time, or with a time before 1970 or too
# far ahead. The table's reader then decides (`parse`). So a block has only valid records, and a record's fate does not
# depend on whether it is in a block. The ids equal the ids of `parse`, to the bit.


AS_TIMES = ("timestamp", "date")
FIRST_TIME = 0
"""In microseconds, the first valid event time (`parse.FIRST_TIME`)."""
INSTANT = TYPES["timestamp"]
FOUND = [(OO_EVENT_TIME, INSTANT), (OO_HIGH, pa.int64()), (OO_LOW, pa.int64()), ("oo_payload", pa.int64())]


@dataclass(frozen=True)
class Reader:
    """The parameters of a task on the fast JSON path, from the declaration and the batch.

    kinds       the declared types: scalars as people write them, others as `DataType.jsonValue`
    named       the name in the source of each column
    latest      the last valid event time, in microseconds
    record_id   the id columns; empty: a record is identified by its place
    salt        comes before the values of each id
    forms       the forms of some times
    """

    kinds: Mapping[str, Any]
    named: Mapping[str, str]
    beside: Mapping[str, str]
    """The columns that come separately from the line, by their names in the batch."""
    record_id: tuple[str, ...]
    event_time: str
    latest: int
    partitions: int
    salt: str = ""
    layout: str = "json"
    forms: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the records in a block."""
        return pa.schema([*((name, arrow_lines.declared(kind)) for name, kind in self.kinds.items()), *FOUND])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn batches of lines (oo_line, …) into batches of blocks with their partitions, and batches of other lines.

        The other lines have BOUND, the last valid event time. It is data, since as a number in the plan it would make
        Spark compile the plan for each batch."""
        for lines in batches:
            left, records = self.apart(lines)
            if left.num_rows:
                yield self._with(left, pa.nulls(left.num_rows, pa.binary()))
            if records.num_rows:
                yield self._packed(lines, records)

    def apart(self, lines: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the lines of a batch that are left, and the records of the others."""
        rows, records = self._records(lines)
        left = np.ones(lines.num_rows, bool)
        left[rows] = False
        return lines.filter(pa.array(left)) if left.any() else lines.slice(0, 0), records

    def bounded(self, lines: pa.RecordBatch) -> pa.RecordBatch:
        """Return lines with BOUND."""
        return lines.append_column(BOUND, pa.repeat(pa.scalar(self.latest, INSTANT), lines.num_rows))

    def _records(self, lines: pa.RecordBatch) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Return the rows whose lines Arrow reads and whose records are valid, and these records."""
        of_line = {
            name: conversions.with_forms(name, kind, self.forms)
            for name, kind in self.kinds.items()
            if name not in self.beside
        }
        rows, columns = read_plain_records(
            _unrefused(lines), {self.named[name]: kind for name, kind in of_line.items()}, self.layout
        )
        found = dict(zip(of_line, columns, strict=True))
        found |= {name: lines.column(column).take(pa.array(rows)) for name, column in self.beside.items()}
        time = found[self.event_time].cast(INSTANT)
        micros = pc.fill_null(time.cast(pa.int64()), self.latest + 1)
        valid = pc.and_(pc.less_equal(micros, self.latest), pc.greater_equal(micros, FIRST_TIME))
        for name in self.record_id:
            valid = pc.and_(valid, found[name].is_valid())
        columns = [*(found[name] for name in self.kinds), time]
        if valid.false_count:
            rows = rows[valid.to_numpy(zero_copy_only=False)]
            columns = [column.filter(valid) for column in columns]
        high, low, payload = self._identified(lines, rows, dict(zip(self.kinds, columns, strict=False)))
        hashes = [pa.array(half.view(np.int64)) for half in (high, low, payload)]
        return rows, pa.RecordBatch.from_arrays([*columns, *hashes], schema=self.schema)

    def _identified(
        self, lines: pa.RecordBatch, rows: NDArray[np.int64], columns: Mapping[str, pa.Array]
    ) -> tuple[filters.Hashes, filters.Hashes, filters.Hashes]:
        here = pa.array(rows)
        payload = filters.hashes_of_texts(lines.column("oo_line").take(here))
        for name in self.beside:
            given = pc.binary_join_element_wise(GIVEN, parse.ids_of_arrow(columns[name], self.kinds[name]), "")
            payload = filters.hashes_of_texts(pc.fill_null(given, ""), payload)
        # The salt before the values is the same for all rows.
        firsts = [np.full(1, filters.SEED, np.uint64), filters.hashes_of_texts(pa.array(["low"]))]
        if self.salt:
            firsts = [filters.hashes_of_texts(pa.array([self.salt]), first) for first in firsts]
        seeds = [np.repeat(first, len(rows)) for first in firsts]
        if not self.record_id:
            places = [lines.column(name).take(here).to_numpy() for name in PLACE]
            high, low = (
                filters.hashes_of_numbers(places[1], filters.hashes_of_numbers(places[0], seed)) for seed in seeds
            )
            return high, low, payload
        for name in self.record_id:
            text = parse.ids_of_arrow(columns[name], self.kinds[name])
            seeds = [filters.hashes_of_texts(text, seed) for seed in seeds]
        return seeds[0], seeds[1], payload

    def _packed(self, lines: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return one row for each partition that has any record."""
        targets = np.mod(records.column(OO_HIGH).to_numpy(), self.partitions)
        here = np.unique(targets)
        parts = [records] if len(here) == 1 else [records.take(pa.array(np.flatnonzero(targets == at))) for at in here]
        blocks = pa.array([part.serialize().to_pybytes() for part in parts], pa.binary())
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(len(here), field.type) for field in lines.schema], schema=lines.schema
        )
        return self._with(nothing, blocks, here)

    def _with(
        self, lines: pa.RecordBatch, blocks: pa.Array, targets: NDArray[np.int64] | None = None
    ) -> pa.RecordBatch:
        target = pa.nulls(len(blocks), pa.int32()) if targets is None else pa.array(targets.astype(np.int32))
        return self.bounded(lines.append_column("block", blocks).append_column("target", target))


def plain_record_reader(pipeline: Pipeline, ingestion_time: datetime, partitions: int) -> Reader | None:
    """Return the reader of the fast JSON path, which turns lines into blocks for `partitions` partitions.

    None if the pipeline's types or format leave all lines to the table's reader.
    """
    fields = {
        field.name: (field.dataType.simpleString(), field.dataType.jsonValue())
        for field in session.schema_of(pipeline.schema).fields
    }
    kinds = {name: simple if isinstance(json_type, str) else json_type for name, (simple, json_type) in fields.items()}
    source = pipeline.source
    beside = source.beside if isinstance(source, Kafka) else ()
    of_line = [kind for name, kind in kinds.items() if name not in beside]
    if (
        source.format not in ("json", "csv")
        or not of_line
        or any(arrow_lines.declared(kind) is None for kind in kinds.values())
    ):
        return None
    if kinds[pipeline.event_time] not in AS_TIMES:
        return None
    # Spark and Arrow write other types as other strings, or Arrow does not write them: the hashes would differ.
    if any(kinds[name] not in parse.AS_CAST for name in (*pipeline.record_id, *beside)) or (
        pipeline.part and pipeline.part.columns
    ):
        return None
    latest = to_micros(ingestion_time + pipeline.max_ahead)
    assert latest is not None
    gets = {name: f"{BESIDE}{name}" for name in beside}
    salt = pipeline.part.salt if pipeline.part else ""
    return Reader(
        kinds,
        pipeline.named(),
        gets,
        pipeline.record_id,
        pipeline.event_time,
        latest,
        partitions,
        salt,
        line_layout(source),
        pipeline.formats,
    )


def read_plain_records(
    lines: pa.Array, kinds: Mapping[str, Any], layout: str = "json"
) -> tuple[NDArray[np.int64], list[pa.Array]]:
    """Return the lines that are read, and their columns.

    They are flat lines that are plain by their text, and other lines that Arrow reads as the table does."""
    types = [arrow_lines.declared(kind) for kind in kinds.values()]
    rows, columns = np.zeros(0, np.int64), [pa.nulls(0, one) for one in types]
    if layout == "json" and all(isinstance(kind, str) and kind in line_template.EXACT for kind in kinds.values()):
        plain_ones, columns = read_plain(lines, kinds)
        rows = np.flatnonzero(plain_ones.to_numpy(zero_copy_only=False))
    if len(rows) == len(lines):
        return rows, columns
    others = np.delete(np.arange(len(lines)), rows)
    found = arrow_lines.read_lines(lines.take(pa.array(others)), kinds, layout)
    if not len(found.rows):
        return rows, columns
    more = [arrow_lines.typed(column, one) for column, one in zip(found.columns, types, strict=True)]
    if not len(rows):
        return others[found.rows], more
    return arrow_lines.merged(arrow_lines.Found(rows, columns), arrow_lines.Found(others[found.rows], more))


def _unrefused(lines: pa.RecordBatch) -> pa.Array:
    reasons = lines.column("oo_refused")
    value = lines.column("oo_line")
    return value if reasons.null_count == len(reasons) else pc.if_else(reasons.is_valid(), None, value)
