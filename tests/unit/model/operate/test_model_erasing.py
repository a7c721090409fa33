"""Which records a condition means, in a row and in a line, and that its receipt does not have the values."""

from __future__ import annotations

import io
import json
import struct

import pytest

from onlyonce.api.pipeline import PubSub
from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import Refused
from onlyonce.operate import erase_inputs
from onlyonce.sources import pubsub_lines

TYPES = {"user": "string", "number": "bigint", "at": "timestamp", "id": "string"}


def test_a_condition_is_values_by_column() -> None:
    """In quotes or a whole number; several with AND, in any order."""
    found = erasure.read_conditions("user = 'o''neil' AND number = 017", TYPES)

    assert found.values == {"user": "o'neil", "number": "17"}
    again = erasure.read_conditions(" number=17  and `user`='o''neil' ", TYPES)
    assert again.fingerprint("salt") == found.fingerprint("salt") != found.fingerprint("other")
    assert "neil" not in found.fingerprint("salt")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "user",
        "user = ",
        "who = 'u'",
        "at = '2026-01-01'",
        "user = 'a' OR number = 1",
        "user = 'a' AND user = 'b'",
        "user > 'a'",
    ],
)
def test_what_is_no_such_condition_is_refused_without_its_text(text: str) -> None:
    """The error names the columns that may be asked for."""
    with pytest.raises(Refused) as refused:
        erasure.read_conditions(text, TYPES)
    assert "user, number, id" in refused.value.hint
    assert not text or text not in refused.value.what


LINES: list[tuple[str, bool]] = [
    ('{"user":"u17","number":5}', True),
    ('{"number":5,"user":"u17","x":{"user":"u1"}}', True),
    ('{"user":"u\\u0031 7","number":5}', False),
    ('{"user":"u\\u00317","number":"5"}', True),
    ('{"user":"u17","number":50}', False),
    ('{"user":"u170","number":5}', False),
    ('{"user":"u17"}', False),
    ('{"user":"u17","number":5', True),
    ('{"x":{"user":"u17","number":5', True),
    ('{"user":"u170","number":5', False),
    ('{"user":"u17","number":55', False),
    ("   ", False),
]


@pytest.mark.parametrize(("line", "meant"), LINES)
def test_a_line_is_meant_by_the_values_of_its_fields(line: str, meant: bool) -> None:
    """Also one that is no JSON, by what it says of these fields."""
    assert erasure.read_conditions("user = 'u17' AND number = 5", TYPES).fits_line(line, None) is meant


def test_a_line_of_csv_is_meant_by_its_columns() -> None:
    """One with another number of fields, if it has the values somewhere."""
    condition, columns = erasure.read_conditions("user = 'u,1'", TYPES), ["id", "user"]

    assert condition.fits_line('a,"u,1"', columns)
    assert not condition.fits_line('"u,1",a', columns)
    assert condition.fits_line('"u,1",a,b', columns)


WHO = 'o/b"c\\d\té😀'
SPELLINGS = (
    json.dumps(WHO),
    json.dumps(WHO, ensure_ascii=False),
    json.dumps(WHO).replace("/", "\\/"),
    '"' + "".join(f"\\u{unit:04X}" for unit in struct.unpack(f"<{len(WHO) + 1}H", WHO.encode("utf-16-le"))) + '"',
)
DEEP = '{"x":' + "[" * 3000
WIDE = "x" * 200_000


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    "line", ['{{"user":{}}}', '\ufeff {{"\\u0075ser" : {} ,"x":1}}\r', '{{"user":{},', '{{"user":"a","user":{}}}']
)
def test_every_spelling_of_a_value_is_found_in_json(line: str, spelling: str) -> None:
    """Also in a line that is no JSON object, and with the field's name in escapes."""
    assert _lines_found(erasure.Condition({"user": WHO}, TYPES), None, line.format(spelling)) == 1


@pytest.mark.parametrize(
    "line", ['{},"o/b""c\\d\té😀"', '{},"o/b""c\\d\té😀",more', '"{}"x,"o/b""c\\d\té😀"', '{},"o/b""c\\d\té😀']
)
@pytest.mark.parametrize("before", ["", "a", WIDE])
def test_every_spelling_of_a_value_is_found_in_csv(line: str, before: str) -> None:
    """Also in a line that has other columns, or a quote in the wrong place, or a value of any length."""
    assert _lines_found(erasure.Condition({"user": WHO}, TYPES), ["id", "user"], line.format(before)) == 1


@pytest.mark.parametrize(
    "payload",
    [
        f'{{"user":{json.dumps(WHO)}'.encode(),
        f'{{"a":1}}{{"user":{json.dumps(WHO)}}}'.encode(),
        f'{{"user":{json.dumps("renée-u17", ensure_ascii=False)}}}'.encode("latin-1"),
    ],
)
def test_pulled_message_is_meant_by_its_payload(payload: bytes) -> None:
    """One that is no record is pulled whole, and in base64 if it is no text. Its attributes count, too."""
    who, source = "renée-u17" if b"u17" in payload else WHO, PubSub(subscription="projects/p/subscriptions/s")
    messages: list[tuple[dict[str, str], bytes]] = [({}, payload), ({"user": who}, b"no JSON"), ({}, b"no JSON")]
    lines = [
        pubsub_lines.line(pubsub_lines.Message("ack", "17", attributes, content, 1), source)
        for attributes, content in messages
    ]

    assert _lines_found(erasure.Condition({"user": who}, TYPES), None, *lines) == 2
    assert [Mentions(erasure.Condition({"user": who}, TYPES)).in_string(one) for one in lines] == [True, True, False]


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("number = 0", '{"number":-0}'),
        ("user = '[1,2]'", '{"user":[1, 2]}'),
        ('user = \'{"a":"é"}\'', '{"user":{"a" : "\\u00e9"}}'),
        ("user = '1.50'", '{"user":1.50}'),
    ],
)
def test_a_value_is_compared_as_events_has_it(where: str, line: str) -> None:
    """The conversion table says what a column's value is."""
    assert _lines_found(erasure.read_conditions(where, TYPES), None, line) == 1


@pytest.mark.parametrize(
    ("columns", "others"),
    [(None, [DEEP, DEEP + '"user":"u1"', "[" * 3000]), (["id", "user"], [WIDE, f'"{WIDE}', f"{WIDE},{WIDE},"])],
)
def test_no_line_makes_the_search_fail(columns: list[str] | None, others: list[str]) -> None:
    """Neither a deep one nor one with a long value; the lines around it are searched."""
    mine = '{"user":"u17"}' if columns is None else "a,u17"

    assert (
        _lines_found(
            erasure.read_conditions("user = 'u17'", TYPES),
            columns,
            *others,
            mine,
            DEEP + ',"user":"u17"' if columns is None else f"{WIDE},u17",
        )
        == 2
    )


def test_an_empty_value_is_not_a_missing_one() -> None:
    """A null, a missing field and an empty CSV value are no empty string."""
    condition = erasure.read_conditions("user = ''", TYPES)

    assert _lines_found(condition, None, '{"user":""}', '{"user":null}', "{}") == 1
    assert _lines_found(condition, ["id", "user"], 'a,""', "a,") == 1


def _lines_found(condition: erasure.Condition, columns: list[str] | None, *lines: str) -> int:
    return len(
        erase_inputs.input_places(
            io.BytesIO("\n".join(lines).encode()), condition, columns, None if columns is None else 1000
        )
    )
