"""Decide whether a decoded part of a file or table mentions what an erasure means. Pure.

A part is a row (values by column), a string (a line of a log, a payload) or bytes (state of Spark). It mentions a
condition if it has all its values. A bound of a column may have the beginning of a value only. In a string a value
counts as a whole word, so `u17` is not in `u170`. A number, or a value of fewer than `LONG` characters, counts only if
the column's name is there too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, unquote_plus

from onlyonce.model.operate.erasing import Condition, decodings, encoded, packed, unescaped

LONG = 4
ESCAPES = ("\\", "%", "+", '""', '"base64":')
"""A string without any of these has a value as it is."""
HEXADECIMAL = re.compile("(?:[0-9a-fA-F]{2}){4,}")
"""How `events` has an invalid line that is not UTF-8."""
NAME = re.compile(r"[^/\s]+")
"""A word of a text, or a name in a path."""
BOUND, BOUND_OF_DELTA = 16, 32
"""So many characters of a value the bounds of a column have at least: in a manifest of Iceberg, and in the log of
Delta."""
TIMES = 3
"""So often a string is unescaped: JSON in JSON in the URL of an access log."""


@dataclass(frozen=True)
class Mentions:
    """The test of one condition.

    `names`: under which names the sources have each of its columns, if not under that name only.
    """

    condition: Condition
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def longest_string(self) -> str:
        """Return the longest value of a string column; empty if there is none."""
        return max(
            (value for name, value in self.condition.values.items() if self.condition.kinds[name] == "string"),
            key=len,
            default="",
        )

    def in_row(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has all values, each in its own column if there is one, else in any column."""
        return all(self._in_columns(name, row) for name in self.condition.values)

    def in_string(self, string: str) -> bool:
        """Return whether a string has all values in one of its spellings."""
        return self.in_message(string) or any(
            all(self._in(name, one) for name in self.condition.values) for one in spellings(string)
        )

    def hidden(self, string: str) -> str:
        """Return a text about places, such as paths, without the values: what a receipt stores must not have them."""
        for value in self.condition.values.values():
            string = string.replace(value, "…") if len(value) >= LONG else string
        return NAME.sub(lambda name: "…" if self.in_string(name[0]) else name[0], string)

    def in_bytes(self, content: bytes) -> bool:
        """Return whether bytes have all values, numbers in 8 bytes as rows of Spark have them."""
        return all(any(one in content for one in each) for each in self._encoded)

    def in_file(self, content: bytes) -> bool:
        """Return whether bytes of no known form have all values.

        A few bytes are in any file by chance, so short values are looked for elsewhere only.
        """
        return len(self.longest_string) >= LONG and self.in_bytes(content)

    def in_message(self, string: str) -> bool:
        """Return whether a string is a message of Avro or Protobuf in hexadecimal that has all values.

        It has no names of columns; before a string is its length.
        """
        if len(self.longest_string) < LONG or not HEXADECIMAL.fullmatch(string):
            return False
        content = bytes.fromhex(string)
        return all(
            any(one in content for one in _in_messages(value, self.condition.kinds[name]))
            for name, value in self.condition.values.items()
        )

    def _in_columns(self, name: str, row: Mapping[str, Any]) -> bool:
        given = [row[one] for one in self._called(name) if row.get(one) is not None]
        if given:  # an invalid record has no columns, and its line in another one
            return any(self.condition.is_value(name, one) for one in given)
        if self.condition.kinds[name] != "string":
            return False  # a number that any column may have
        return any(self._in_cell(name, cell) for cell in row.values())

    def _in_cell(self, name: str, cell: Any) -> bool:
        """A cell of another column: the value itself, or a string, list or structure that has it."""
        if isinstance(cell, Mapping):
            return self._in_columns(name, cell)
        if isinstance(cell, list | tuple):
            return any(self._in_cell(name, one) for one in cell)
        if isinstance(cell, bytes):
            cell = cell.decode("utf-8", "replace")
            if len(cell) >= BOUND and self.condition.values[name].startswith(
                cell[:-1]
            ):  # the last character of an upper bound is raised
                return True
        if not isinstance(cell, str):
            return False
        return (
            cell == self.condition.values[name]
            or self.in_message(cell)
            or any(self._in(name, one) for one in spellings(cell))
        )

    def _in(self, name: str, string: str) -> bool:
        value = self.condition.values[name]
        if (len(value) < LONG or self.condition.kinds[name] != "string") and not any(
            one in string for one in self._called(name)
        ):
            return False
        if len(value) > BOUND_OF_DELTA and "minValues" in string and value[: BOUND_OF_DELTA - 1] in string:
            return True
        return value in string and any(_alone(string, value, at) for at in _all(value, string))

    def _called(self, name: str) -> tuple[str, ...]:
        return self.names.get(name, (name,))

    @cached_property
    def _encoded(self) -> list[list[bytes]]:
        return [self._bytes(name, value) for name, value in self.condition.values.items()]

    def _bytes(self, name: str, value: str) -> list[bytes]:
        if self.condition.kinds[name] == "string":
            return [*encoded(value)]
        number = int(value)
        return (
            [number.to_bytes(8, order, signed=True) for order in ("little", "big")]
            if -(2**63) <= number < 2**63
            else []
        )


def _in_messages(value: str, kind: str) -> tuple[bytes, bytes]:
    """Return a value as a message of Protobuf has it, and as one of Avro."""
    if kind == "string":
        content = value.encode()
        return _varint(len(content)) + content, _varint(2 * len(content)) + content
    number = int(value)
    return _varint(number % 2**64), _varint(2 * number if number >= 0 else -2 * number - 1)


def _varint(number: int) -> bytes:
    parts = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(part | 0x80 for part in parts[:-1]), parts[-1]])


def spellings(string: str) -> Iterator[str]:
    """Yield a string as it is, and with its escapes undone: of JSON, of a URL, of CSV; each several times, one within
    the other."""
    yield string
    seen, waiting = {string}, [string]
    for _ in range(TIMES):
        waiting = [one for each in waiting for one in _undone(each) if one not in seen]
        for one in waiting:
            if one not in seen:
                seen.add(one)
                yield one


def _undone(string: str) -> Iterator[str]:
    if HEXADECIMAL.fullmatch(string):
        yield from decodings(bytes.fromhex(string))
    if "\\" in string:
        yield unescaped(string)
    if "%" in string or "+" in string:
        yield unquote(string)
        yield unquote_plus(string)
    yield from packed(string)
    if '""' in string:
        yield string.replace('""', '"')


def _all(value: str, string: str) -> Iterator[int]:
    at = string.find(value)
    while at >= 0:
        yield at
        at = string.find(value, at + 1)


def _alone(string: str, value: str, at: int) -> bool:
    """Return whether a value is no part of a longer word."""
    before, after = string[at - 1 : at], string[at + len(value) : at + len(value) + 1]
    return not (_word(before) and _word(value[:1])) and not (_word(after) and _word(value[-1:]))


def _word(character: str) -> bool:
    return character.isalnum() or character == "_"
