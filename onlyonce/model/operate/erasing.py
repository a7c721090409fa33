"""Which records are to be forgotten: those of which some columns have given values.

And the receipt, which never has the values. Pure.

Who calls it: `onlyonce.operate.erase`. Errors: Refused for a condition that is not of the form `column = 'text' AND
column = 17`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onlyonce.model.errors import Refused
from onlyonce.model.values import conversions, line_values
from onlyonce.model.values.conversions import Cell, Unfit

COMPARED = ("string", "bigint", "long", "int", "integer", "smallint", "short", "tinyint", "byte")
"""The types of columns whose values have one text, in `events` as in a line of input."""
PART = re.compile(r"\s*`?([A-Za-z_]\w*)`?\s*=\s*(?:'((?:[^']|'')*)'|([+-]?\d+))\s*")
AND = re.compile(r"\s+and\s+", re.IGNORECASE)
JSON_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\Z)'
PAIR = re.compile(rf"({JSON_STRING})\s*:\s*(?:({JSON_STRING})|([^\s,\[\]{{}}]+))", re.DOTALL)
"""A field and its value in a line that is no JSON, whatever object it is in; the last string may have no end."""
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
BASE64 = re.compile(r'"base64":"((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)"')
BYTE_ORDER_MARK = "\ufeff"
UTF_16 = ("utf-16-le", "utf-16-be")


@dataclass(frozen=True)
class Condition:
    """Values by column, as strings: a record is meant if it has them all.

    `kinds` has the declared types of these columns, `aliases` the name in a line of JSON of a column, if it is another
    one."""

    values: Mapping[str, str]
    kinds: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The columns, without their values."""
        return sorted(self.values)

    def fingerprint(self, salt: str) -> str:
        """By which the same condition is known again. Who knows the salt and has a guess can check the guess."""
        return hmac.new(salt.encode(), json.dumps(sorted(self.values.items())).encode(), hashlib.sha256).hexdigest()

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record is meant. Its values are as a line has them, before the conversion table."""
        return all(self.is_value(name, record.get(name)) for name in self.values)

    def fits_line(self, line: str, columns: Sequence[str] | None) -> bool:
        """Return whether a line is meant: of JSON, or with `columns` of CSV.

        An invalid line is meant if it gives the columns these values.
        """
        line = line.removeprefix(BYTE_ORDER_MARK)
        try:
            if columns is None:
                found = line_values.json_object(line)
                return self.fits({name: found.get(self.aliases.get(name, name)) for name in self.values})
            cells = line_values.csv_cells(line)
            if len(cells) == len(columns):
                return self.fits(dict(zip(columns, cells, strict=True)))
        except line_values.Invalid:
            pass
        pairs = list(_json_pairs(line)) if columns is None else [(None, cell) for cell in _csv_parts(line)]
        return all(
            any(
                name in (None, self.aliases.get(wanted, wanted)) and self.is_value(wanted, given)
                for name, given in pairs
            )
            for wanted in self.values
        )

    def fits_bytes(self, line: bytes, columns: Sequence[str] | None) -> bool:
        """Return whether a line is meant, as `fits_line`, in whichever encoding it is written."""
        return any(self.fits_line(one, columns) for one in decodings(line))

    def may_be_in(self, line: bytes, layout: str | None) -> bool:
        """Return whether a line may be meant, without parsing it.

        A line without escapes has the value's own bytes, unless the value is a JSON object or array, which is compared
        without its white space."""
        escape = (b'"' if layout == "csv" else b"\\") in line or line.startswith(line_values.WHOLE_MESSAGE.encode())
        return escape or any(longest in line for longest in encoded(self.longest))

    @property
    def longest(self) -> str:
        """Return the longest value that a line without escapes has as it is; empty if there is none."""
        return max((value for value in self.values.values() if value[:1] not in ("{", "[")), key=len, default="")

    def is_value(self, name: str, given: Any) -> bool:
        """Return whether a given value is the asked one, as it is written or by the conversion table."""
        if given is None:
            return False
        written = conversions.text(given)
        if written == self.values[name]:
            return True
        try:
            found = (
                conversions.of_type(self.kinds[name])(Cell(written.strip(" ")), [])
                if self.kinds[name] != "string"
                else written
            )
        except Unfit:
            return False
        return str(found) == self.values[name]


def decodings(line: bytes) -> list[str]:
    """Return what a line may say.

    One that is not UTF-8 may be Latin-1 or UTF-16, in which a line feed cuts a character in two. One with a whole
    message says what the message says.
    """
    plain = line.decode("utf-8", "replace")
    if plain.startswith(line_values.WHOLE_MESSAGE):
        return [
            plain,
            *(_unescaped(string) for name, string, _ in PAIR.findall(plain) if name == '"data"'),
            *packed(plain),
        ]
    if "\0" not in plain and "\ufffd" not in plain:
        return [plain]
    halves = [line[start:].decode(code, "replace") for code in UTF_16 for start in (0, 1)] if b"\0" in line else []
    return [plain, line.decode("latin-1"), *halves]


def packed(string: str) -> list[str]:
    """Return what the payloads say that a string has in base64, as a landed message has one that is no text."""
    return [one for found in BASE64.findall(string) for one in decodings(base64.b64decode(found))]


def encoded(value: str) -> set[bytes]:
    """Return the bytes of a value in each encoding that `decodings` reads."""
    return {
        value.encode(code, "ignore")
        for code in ("utf-8", "latin-1", *UTF_16)
        if value.isascii() or code != "latin-1" or max(value) < "\u0100"
    }


def _json_pairs(line: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a line that is no JSON, with their values, at any depth."""
    for name, string, bare in PAIR.findall(line):
        yield _unescaped(name), _unescaped(string) if string else bare


def _unescaped(string: str) -> str:
    """Return what a JSON string says, also one without an end, or with an escape that JSON does not have."""
    return unescaped(string[1:-1] if string.endswith('"') and len(string) > 1 else string[1:])


def unescaped(string: str) -> str:
    """Return a string with the escapes of JSON undone."""
    whole = ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else ESCAPED.get(found[1], found[1]), string
    )
    return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _csv_parts(line: str) -> Iterator[Cell]:
    """Yield whatever may be a value of a line that is no CSV of the declared columns: with quotes, or between two
    commas."""
    for quoted in re.findall(r'"((?:[^"]|"")*+)(?:"|\Z)', line):
        yield Cell(quoted.replace('""', '"'))
    for one in line.split(","):
        yield Cell(one)
        yield Cell(one.strip(' "').replace('""', '"'))


def read(text: str, types: Mapping[str, str]) -> Condition:
    """The condition that a person has written, over the declared columns. Raises Refused."""
    values: dict[str, str] = {}
    for part in AND.split(text.strip()):
        found = PART.fullmatch(part)
        if not found:
            raise _refused(f"{len(text)} characters that are no condition", types)
        name = found[1]
        if name not in types:
            raise _refused(f"{name!r} is not a declared column", types)
        if types[name] not in COMPARED or name in values:
            raise _refused(f"{name!r} is a {types[name]}, or given twice", types)
        values[name] = found[2].replace("''", "'") if found[2] is not None else str(int(found[3]))
    return Condition(values, {name: types[name] for name in values})


def _refused(what: str, types: Mapping[str, str]) -> Refused:
    known = ", ".join(name for name, kind in types.items() if kind in COMPARED)
    return Refused(
        f"--where: {what}",
        data="nothing was changed",
        hint="write it as \"user = 'u17'\" or \"shop = 'x' AND number = 5\", of columns of text or whole numbers: "
        f"{known}",
    )
