"""Lines that Arrow reads have the values that the conversion table gives them line by line."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from onlyonce.core import conversions, line_values
from onlyonce.sources.values import arrow_lines, parse
from onlyonce.sources.values.parse import MORE, REASON, RECORD

WITHIN = (
    ("id", "string"), ("b", "boolean"), ("t", "byte"), ("s", "short"), ("i", "integer"), ("l", "long"), ("f", "float"), ("d", "double"),
    ("m", "decimal(6,2)"), ("w", "decimal(38,0)"), ("day", "date"), ("at", "timestamp"), ("wall", "timestamp_ntz"),
)  # fmt: skip
HOSTILE = (
    "null", "true", "false", "0", "-0", "1", "7", "127", "128", "-129", "32768", "2147483648", "9223372036854775807", "9223372036854775808", "1.0", "1.5", "-0.0", "1e2",
    "1E+2", "1.5e1", "1e-7", "0e400", "1e400", "-1e400", "1e-400", "4.9e-324", "NaN", "Infinity", "-Infinity", "Inf", "01", "1.", ".5", "+1", "-", "16777216", "16777217",
    "16777217.0", "0.1", "3.4028235e38", "3.4028236e38", "9007199254740992", "9007199254740993", "9007199254740993.0", "1.0000000596046448", "1.23", "1.230", "1.239",
    "9999.99", "9999.995", "9999.999", "-9999.999", "10000", "10000.00", "123456", "123456.7", "99999999999999999999999999999999999999", "100000000000000000000000000000000000000", "1767225600",
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
    nested = [
        ("in", "struct", inner),
        ("list", "array", many),
        ("days", "array", days),
        ("amounts", "array", days | {"elementType": "decimal(6,2)"}),
    ]
    return [*((name, kind, kind) for name, kind in WITHIN), *nested]


KINDS = declared()
NO_FORMS: Mapping[str, str] = {}
FORMS: tuple[tuple[str, str, str], ...] = (
    ("at", "epoch_s", "1767225600"), ("at", "epoch_ms", "1767225600123"), ("at", "epoch_us", "1767225600123456.5"), ("at", "epoch_ns", "1767225600123456789"),
    ("at", "epoch_ms", '"1767225600123"'), ("at", "%d/%m/%Y %H:%M", '"1/3/2026 9:05"'), ("at", "%Y%m%d%H%M%S%z", '"20260301090500+0100"'), ("day", "%d.%m.%y", '"01.03.26"'),
    ("wall", "%b %d %Y %I:%M:%S.%f %p", '"Mar 1 2026 12:00:00.5 PM"'),
)  # fmt: skip
"""A column, its form, and a value of that form."""


def usual(chance: random.Random, kind: str, numbers: bool) -> str:
    """Return a value that a producer would write."""
    n = chance.randrange(100)
    times = {"timestamp": f"{1767225600 + n}.5", "decimal(6,2)": f"{n}.25", "decimal(38,0)": f"{n}"}
    if kind in times and numbers:
        return times[kind]
    strings = {
        "string": f"n{n}",
        "date": f"2026-03-{1 + n % 28:02}",
        "timestamp": f"2026-03-01T10:15:{n % 60:02}Z",
        "timestamp_ntz": "2026-03-01 10:15:00",
    }
    strings |= {"decimal(6,2)": f"{n}.5", "decimal(38,0)": f"{n}"}
    return (
        json.dumps(strings[kind])
        if kind in strings
        else "true"
        if kind == "boolean"
        else f"{n}.5"
        if kind in ("float", "double")
        else f"{n}"
    )


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


def compared(
    lines: list[bytes | None],
    kinds: list[tuple[str, str, Any]] = KINDS,
    layout: str = "json",
    forms: Mapping[str, str] = NO_FORMS,
) -> int:
    """Compare both readers of lines; return how many of the lines Arrow has read."""
    given = pa.array(lines, pa.binary())
    columns = StructType.fromJson(
        {
            "type": "struct",
            "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, _, kind in kinds],
        }
    )
    shape = to_arrow_type(
        StructType([StructField(REASON, StringType()), StructField(MORE, BooleanType()), StructField(RECORD, columns)]),
        timezone="UTC",
    )
    types = [(name, name, kind, conversions.with_forms(name, json_type, forms)) for name, kind, json_type in kinds]
    reader = parse.reader_of(json.dumps(types), (*columns.names, "beside"), layout)
    by_both, by_table = parse.rows(given, reader, shape), parse.by_table(given, reader.read, shape)
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


@pytest.mark.parametrize("layout", ["csv", "csv;"])
@pytest.mark.parametrize(("name", "kind"), WITHIN)
def test_a_value_of_csv_is_what_the_table_says(name: str, kind: str, layout: str) -> None:
    """Hostile values as they are, with spaces around them, and in quotes, beside good ones."""
    chance, kinds = random.Random(name), [one for one in KINDS if one[0] in ("id", name)]
    between = line_values.csv_delimiter(layout)
    before, behind = ("", f"{between}a") if kinds[0][0] == name else (f"a{between}", "")
    if name == "id":
        before, behind = "", ""
    good = [f"{before}{usual(chance, kind, False).strip(chr(34))}{behind}".encode() for _ in range(12)]
    assert compared(list(good), kinds, layout) == len(good)
    values = [
        *dict.fromkeys(one.strip('"') for one in HOSTILE),
        "TRUE",
        "False",
        " ",
        "\0",
        "\r",
        "a\nb",
        "\ufeff1",
        "1,2",
        "1;2",
    ]
    hostile = [
        f"{before}{written}{behind}{end}"
        for value in values
        for written in (value, f" {value} ", f'"{value}"')
        for end in ("", "\r")
    ]
    compared(
        [*good, *(one.encode("utf-8", "surrogatepass") for one in hostile), b"\xff", b"", b" \r", None], kinds, layout
    )


@pytest.mark.parametrize(("name", "kind"), WITHIN)
def test_words_for_null_are_what_the_table_says(name: str, kind: str) -> None:
    """Also a number, with spaces around it or in quotes."""
    kinds = [one for one in KINDS if one[0] == name]
    words = ("NULL", "\\N", "-999", "N/A")
    lines: list[bytes | None] = [
        form.format(word).encode() for word in (*words, "null", "-998") for form in ("{}", " {} ", '"{}"', "{}\r")
    ]
    assert compared(lines, kinds, line_values.csv_layout(";", words)) >= 2 * len(words)


@pytest.mark.parametrize(("name", "form", "value"), FORMS)
def test_a_time_of_a_form_of_its_own_is_what_the_table_says(name: str, form: str, value: str) -> None:
    """In JSON at the first level and within, and in CSV; beside hostile values, and those of all other forms."""
    kinds = [one for one in KINDS if one[0] in (name, "in", "list")]
    forms = {f"{within}{name}": form for within in ("", "in.", "list.")}
    good = [f'{{"{name}":{value},"in":{{"{name}":{value}}},"list":[{{"{name}":{value}}}]}}'.encode() for _ in range(12)]
    flat = [f'{{"{name}":{value}}}'.encode() for _ in good]
    assert compared(list(flat), kinds[:1], forms=forms) == len(good)
    assert compared(list(good), kinds, forms=forms) == len(good)
    cells = [value.strip('"').encode() for _ in good]
    assert compared(list(cells), kinds[:1], "csv", forms) == len(cells)
    others = [
        *HOSTILE,
        *(one for _, _, one in FORMS),
        "-1e12",
        "1e30",
        "-9223372036854775808",
        "9223372036854775807.9",
        '"32/01/2026 00:00"',
    ]
    for other in others:
        compared([*flat[:3], f'{{"{name}":{other}}}'.encode(), *flat[:3]], kinds[:1], forms=forms)
    compared([f'{{"in":{{"{name}":{other}}}}}'.encode() for other in others], kinds, forms=forms)
    compared([*cells, *(other.strip('"').encode() for other in others)], kinds[:1], "csv", forms)


def test_a_file_of_another_form_is_named_in_the_reason() -> None:
    """UTF-16 with the command that converts it, Parquet by its first characters."""
    schema = StructType([StructField("id", StringType())])
    reader = parse.reader_of(json.dumps([("id", "id", "string", "string")]), ("id",), "json")
    shape = to_arrow_type(StructType([
        StructField(REASON, StringType()), StructField(MORE, BooleanType()), StructField(RECORD, schema)
    ]))  # fmt: skip
    lines = ['{"id":"x"}'.encode("utf-16"), b"PAR1\x15", b"\xff"]

    utf16, parquet, other = (row[REASON] for row in parse.rows(pa.array(lines, pa.binary()), reader, shape).to_pylist())

    assert utf16.startswith("the line is not UTF-8: it is UTF-16, so send UTF-8 (a file: iconv -f UTF-16 -t UTF-8)")
    assert "the beginning of a Parquet file: PAR1" in parquet
    assert other == parse.NOT_UTF8


@pytest.mark.parametrize("line", ["\ufeffa,7", "a\rb,7", "\ra,7", "a,7\r\r"])
def test_a_mark_or_a_carriage_return_within_csv_is_left_to_the_table(line: str) -> None:
    """A byte order mark would become part of an id."""
    found = arrow_lines.read_csv(pa.array(["b,7", line, "c,7\r"]), {"id": "string", "n": "integer"})
    assert (found.rows.tolist(), found.columns[0].to_pylist()) == ([0, 2], ["b", "c"])


WRAPPED = (
    11,
    82,
    6193882262,
    62135596807378860004335817,
    804477519137636026658218209388,
    7229457433162193776810184176154091483,
)
"""Numbers that Arrow takes for others as some of these types."""


@pytest.mark.parametrize("layout", ["number", "string", "csv"])
@pytest.mark.parametrize(
    "kind", ["decimal(12,2)", "decimal(38,0)", "decimal(38,2)", "decimal(38,18)", "decimal(38,38)", "timestamp"]
)
def test_a_number_of_many_digits_never_wraps_around(kind: str, layout: str) -> None:
    """Arrow reads a decimal modulo 2 to the power of 128, so that a number of too many digits may become any other."""
    chance, declared = random.Random(kind + layout), [("n", kind, kind)]
    for whole in (
        *WRAPPED,
        *(chance.randrange(10 ** (digits - 1), 10**digits) for digits in (1, 20, 21, 29, 30, 37, 38, 39, 45)),
    ):
        for number in (f"-{whole}", f"{whole}.5", f"{whole}.{'0' * 40}", f"0.{whole}", f"{whole}e9"):
            some = [*["0"] * 9, number]
            lines: list[bytes | None] = [
                (f'{{"n":"{one}"}}' if layout == "string" else f'{{"n":{one}}}' if layout == "number" else one).encode()
                for one in some
            ]
            compared(lines, declared, "csv" if layout == "csv" else "json")
