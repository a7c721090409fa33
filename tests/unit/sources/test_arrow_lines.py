"""Lines that Arrow reads have the values that the conversion table gives them line by line."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from onlyonce.sources.parse import parse_lines
from onlyonce.sources.parse.parse_lines import MORE, REASON, RECORD

WITHIN = (
    ("id", "string"), ("b", "boolean"), ("t", "byte"), ("s", "short"), ("i", "integer"), ("l", "long"), ("f", "float"), ("d", "double"),
    ("m", "decimal(6,2)"), ("w", "decimal(38,0)"), ("day", "date"), ("at", "timestamp"), ("wall", "timestamp_ntz"),
)  # fmt: skip
HOSTILE = (
    "null", "true", "false", "0", "-0", "1", "7", "127", "128", "-129", "32768", "2147483648", "9223372036854775807", "9223372036854775808", "1.0", "1.5", "-0.0", "1e2",
    "1E+2", "1.5e1", "1e-7", "0e400", "1e400", "-1e400", "1e-400", "4.9e-324", "NaN", "Infinity", "-Infinity", "Inf", "01", "1.", ".5", "+1", "-", "16777216", "16777217",
    "16777217.0", "0.1", "3.4028235e38", "3.4028236e38", "9007199254740992", "9007199254740993", "9007199254740993.0", "1.0000000596046448", "1.23", "1.230", "1.239",
    "9999.99", "10000", "10000.00", "123456", "123456.7", "99999999999999999999999999999999999999", "100000000000000000000000000000000000000", "1767225600",
    "1767225600.123456781", "1767225600.1234567890", "1767225600.1234567891", "-1.0000005", "-0.0000001", "253402300799", "253402300799.9999999", "253402300800",
    "9223372036.854775807", "9223372036.854775808", "-9223372036.854775808", "-62135596800", "-62135596801", '""', '"a"', '"1"', '"1.5"', '"+1"', '"007"', '"1e2"',
    '"1."', '".5"', '"-.5"', '" 1"', '"1 "', r'"\u0031"', r'"\u002b1"', r'"\u0000"', r'"a\u0000b"', r'"\\u0000"', r'"\ud800"', r'"\udc00"', r'"\ud83d\ude00"', r'"\n\"\\\/"',
    r'"\x"', '"\t"', '"\x7f\u00a0\u2028"', '"true"', '"NaN"', '"2026-03-01"', '"2026-02-29"', '"2024-02-29"', '"2026-02-30"', '"0000-01-01"', '"0001-01-01"', '"0999-12-31"',
    '"9999-12-31"', '"2026-3-1"', '"20260301"', '"2026-03-01T10:15:00Z"', '"2026-03-01 10:15:00"', '"2026-03-01T10:15"', '"2026-03-01T10"', '"2026-03-01T10:15:00.1234567Z"',
    '"2026-03-01T10:15:00.123456+05:30"', '"2026-03-01T10:15:00+0530"', '"2026-03-01T10:15:00+05"', '"2026-03-01T10:15:00-18:00"', '"2026-03-01T10:15:00+18:01"',
    '"2026-03-01T24:00:00Z"', '"2026-03-01T10:15:60Z"', '"9999-12-31T23:59:59-05:00"', '"0001-01-01T00:00:00+05:00"', '"1969-12-31T23:59:59.9999999Z"', '"10:15:00"',
    '"2026-02-29T00:00:00Z"', '"2024-02-29T00:00:00Z"', '"1767225600"', '"\t12:00"', "[]", "{}", "[1]", "[null]", '{"x":1}', '{"x":1,"x":2}', "[1,]", "'a'", "tru", "nul",
)  # fmt: skip
AROUND = (
    '{"id":"a"} {"id":"b"}', '{"id":"a"}{"id":"b"}', '{"id":"a"}],[{"id":"b"}', '{"id":"a"} null {"id":"b"}', '{"id":"a"', '"i":1}', '{"id":"a","id":"b"}', "", " ", "{", "}",
    "{}", "[]", "null", '{"id":"a"}\r', ' {"id":"a"}', '{"id":"a"} ', '{"id":"a"}\0}', '\ufeff{"id":"a"}', '{"id":"a"}\x0b', '{"\\u0069d":"a"}', '{"\\u0061t":"1"}',
    '{"id":"a","x":1}', '{"id":"a","x":NaN}', '{"id":"a","in":{"x":1}}', '{"id":"a","in":{"i":1,"i":2}}', '{"id" :\r\n"a"}', '{"id":"a\n"}', '{"id":"a",}', '{"id":"a"}//}', '{"at" : "1"}',
    '{"in":null}', '{"in":{}}', '{"list":null}', '{"list":[]}', '{"list":[null,{},{"i":1}]}', '{"list":[{"i":1.5}]}', '{"list":{}}', '{"in":[]}', '{"days":["2026-02-30"]}', '{"":"a"}', "{" * 2000,
)  # fmt: skip
"""Lines that are more, or less, than one object of declared fields."""


def declared() -> list[tuple[str, str, Any]]:
    """Every type that Arrow reads, at the first level, in a struct and in a list of structs; and a list of scalars."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in WITHIN]
    inner: Any = {"type": "struct", "fields": fields}
    many = {"type": "array", "elementType": inner, "containsNull": True}
    days = {"type": "array", "elementType": "date", "containsNull": True}
    nested = [("in", "struct", inner), ("list", "array", many), ("days", "array", days), ("amounts", "array", days | {"elementType": "decimal(6,2)"})]
    return [*((name, kind, kind) for name, kind in WITHIN), *nested]


KINDS = declared()


def usual(chance: random.Random, kind: str, numbers: bool) -> str:
    """Return a value that a producer would write."""
    n = chance.randrange(100)
    times = {"timestamp": f"{1767225600 + n}.5", "decimal(6,2)": f"{n}.25", "decimal(38,0)": f"{n}"}
    if kind in times and numbers:
        return times[kind]
    strings = {"string": f"n{n}", "date": f"2026-03-{1 + n % 28:02}", "timestamp": f"2026-03-01T10:15:{n % 60:02}Z", "timestamp_ntz": "2026-03-01 10:15:00"}
    strings |= {"decimal(6,2)": f"{n}.5", "decimal(38,0)": f"{n}"}
    return json.dumps(strings[kind]) if kind in strings else "true" if kind == "boolean" else f"{n}.5" if kind in ("float", "double") else f"{n}"


def fields(chance: random.Random, numbers: bool, odd: float, deep: int = 1) -> str:
    """Return an object of some of the declared fields, a few with a hostile value."""
    found = []
    for name, kind in WITHIN:
        if chance.random() < 0.7:
            value = chance.choice(HOSTILE) if chance.random() < odd else usual(chance, kind, numbers)
            found.append(f'"{name}"{chance.choice(("", "", " "))}:{value}')
    if deep and chance.random() < 0.5:
        found.append(f'"in":{fields(chance, numbers, odd, 0)}')
        found.append(f'"list":[{",".join(fields(chance, numbers, odd, 0) for _ in range(chance.randrange(3)))}]')
        found.append(f'"days":["2026-03-01",{chance.choice(HOSTILE) if chance.random() < odd else "null"}]')
    chance.shuffle(found)
    return f"{{{','.join(found)}}}"


def block(seed: int, count: int) -> tuple[list[bytes], float]:
    """Return lines: most of them good, some hostile, and a few that are no lines of UTF-8."""
    chance = random.Random(seed)
    numbers, odd = chance.random() < 0.5, chance.choice((0.0, 0.001, 0.01, 0.2))
    found = []
    for _ in range(count):
        if odd and chance.random() < odd:
            found.append(chance.choice(AROUND).encode("utf-8", "surrogatepass"))
        else:
            line = fields(chance, numbers, odd).encode()
            found.append(line if chance.random() > odd / 10 else line.replace(b"n", b"\xff"))
    return found, odd


def compared(lines: list[bytes | None], kinds: list[tuple[str, str, Any]] = KINDS, layout: str = "json") -> int:
    """Compare both readers of lines; return how many of the lines Arrow has read."""
    given = pa.array(lines, pa.binary())
    columns = StructType.fromJson({"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, _, kind in kinds]})
    shape = to_arrow_type(StructType([StructField(REASON, StringType()), StructField(MORE, BooleanType()), StructField(RECORD, columns)]), timezone="UTC")
    reader = parse_lines.reader_of(json.dumps([(name, name, kind, json_type) for name, kind, json_type in kinds]), (*columns.names, "beside"), layout)
    by_both, by_table = parse_lines.rows(given, reader, shape), parse_lines.by_table(given, reader.read, shape)
    by_both.validate(full=True)
    for line, one, other in zip(lines, by_both.to_pylist(), by_table.to_pylist(), strict=True):
        # As text, so that zeros with and without a sign differ.
        assert (line, repr(one)) == (line, repr(other))
    return len(reader.by_arrow(given).rows)


@pytest.mark.parametrize("seed", range(8))
def test_both_readers_give_the_same(seed: int) -> None:
    lines, odd = block(seed, 200)
    by_arrow = compared([*lines, None])
    assert odd or by_arrow == len(lines)


@pytest.mark.parametrize(("name", "kind"), WITHIN)
def test_one_hostile_value_among_good_ones_is_what_the_table_says(name: str, kind: str) -> None:
    """The column holds strings, or numbers, in the other lines."""
    chance, kinds = random.Random(name), [one for one in KINDS if one[0] in ("id", name)]
    for numbers in (False, True):
        good = [f'{{"{name}":{usual(chance, kind, numbers)}}}'.encode() for _ in range(12)]
        assert compared(list(good), kinds) == len(good)
        for value in HOSTILE:
            compared([*good[:6], f'{{"{name}":{value}}}'.encode(), *good[6:]], kinds)


def test_one_hostile_line_among_good_ones_is_what_the_table_says() -> None:
    chance = random.Random(0)
    good = [fields(chance, False, 0).encode() for _ in range(12)]
    for line in AROUND:
        compared([*good[:6], line.encode("utf-8", "surrogatepass"), *good[6:]])


@pytest.mark.parametrize(("name", "kind"), WITHIN)
def test_a_value_of_csv_is_what_the_table_says(name: str, kind: str) -> None:
    """Hostile values as they are, with spaces around them, and in quotes, beside good ones."""
    chance, kinds = random.Random(name), [one for one in KINDS if one[0] in ("id", name)]
    before, behind = ("", ",a") if name != "id" and kinds[0][0] == name else ("a,", "") if name != "id" else ("", "")
    good = [f"{before}{usual(chance, kind, False).strip(chr(34))}{behind}".encode() for _ in range(12)]
    assert compared(list(good), kinds, "csv") == len(good)
    values = [*dict.fromkeys(one.strip('"') for one in HOSTILE), "TRUE", "False", " ", "\0", "\r", "a\nb", "\ufeff1", "1,2"]
    hostile = [f"{before}{written}{behind}{end}" for value in values for written in (value, f" {value} ", f'"{value}"') for end in ("", "\r")]
    compared([*good, *(one.encode("utf-8", "surrogatepass") for one in hostile), b"\xff", b"", b" \r", None], kinds, "csv")
