"""A record's id without a JVM is the one that Spark gives it."""

from __future__ import annotations

import pytest

from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.sources.record_id import asked, from_hex, of_values


def pipeline(*kinds: str) -> Pipeline:
    """One whose id columns are c0, c1, … of these types."""
    names = [f"c{n}" for n in range(len(kinds))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    return Pipeline(
        name="p", source=Files(), schema=f"{columns}, at timestamp", record_id=tuple(names), event_time="at",
        outputs=(Output(name="o", transform="m:f", sink=Delta()),),
    )  # fmt: skip


def given(*values: str) -> dict[str, str]:
    """The values by column."""
    return {f"c{n}": value for n, value in enumerate(values)}


def test_the_hash_is_sparks() -> None:
    """Against the values that PySpark's documentation has for xxhash64 of ('ABC') and ('ABC', 'DEF')."""
    assert of_values(pipeline("string"), given("ABC")).high == 4105715581806190027
    assert of_values(pipeline("string", "string"), given("ABC", "DEF")).high == 3233247871021311208


def test_the_halves_differ_and_survive_their_text() -> None:
    """32 digits are the same id again."""
    found = of_values(pipeline("string"), given("a-17"))

    assert found.high != found.low
    assert from_hex(str(found)) == found


@pytest.mark.parametrize(
    ("kind", "written", "string"),
    [
        ("long", "7", "7"),
        ("int", "-3", "-3"),
        ("double", "1.5", "0x1.8000000000000p+0"),
        ("double", "-0.0", "0x0.0p+0"),
        ("decimal(38,18)", "1e-18", "0.000000000000000001"),
        ("decimal(5)", "7", "7"),
        ("dec", "-0", "0"),
        ("binary", "é", "c3a9"),
        ("boolean", "TRUE", "true"),
        ("date", "2013-01-31", "2013-01-31"),
        ("timestamp", "2013-01-31T05:15:00Z", "2013-01-31 05:15:00"),
        ("timestamp", "2013-01-31T00:15:00-05:00", "2013-01-31 05:15:00"),
        ("timestamp", "2013-01-31 05:15:00.120", "2013-01-31 05:15:00.12"),
    ],
)
def test_a_typed_value_has_its_string(kind: str, written: str, string: str) -> None:
    """What is hashed is the string that the page states for the type."""
    assert of_values(pipeline(kind), given(written)) == of_values(pipeline("string"), given(string))


@pytest.mark.parametrize("kind", ["array<int>", "map<string,int>", "struct<a:int>", "variant"])
def test_a_nested_id_is_refused_when_declared(kind: str) -> None:
    """No string is stated for it."""
    with pytest.raises(Refused, match="an id is made of plain values"):
        pipeline(kind)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", "seven"),
        ("date", "soon"),
        ("boolean", "1"),
        ("long", "007"),
        ("double", "1e400"),
        ("decimal(3,1)", "1.25"),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused(kind: str, value: str) -> None:
    """The conversion table decides, as for a record."""
    with pytest.raises(Refused):
        of_values(pipeline(kind), given(value))


def test_numbers_in_json_keep_their_text() -> None:
    """1.50 of a string column is not 1.5; a column that is not in the id is left alone."""
    wanted = asked(pipeline("string", "long"), ['{"c1": 4, "c0": 1.50, "more": []}'])

    assert wanted.values == {"c0": "1.50", "c1": "4"}


def test_32_digits_may_be_a_text_of_the_users_too() -> None:
    """Then both are looked for."""
    digits = "0123456789abcdef0123456789abcdef"
    wanted = asked(pipeline("string"), [digits])

    assert wanted.ids == [from_hex(digits), of_values(pipeline("string"), given(digits))]
    assert asked(pipeline("long"), [digits]).ids == [from_hex(digits)]


def test_the_shipped_pipelines_can_be_asked_by_their_id_columns() -> None:
    """All of their types are known."""
    flights = declarations.load()["flights"]

    assert asked(flights, ["AA", "1", "JFK", "2013-01-31T05:15:00Z"]).values["origin"] == "JFK"
