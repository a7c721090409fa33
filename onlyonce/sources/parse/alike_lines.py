"""Finds the values of lines that are made alike, a block at a time.

The lines of one program differ in their values only.

The layout of most lines (`onlyonce/model/sources/plain_json.py`) says between which quotation marks the values are. A
line is of that layout if it has as many of them, and all that is fixed where it must be. These are comparisons of whole
columns, and take a quarter of the time of an expression and a JSON parser. What is found is what `plain_json.exact`
finds. Nothing is decided here about the other lines.

Who calls it: `plain_lines`. Not promised: which lines are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onlyonce.model.sources import plain_json
from onlyonce.model.sources.plain_json import Layout

SAMPLE = 9
"""So many lines of a block are asked for their layout."""
QUOTE, BACKSLASH, SPACE = b'"\\ '
WORD = 8

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Alike(NamedTuple):
    """Which lines are of the layout, the texts of their values by column, and the kinds of these."""

    rows: Places
    texts: Mapping[str, pa.Array]
    kinds: Mapping[str, str]


class _Block(NamedTuple):
    """Lines as one text with a word more behind it, so that a word can be read at each place; and where each begins,
    and the last ends."""

    text: NDArray[np.uint8]
    bounds: Places


def read(lines: pa.Array, kinds: Mapping[str, str]) -> Alike | None:
    """A block of texts, all of them UTF-8, → those lines that are plain and of one layout; None if they are no more
    than a half of it."""
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
    return Alike(rows, dict(zip(found, columns, strict=True)), found)


def _block(lines: pa.Array) -> _Block | None:
    """None for a block of nothing."""
    _, offsets, data = lines.buffers()
    bounds = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1].astype(np.int64)
    begin, end = (int(bounds[0]), int(bounds[-1])) if len(lines) else (0, 0)
    if begin == end:
        return None
    text = np.zeros(end - begin + WORD, np.uint8)
    text[:-WORD] = np.frombuffer(data, np.uint8)[begin:end]
    return _Block(text, bounds - begin)


def _layout(lines: pa.Array, kinds: Mapping[str, str]) -> Layout | None:
    """The one that most have of some lines all over the block."""
    sample = (lines[at].as_py() for at in range(0, len(lines), -(-len(lines) // SAMPLE)))
    found = Counter(filter(None, (plain_json.layout(line, kinds) for line in sample if line)))
    return found.most_common(1)[0][0] if found else None


def _usual(block: _Block, lines: pa.Array) -> Mask:
    """Which lines have neither a backslash nor a control sign."""
    usual = np.array(lines.is_valid())
    signs = block.text[:-WORD]
    odd = signs == BACKSLASH
    if signs.min() < SPACE:
        odd |= signs < SPACE
    if odd.any():
        usual[np.searchsorted(block.bounds, np.flatnonzero(odd), "right") - 1] = False
    return usual


def _placed(block: _Block, layout: Layout, usual: Mask) -> tuple[Places, list[Places]]:
    """The lines that have all that is fixed, and where in them each piece of it begins.

    Pieces that do not overlap, from the line's begin to its end, with all of its quotation marks: so no value has one.
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
    """Whether the text has this piece at each of these places."""
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
    """The texts from here to there: every second one of those that all these places bound."""
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[::2], bounds[1::2] = begins, ends
    texts = pa.StringArray.from_buffers(max(len(bounds) - 1, 0), pa.py_buffer(bounds), pa.py_buffer(block.text))
    return texts.take(pa.array(np.arange(0, len(texts), 2)))


def _right(column: pa.Array, kind: str) -> Mask | bool:
    """Which values are of their kind. Any text is."""
    if kind == "string":
        return True
    return pc.match_substring_regex(column, plain_json.inner(kind)).to_numpy(zero_copy_only=False)
