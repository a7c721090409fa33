"""Every kind of bad line and of bad file, each with the outcome that is stated for it.

A line is `kept` with an id and an event time, or `invalid` with a reason. What is invalid keeps its raw line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
NO_OBJECT = "no JSON object of the declared types"
NO_LONG = "column cents is no bigint: "
NO_TIMESTAMP = "column at is no timestamp: "
MORE = "more on the line than one JSON object"
NO_ID = "record id column id is missing or null"
NO_TIME = "event time at is missing or null"
BEFORE_1970 = "before 1970"
AHEAD = "ahead of the ingestion time"
NO_DOUBLE = "column weight is no double: "
TWICE = "the field id twice"
NOT_UTF8 = "not UTF-8"
HALF = "half of a surrogate pair"
NUL = "the NUL character"
TOO_LARGE = "bytes, and max_record_bytes is"


@dataclass(frozen=True)
class Line:
    """What is put in, and what must come of it: a reason, or the id and event time of the record that is kept."""

    raw: bytes
    reason: str | None = None
    id: str = ""
    at: datetime = MIDNIGHT


def record(name: str, **values: Any) -> bytes:
    """A good record with other values; None leaves a field out."""
    plain = {"id": name, "shop": "a", "at": "2026-01-01T00:00:00Z", "cents": 1, "weight": 1.0}
    changed = {k: v for k, v in (plain | values).items() if v is not None}
    return json.dumps(changed, separators=(",", ":"), ensure_ascii=False).encode()


def kept(raw: bytes, name: str, at: datetime = MIDNIGHT) -> Line:
    """A line that is kept."""
    return Line(raw, None, name, at)


def timed(name: str, at: Any, wanted: datetime | str) -> Line:
    """A record with this event time: kept with the wanted instant, or invalid for the wanted reason."""
    raw = record(name, at=at)
    return Line(raw, wanted) if isinstance(wanted, str) else kept(raw, name, wanted)


def _at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


LINES: dict[str, Line] = {
    "good": kept(record("good"), "good"),
    # What is no object
    "does not parse": Line(b"{", NO_OBJECT),
    "an array": Line(b"[1,2]", NO_OBJECT),
    "an array of an object": Line(b"[" + record("in array") + b"]", NO_OBJECT),
    "a number": Line(b"17", NO_OBJECT),
    "null": Line(b"null", NO_OBJECT),
    "a text": Line(b'"text"', NO_OBJECT),
    "cut off": Line(record("cut")[:-5], NO_OBJECT),
    "single quotes": Line(b"{'id':'single','at':'2026-01-01T00:00:00Z'}", NO_OBJECT),
    "a comment": Line(b"/* c */" + record("comment"), NO_OBJECT),
    "blank": Line(b"   ", "blank"),
    "empty": Line(b"", "blank"),
    "only a byte-order mark": Line(b"\xef\xbb\xbf", "blank"),
    # More than an object: a lenient parser would take the first and forget the rest
    "two objects": Line(record("one") + record("two"), MORE),
    "two objects and a comma": Line(record("three") + b"," + record("four"), MORE),
    "two spaced objects": Line(b'{"id" : "five", "at":"2026-01-01T00:00:00Z"} {"id" : "six"}', MORE),
    "two objects, a bracket and a comma": Line(record("one of two") + b"],[" + record("two of two"), MORE),
    "two objects and a bracket": Line(record("one of 2") + b"]" + record("two of 2"), MORE),
    "a bracket, rubbish and a brace": Line(record("before") + b"]rubbish}", MORE),
    "rubbish behind": Line(record("behind") + b" rubbish", MORE),
    "a NUL behind": Line(record("nul behind") + b"\0", MORE),
    # Fields
    "empty object": Line(b"{}", NO_ID),
    "id missing": Line(record("", id=None, shop="b"), NO_ID),
    "id null": Line(b'{"id":null,"at":"2026-01-01T00:00:00Z"}', NO_ID),
    "id in capitals": Line(b'{"ID":"x","at":"2026-01-01T00:00:00Z"}', NO_ID),
    "id of another type": kept(b'{"id":17,"at":"2026-01-01T00:00:00Z"}', "17"),
    "other fields null": kept(b'{"id":"nulls","shop":null,"at":"2026-01-01T00:00:00Z","cents":null}', "nulls"),
    "a key twice": Line(b'{"id":"first","id":"last","at":"2026-01-01T00:00:00Z"}', TWICE),
    "unknown field": kept(record("unknown", colour="red"), "unknown"),
    "unknown field with spaces": kept(b'{"id" : "spaced", "at":"2026-01-01T00:00:00Z", "x":1}', "spaced"),
    "our own names as fields": kept(record("ours", oo_corrupt="x", oo_reason="y"), "ours"),
    # Types and ranges
    "wrong type": Line(record("w1", cents="many"), NO_LONG),
    "a number as text": Line(record("w2", cents="17"), NO_LONG),
    "fraction for a whole number": Line(record("w3", cents=1.5), NO_LONG),
    "number out of range": Line(record("w4", cents=2**63), NO_LONG),
    "largest number": kept(record("w5", cents=2**63 - 1), "w5"),
    "number of 2,000 digits": Line(record("w6", cents=int("1" * 2000)), NO_LONG),
    "not a number": Line(b'{"id":"nan","at":"2026-01-01T00:00:00Z","weight":NaN}', NO_OBJECT),
    "infinity": Line(b'{"id":"inf","at":"2026-01-01T00:00:00Z","weight":-Infinity}', NO_OBJECT),
    "a number as large as infinity": Line(b'{"id":"1e999","at":"2026-01-01T00:00:00Z","weight":1e999}', NO_DOUBLE),
    "an integer that a double can't hold": Line(record("w7", weight=2**53 + 1), NO_DOUBLE),
    "nested 900 deep": kept(b'{"id":"deep","at":"2026-01-01T00:00:00Z","x":' + b"[" * 900 + b"]" * 900 + b"}", "deep"),
    "nested 100,000 deep": Line(b'{"id":"deeper","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", NO_OBJECT),
    "a field of 1 MB": kept(record("1 MB", shop="x" * (1 << 20)), "1 MB"),
    "a field of 15 MB": kept(record("15 MB", shop="x" * (15 << 20)), "15 MB"),
    "a field of 25 MB": Line(record("25 MB", shop="x" * (25 << 20)), TOO_LARGE),
    # Signs
    "control character": Line(b'{"id":"a\x01b","at":"2026-01-01T00:00:00Z"}', NO_OBJECT),
    "NUL in a text": Line(b'{"id":"a\x00b","at":"2026-01-01T00:00:00Z"}', NO_OBJECT),
    "NUL as an escape": Line(b'{"id":"a\\u0000b","at":"2026-01-01T00:00:00Z"}', NUL),
    "a text that looks like it": kept(b'{"id":"a\\\\u0000b","at":"2026-01-01T00:00:00Z"}', "a\\u0000b"),
    "control character as an escape": kept(b'{"id":"a\\u0001b","at":"2026-01-01T00:00:00Z"}', "a\x01b"),
    "half a surrogate pair": Line(b'{"id":"\\ud800","at":"2026-01-01T00:00:00Z"}', HALF),
    "another half": Line(b'{"id":"\\ude00","at":"2026-01-01T00:00:00Z"}', HALF),
    "a whole pair and a half": Line(b'{"id":"\\ud83d\\uded2\\ud83d","at":"2026-01-01T00:00:00Z"}', HALF),
    "two whole pairs": kept(b'{"id":"\\ud83d\\uded2\\uD83D\\uDED2","at":"2026-01-01T00:00:00Z"}', "🛒🛒"),
    "a text that looks like half": kept(b'{"id":"\\\\ud800","at":"2026-01-01T00:00:00Z"}', "\\ud800"),
    "invalid UTF-8": Line(b'{"id":"\xff\xfe"}', NOT_UTF8),
    "overlong UTF-8": Line(b'{"id":"\xc0\xaf"}', NOT_UTF8),
    "UTF-16": Line('{"id":"x"}'.encode("utf-16"), "not UTF-8: it is UTF-16"),
    "the beginning of a Parquet file": Line(b"PAR1\x15\x04", "the beginning of a Parquet file"),
    "emoji, quotes, a line separator": kept(record('🛒 \u2028 "q"'), '🛒 \u2028 "q"'),
    "byte-order mark": kept(b"\xef\xbb\xbf" + record("marked"), "marked"),
    "windows line end": kept(record("crlf") + b"\r", "crlf"),
    # Times
    "event time missing": Line(record("t1", at=None), NO_TIME),
    "event time null": Line(b'{"id":"t2","at":null}', NO_TIME),
    "event time no time": timed("t3", "yesterday-ish", NO_TIMESTAMP),
    "the word now": timed("t4", "now", NO_TIMESTAMP),
    "year 1": timed("t5", "0001-01-01T00:00:00Z", BEFORE_1970),
    "just before 1970": timed("t24", "1969-12-31T23:59:59.999999Z", BEFORE_1970),
    "a second before 1970, as a number": timed("t25", -1, BEFORE_1970),
    "the first instant of 1970": timed("t26", "1970-01-01T00:00:00Z", _at(1970, 1, 1)),
    "year 9999": timed("t6", "9999-12-31T00:00:00Z", AHEAD),
    "year 10000": timed("t7", "+10000-01-01T00:00:00Z", NO_TIMESTAMP),
    "without a zone: UTC": timed("t8", "2026-01-01T00:00:00", MIDNIGHT),
    "with another zone": timed("t9", "2026-01-01T02:00:00+02:00", MIDNIGHT),
    "only a date": timed("t10", "2026-01-02", _at(2026, 1, 2)),
    "only a time: would be today's": timed("t11", "12:00:00", NO_TIMESTAMP),
    "only a time, with T": timed("t12", "T12:00:00Z", NO_TIMESTAMP),
    "the hour that summer time skips, without a zone": timed("t13", "2026-03-29T02:30:00", _at(2026, 3, 29, 2, 30)),
    "the hour that it skips, with its offset": timed("t14", "2026-03-29T02:30:00+01:00", _at(2026, 3, 29, 1, 30)),
    "the hour that it skips, with the region": timed("t15", "2026-03-29T02:30:00 Europe/Berlin", NO_TIMESTAMP),
    "a name of a zone": timed("t16", "2026-10-25T02:30:00 BST", NO_TIMESTAMP),
    "leap second": timed("t17", "2026-06-30T23:59:60Z", NO_TIMESTAMP),
    "30 February": timed("t18", "2026-02-30T00:00:00Z", NO_TIMESTAMP),
    "nanoseconds: cut": timed("t19", "2026-01-01T00:00:00.123456789Z", _at(2026, 1, 1, 0, 0, 0, 123456)),
    "seconds since 1970": timed("t20", 1767225600, MIDNIGHT),
    "milliseconds since 1970": timed("t21", 1767225600000, NO_TIMESTAMP),
    "microseconds since 1970: would overflow": timed("t22", 1767225600000000, NO_TIMESTAMP),
    "a nested field of the event time's name": kept(record("t23", x={"at": "12:00"}), "t23"),
}  # fmt: skip
