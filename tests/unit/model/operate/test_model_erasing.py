"""Which records a condition means, in a row and in a line, and that its receipt does not have the values."""

from __future__ import annotations

import pytest

from onlyonce.model.errors import Refused
from onlyonce.model.operate import erasing

TYPES = {"user": "string", "number": "bigint", "at": "timestamp", "id": "string"}


def test_a_condition_is_values_by_column() -> None:
    """In quotes or a whole number; several with AND, in any order."""
    found = erasing.read("user = 'o''neil' AND number = 017", TYPES)

    assert found.values == {"user": "o'neil", "number": "17"}
    again = erasing.read(" number=17  and `user`='o''neil' ", TYPES)
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
        erasing.read(text, TYPES)
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
    ('{"user":"u170","number":5', False),
    ('{"user":"u17","number":55', False),
    ("   ", False),
]


@pytest.mark.parametrize(("line", "meant"), LINES)
def test_a_line_is_meant_by_the_values_of_its_fields(line: str, meant: bool) -> None:
    """Also one that is no JSON, by what it says of these fields."""
    assert erasing.read("user = 'u17' AND number = 5", TYPES).fits_line(line, None) is meant


def test_a_line_of_csv_is_meant_by_its_columns() -> None:
    """One with another number of fields, if it has the values somewhere."""
    condition, columns = erasing.read("user = 'u,1'", TYPES), ["id", "user"]

    assert condition.fits_line('a,"u,1"', columns)
    assert not condition.fits_line('"u,1",a', columns)
    assert condition.fits_line('"u,1",a,b', columns)
    assert condition.fits_line(f'{"x" * 140_000},"u,1"', columns)
    assert condition.fits_line('"u,1"x,a', columns)
    assert not condition.fits_line('"u,17"x,a', columns)
