"""Find the records that an erasure selects, in lines, rows and files, and report what it can't clean. Pure.

The receipt of an erasure never has the values.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import unquote, unquote_plus

from onlyonce.core import conversions, encodings, line_values
from onlyonce.core.conversions import Cell, Unfit
from onlyonce.core.errors import Refused

NOT_SEARCHED = "not searched"


@dataclass(frozen=True)
class Left:
    """An entry of the receipt: a place that still has values of the records, or may have them.

    place  its path, table or name
    found  how many parts of it the search found, or why the search does not read it
    goes   when the values will be deleted, or what to do to remove them
    """

    place: str
    found: str
    goes: str

    def row(self) -> dict[str, str]:
        """Return the entry as the report shows it."""
        return asdict(self)

    def line(self) -> str:
        """Return the entry as the log stores it."""
        return f"{self.place}: {self.found}; {self.goes}"


# When values that an erasure can't remove are gone: from a Kafka topic, PostgreSQL's write-ahead log, and the versions
# that object stores keep. Their settings decide.


POLICY, RETENTION, SEGMENT = "cleanup.policy", "retention.ms", "segment.ms"
"""The settings of a topic that decide this."""

KEPT = {
    "gs": "soft delete keeps them for as long as the bucket says (7 days if it says nothing); lifecycle rules "
    "remove old versions and uploads",
    "abfss": "soft delete and versions keep them for as long as the account says; an upload that was not ended goes "
    "after a week",
}
"""Versions that a store keeps of deleted or replaced objects, by the scheme of its URL."""
KEPT_BY_S3 = (
    "if the bucket keeps versions, a lifecycle rule removes the old ones (NoncurrentVersionExpiration); one "
    "with AbortIncompleteMultipartUpload removes such uploads"
)


def lasting_in_bucket(url: str) -> str:
    """Return how long a store keeps what was deleted from a bucket."""
    return KEPT.get(url.partition(":")[0], KEPT_BY_S3)


def lasting_in_topic(configuration: Mapping[str, str] | None, now: datetime | None = None) -> str:
    """Return when a topic has lost all its current messages. `configuration` is None if the broker did not answer."""
    if configuration is None:
        return "once the topic's retention has passed (the broker does not tell it)"
    policy = {one.strip() for one in configuration[POLICY].split(",")}
    retention, segment = int(configuration[RETENTION]), int(configuration[SEGMENT])
    if "delete" not in policy:
        return (
            f"never by themselves ({POLICY}={configuration[POLICY]}): send a newer message of the same key, or "
            "delete them (kafka-delete-records)"
        )
    if retention < 0:
        return f"never by themselves ({RETENTION}={retention}): delete them (kafka-delete-records)"
    # The broker deletes whole segments, by their newest message.
    try:
        at = (now or datetime.now(UTC)) + timedelta(milliseconds=retention + segment)
    except OverflowError:
        return f"never by themselves ({RETENTION}={retention}): delete them (kafka-delete-records)"
    return f"by {at:%Y-%m-%dT%H:%MZ} ({RETENTION}={retention}, {SEGMENT}={segment})"


def lasting_in_write_ahead_log(
    checkpoint_timeout: str, max_wal_size: str, *, recycled: bool, archived: bool, slots: Sequence[str]
) -> str:
    """Return how long old bytes stay in the write-ahead log.

    A checkpoint does nothing if nothing was written, so there is no time by which they are certainly gone.
    """
    said = (
        f"each checkpoint ({checkpoint_timeout} apart, while the server is written to) gives up the segments from "
        "before the last one"
    )
    if recycled:
        said += (
            f"; a segment that is recycled has its old bytes until it is written over, within {max_wal_size} of writes"
        )
    if archived:
        said += "; the archive has copies as long as its own retention says"
    if slots:
        said += f"; the replication slots {', '.join(slots)} hold what their readers have not read"
    return said


# The condition: records are forgotten if some columns have the given values.


COMPARED = ("string", "bigint", "long", "int", "integer", "smallint", "short", "tinyint", "byte")
"""The types of columns whose values have one string form, in `events` and in a line of input."""
PART = re.compile(r"\s*`?([A-Za-z_]\w*)`?\s*=\s*(?:'((?:[^']|'')*)'|([+-]?\d+))\s*")
AND = re.compile(r"\s+and\s+", re.IGNORECASE)
JSON_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\Z)'
PAIR = re.compile(rf"({JSON_STRING})\s*:\s*(?:({JSON_STRING})|([^\s,\[\]{{}}]+))", re.DOTALL)
"""A field and its value in a line that is not JSON, at any depth; the last string may have no end."""
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
BASE64 = re.compile(r'"base64":"((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)"')
BYTE_ORDER_MARK = "\ufeff"
UTF_16 = ("utf-16-le", "utf-16-be")


@dataclass(frozen=True)
class Condition:
    """Values by column, as strings: a record matches if it has all of them.

    `kinds` has the declared types of these columns, `aliases` the names in a line of JSON that differ from the
    columns' names, `delimiter` what separates the values in a line of CSV, `null` its words for null."""

    values: Mapping[str, str]
    kinds: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","
    null: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Return the columns, without their values."""
        return sorted(self.values)

    def fingerprint(self, salt: str) -> str:
        """Return a hash that identifies the condition. Anyone who knows the salt can check a guess of the values."""
        return hmac.new(salt.encode(), json.dumps(sorted(self.values.items())).encode(), hashlib.sha256).hexdigest()

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record matches. Its values are as in a line, before the conversion table."""
        return all(self.is_value(name, record.get(name)) for name in self.values)

    def fits_line(self, line: str, columns: Sequence[str] | None) -> bool:
        """Return whether a line matches: a line of JSON, or of CSV if `columns` is given.

        An invalid line matches if it has these values for the columns.
        """
        line = line.removeprefix(BYTE_ORDER_MARK)
        try:
            if columns is None:
                found = line_values.json_object(line)
                return self.fits({name: found.get(self.aliases.get(name, name)) for name in self.values})
            cells = line_values.csv_cells(line, self.delimiter, self.null)
            if len(cells) == len(columns):
                return self.fits(dict(zip(columns, cells, strict=True)))
        except line_values.Invalid:
            pass
        pairs = (
            list(_json_pairs(line)) if columns is None else [(None, cell) for cell in _csv_parts(line, self.delimiter)]
        )
        return all(
            any(
                name in (None, self.aliases.get(wanted, wanted)) and self.is_value(wanted, given)
                for name, given in pairs
            )
            for wanted in self.values
        )

    def fits_bytes(self, line: bytes, columns: Sequence[str] | None) -> bool:
        """Return whether a line matches as in `fits_line`, in any of its possible encodings."""
        return any(self.fits_line(one, columns) for one in decodings(line))

    def may_be_in(self, line: bytes, layout: str | None) -> bool:
        """Return whether a line may match, without parsing it.

        A line without escapes has the value's own bytes, unless the value is a JSON object or array, which is compared
        without its white space."""
        escape = (b'"' if layout == "csv" else b"\\") in line or line.startswith(line_values.WHOLE_MESSAGE.encode())
        return escape or any(longest in line for longest in encoded(self.longest))

    @property
    def longest(self) -> str:
        """Return the longest value that a line without escapes contains unchanged; empty if there is none."""
        return max((value for value in self.values.values() if value[:1] not in ("{", "[")), key=len, default="")

    def is_value(self, name: str, given: Any) -> bool:
        """Return whether a given value equals the wanted one, as it is written or by the conversion table."""
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
    """Return the strings that a line may stand for.

    A line that is not UTF-8 may be Latin-1 or UTF-16, in which a line feed cuts a character in two. A line that holds a
    whole message also stands for the message's own strings.
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
    """Return the decodings of the base64 payloads in a string: a pulled message that is not text has its payload so."""
    return [one for found in BASE64.findall(string) for one in decodings(base64.b64decode(found))]


def encoded(value: str) -> set[bytes]:
    """Return the bytes of a value in each encoding that `decodings` reads."""
    return {
        value.encode(code, "ignore")
        for code in ("utf-8", "latin-1", *UTF_16)
        if value.isascii() or code != "latin-1" or max(value) < "\u0100"
    }


def _json_pairs(line: str) -> Iterator[tuple[str, str]]:
    """Yield the fields and values of a line that is not JSON, at any depth."""
    for name, string, bare in PAIR.findall(line):
        yield _unescaped(name), _unescaped(string) if string else bare


def _unescaped(string: str) -> str:
    """Return the content of a JSON string, which may lack its end or have an escape that JSON does not define."""
    return unescaped(string[1:-1] if string.endswith('"') and len(string) > 1 else string[1:])


def unescaped(string: str) -> str:
    """Return a string with the escapes of JSON undone."""
    whole = ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else ESCAPED.get(found[1], found[1]), string
    )
    return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _csv_parts(line: str, delimiter: str) -> Iterator[Cell]:
    """Yield all possible values of a line that is not CSV of the declared columns: quoted, or between delimiters."""
    for quoted in re.findall(r'"((?:[^"]|"")*+)(?:"|\Z)', line):
        yield Cell(quoted.replace('""', '"'))
    for one in line.split(delimiter):
        yield Cell(one)
        yield Cell(one.strip(' "').replace('""', '"'))


def read_conditions(text: str, types: Mapping[str, str]) -> Condition:
    """Return the condition that a person has written, over the declared columns. Raise Refused."""
    values: dict[str, str] = {}
    for part in AND.split(text.strip()):
        found = PART.fullmatch(part)
        if not found:
            raise _refused(f"{len(text)} characters that are not a condition", types)
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


# Whether a decoded part of a file or table mentions the condition.
#
# A part is a row (values by column), a string (a line of a log, a payload) or bytes (state of Spark). It mentions a
# condition if it has all its values. The bounds of a column may have only the beginning of a value. In a string a value
# must be a whole word, so `u17` is not in `u170`. A number, or a value of fewer than `LONG` characters, counts only if
# the column's name is in the string too.


LONG = 4
ESCAPES = ("\\", "%", "+", '""', '"base64":')
"""A string without any of these contains a value unchanged."""
HEXADECIMAL = re.compile("(?:[0-9a-fA-F]{2}){4,}")
"""How `events` stores an invalid line that is not UTF-8."""
NAME = re.compile(r"[^/\s]+")
"""A word of a string, or a name in a path."""
BOUND, BOUND_OF_DELTA = 16, 32
"""The fewest characters of a value that the bounds of a column have: in an Iceberg manifest, and in Delta's log."""
TIMES = 3
"""How often a string is unescaped, for example JSON in JSON in the URL of an access log."""


@dataclass(frozen=True)
class Mentions:
    """The test for one condition.

    `names`: the names that the sources have for a column, if they differ from its own. `encodings`: those of the
    sources, without UTF-8.
    """

    condition: Condition
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encodings: tuple[str, ...] = ()

    @property
    def longest_string(self) -> str:
        """Return the longest value of a string column; empty if there is none."""
        return max(
            (value for name, value in self.condition.values.items() if self.condition.kinds[name] == "string"),
            key=len,
            default="",
        )

    def in_row(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has all values: each in its own column if the row has it, else in any column."""
        return all(self._in_columns(name, row) for name in self.condition.values)

    def in_string(self, string: str) -> bool:
        """Return whether a string has all values in one of its spellings."""
        return self.in_message(string) or any(
            all(self._in(name, one) for name in self.condition.values) for one in spellings(string)
        )

    def hidden(self, string: str) -> str:
        """Return a string about places, such as paths, without the values: a receipt must not store them."""
        for value in self.condition.values.values():
            string = string.replace(value, "…") if len(value) >= LONG else string
        return NAME.sub(lambda name: "…" if self.in_string(name[0]) else name[0], string)

    def in_line(self, line: bytes) -> bool:
        """Return whether a line of a file has all values, in one of its possible encodings."""
        own = [] if line.isascii() else [encodings.decode(line, one) for one in self.encodings]
        return any(map(self.in_string, (*decodings(line), *own)))

    def in_bytes(self, content: bytes) -> bool:
        """Return whether bytes have all values. Numbers take 8 bytes, as in Spark's rows."""
        return all(any(one in content for one in each) for each in self._encoded)

    def in_file(self, content: bytes) -> bool:
        """Return whether bytes of an unknown format have all values.

        Any file has a few given bytes by chance, so a condition with short values only never matches.
        """
        return len(self.longest_string) >= LONG and self.in_bytes(content)

    def in_message(self, string: str) -> bool:
        """Return whether a string is a message of Avro or Protobuf in hexadecimal that has all values.

        Such a message has no names of columns, and the length of a string precedes it.
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
        if given:  # an invalid record has no columns; another column has its line
            return any(self.condition.is_value(name, one) for one in given)
        if self.condition.kinds[name] != "string":
            return False  # a number that any column may have
        return any(self._in_cell(name, cell) for cell in row.values())

    def _in_cell(self, name: str, cell: Any) -> bool:
        """Return whether a cell of another column has the value: as itself, or in a string, list or structure."""
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
    """Return a value as a Protobuf message encodes it, and as an Avro message does."""
    if kind == "string":
        content = value.encode()
        return _varint(len(content)) + content, _varint(2 * len(content)) + content
    number = int(value)
    return _varint(number % 2**64), _varint(2 * number if number >= 0 else -2 * number - 1)


def _varint(number: int) -> bytes:
    parts = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(part | 0x80 for part in parts[:-1]), parts[-1]])


def spellings(string: str) -> Iterator[str]:
    """Yield a string, and its forms with escapes undone: of JSON, of a URL, of CSV; repeatedly, since they nest."""
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
    """Return whether a value is not part of a longer word."""
    before, after = string[at - 1 : at], string[at + len(value) : at + len(value) + 1]
    return not (_word(before) and _word(value[:1])) and not (_word(after) and _word(value[-1:]))


def _word(character: str) -> bool:
    return character.isalnum() or character == "_"
