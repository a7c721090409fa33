"""The conversion table, cell by cell: what each type takes of each source form, and which value that is."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from onlyonce.core import conversions
from onlyonce.core.conversions import SCALARS, Cell, Number, Unfit
from onlyonce.core.errors import Refused

DECIMAL = "decimal(12,2)"
FORMS: dict[str, Any] = {
    "string": "a", "digits": "17", "number": Number("17"), "fraction": Number("1.5"), "true": True, "object": {"a": Number("1.10")}, "array": [Number("1e0"), None, "x"],
    "cell": Cell("a"), "cell of digits": Cell("17"), "cell of a fraction": Cell("1.5"), "cell of a truth": Cell("True"), "day": "2026-03-01",
    "cell of a day": Cell("2026-03-01"),
}  # fmt: skip
MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
TAKEN: dict[str, dict[str, Any]] = {
    "string": {
        "string": "a", "digits": "17", "number": "17", "fraction": "1.5", "true": "true", "object": '{"a":1.10}', "array": '[1e0,null,"x"]', "cell": "a",
        "cell of digits": "17", "cell of a fraction": "1.5", "cell of a truth": "True", "day": "2026-03-01", "cell of a day": "2026-03-01",
    },
    "boolean": {"true": True, "cell of a truth": True},
    **{key: {"number": 17, "cell of digits": 17} for key in ("tinyint", "smallint", "int", "bigint")},
    **{key: {"number": 17.0, "fraction": 1.5, "cell of digits": 17.0, "cell of a fraction": 1.5} for key in ("float", "double")},
    DECIMAL: {
        "digits": Decimal("17.00"), "number": Decimal("17.00"), "fraction": Decimal("1.50"), "cell of digits": Decimal("17.00"), "cell of a fraction": Decimal("1.50"),
    },
    "date": {"day": date(2026, 3, 1), "cell of a day": date(2026, 3, 1)},
    "timestamp": {
        "day": MIDNIGHT, "cell of a day": MIDNIGHT, "number": datetime(1970, 1, 1, 0, 0, 17, tzinfo=UTC), "fraction": datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC),
    },
    "timestamp_ntz": {"day": MIDNIGHT.replace(tzinfo=None), "cell of a day": MIDNIGHT.replace(tzinfo=None)},
    "binary": {"cell": b"a", "cell of digits": b"17", "cell of a fraction": b"1.5", "cell of a truth": b"True", "cell of a day": b"2026-03-01"},
}  # fmt: skip


def converted(kind: Any, value: Any) -> Any:
    """The value, or Unfit."""
    try:
        return conversions.of_type(kind)(value, [])
    except Unfit:
        return Unfit


def test_each_type_has_its_cells() -> None:
    """A type without a row here would go untested."""
    assert {*TAKEN} == {*SCALARS, DECIMAL}


@pytest.mark.parametrize("kind", TAKEN)
@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_taken_or_unfit(kind: str, form: str) -> None:
    """Each type by each form; True is no 1, and 17 is no 17.0."""
    found, wanted = converted(kind, FORMS[form]), TAKEN[kind].get(form, Unfit)
    assert (type(found), found) == (type(wanted), wanted)


def _at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


EDGES: list[tuple[Any, Any, Any]] = [
    # Integers
    ("tinyint", Number("127"), 127), ("tinyint", Number("128"), Unfit), ("tinyint", Number("-128"), -128), ("tinyint", Number("-129"), Unfit),
    ("bigint", Number("9223372036854775807"), 2**63 - 1), ("bigint", Number("9223372036854775808"), Unfit), ("bigint", Number("9" * 5000), Unfit),
    ("int", Number("-0"), 0), ("int", Number("1.0"), Unfit), ("int", Number("1e2"), Unfit), ("int", Cell("007"), Unfit), ("int", Cell("+7"), Unfit), ("int", Cell("٧"), Unfit),
    # Floats: nearest, finite, and no integer that the type does not have
    ("float", Number("16777216"), 16777216.0), ("float", Number("16777217"), Unfit), ("float", Number("16777217.0"), 16777216.0), ("float", Number("1e300"), Unfit),
    ("double", Number("9007199254740992"), 2.0**53), ("double", Number("9007199254740993"), Unfit), ("double", Number("1e400"), Unfit), ("double", Number("1e-400"), 0.0),
    ("double", Number("1e999999999999999999999"), Unfit), ("double", Cell("3d"), Unfit), ("double", Cell("0x1p3"), Unfit), ("double", Cell("NaN"), Unfit), ("double", Cell(" 1"), Unfit),
    ("float", Number("0.1"), 0.10000000149011612), ("float", Number("1.00000005960464477540"), 1.0000001192092896), ("float", Number("1.000000059604644775390625"), 1.0),
    # Decimals: exact
    (DECIMAL, Number("1.239"), Unfit), (DECIMAL, Number("1.230"), Decimal("1.23")), (DECIMAL, Number("1e2"), Decimal("100.00")), (DECIMAL, Number("1e10"), Unfit),
    (DECIMAL, Number("9999999999.99"), Decimal("9999999999.99")), (DECIMAL, Number("-1e-999999999"), Unfit), (DECIMAL, Number("0e999"), Decimal("0.00")), (DECIMAL, "1_0", Unfit),
    ("decimal(38,0)", Number("9" * 38), Decimal("9" * 38)), ("decimal(38,0)", Number("9" * 39), Unfit), (DECIMAL, "NaN", Unfit), (DECIMAL, "", Unfit),
    # Strings keep a number as it is written
    ("string", Number("1767225600.123456782"), "1767225600.123456782"), ("string", Number("1e400"), "1e400"), ("string", Number("1.10"), "1.10"),
    # Days
    ("date", "2024-02-29", date(2024, 2, 29)), ("date", "2026-02-29", Unfit), ("date", "0001-01-01", date(1, 1, 1)), ("date", "0000-01-01", Unfit), ("date", "10000-01-01", Unfit),
    ("date", "20260301", Unfit), ("date", "45000", Unfit), ("date", "2026-3-1", Unfit), ("date", "2026-03-01T00:00:00Z", Unfit), ("date", "today", Unfit), ("date", "٢٠٢٦-٠٣-٠١", Unfit),
    # Instants: ISO 8601 with a date, by no clock and no names of zones
    ("timestamp", "2026-03-01T12:00", _at(2026, 3, 1, 12)), ("timestamp", "2026-03-01 12:00:05.1234569", _at(2026, 3, 1, 12, 0, 5, 123456)),
    ("timestamp", "2026-03-01T12:00:00+05:30", _at(2026, 3, 1, 6, 30)), ("timestamp", "2026-03-01T12:00:00-0100", _at(2026, 3, 1, 13)), ("timestamp", "2026-03-01T12:00:00+18", _at(2026, 2, 28, 18)),
    ("timestamp", "2026-03-01T12:00:00+18:01", Unfit), ("timestamp", "2026-03-01T12:00:00+01:60", Unfit), ("timestamp", "2026-03-01T24:00:00Z", Unfit), ("timestamp", "2026-03-01T12:00:60Z", Unfit),
    ("timestamp", "10:15:00", Unfit), ("timestamp", "T10:15", Unfit), ("timestamp", "\t10:15", Unfit), ("timestamp", "now", Unfit), ("timestamp", "2026", Unfit), ("timestamp", "45000", Unfit),
    ("timestamp", "20260301", Unfit), ("timestamp", "20260301T120000Z", Unfit), ("timestamp", "1767225600", Unfit), ("timestamp", Cell("1767225600"), Unfit), ("timestamp", "2026-03-01T12:00:00 BST", Unfit),
    ("timestamp", "2026-03-01T12:00:00 IST", Unfit), ("timestamp", "2026-03-01T12:00:00 Europe/Berlin", Unfit), ("timestamp", "2026-03-01T12:00:00Z\n", Unfit),
    ("timestamp", "0001-01-01T00:00:00+01:00", Unfit), ("timestamp", "9999-12-31T23:59:59.999999-00:01", Unfit), ("timestamp", "0001-01-01T00:00:00Z", _at(1, 1, 1)),
    ("timestamp", Number("1767225600.123456789"), _at(2026, 1, 1, 0, 0, 0, 123456)), ("timestamp", Number("-0.0000001"), _at(1969, 12, 31, 23, 59, 59, 999999)),
    ("timestamp", Number("1.7672256E9"), _at(2026, 1, 1)), ("timestamp", Number("1767225600000"), Unfit), ("timestamp", Number("1767225600000000"), Unfit), ("timestamp", Number("-1e11"), Unfit),
    ("timestamp", Number("253402300799.999999"), _at(9999, 12, 31, 23, 59, 59, 999999)), ("timestamp", Number("253402300800"), Unfit), ("timestamp", Number("1e-999999999"), _at(1970, 1, 1)), ("timestamp", Number("1e999999999999"), Unfit), ("timestamp", Number("-1e-999999999"), _at(1969, 12, 31, 23, 59, 59, 999999)),
    ("timestamp_ntz", "2026-03-01T12:00:00", datetime(2026, 3, 1, 12)), ("timestamp_ntz", "2026-03-01T12:00:00Z", Unfit), ("timestamp_ntz", "2026-03-01T12:00:00+00:00", Unfit),
    # Bytes
    ("binary", "YQ==", b"a"), ("binary", "YQ", Unfit), ("binary", "Y Q==", Unfit), ("binary", "é", Unfit), ("binary", "YWFh=", Unfit), ("binary", "YWFh====", Unfit), ("binary", "=", Unfit), ("binary", "", b""),
    # What is nested
    ({"type": "array", "elementType": "integer"}, [Number("1"), None], [1, None]), ({"type": "array", "elementType": "integer"}, ["007"], Unfit), ({"type": "array", "elementType": "integer"}, {}, Unfit),
    ({"type": "map", "keyType": "string", "valueType": "long"}, {"a": Number("1"), "b": None}, [("a", 1), ("b", None)]),
    ({"type": "struct", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "date"}]}, {"a": Number("1.0")}, {"a": "1.0", "b": None}),
    ({"type": "struct", "fields": [{"name": "a", "type": "timestamp"}]}, {"a": "10:15"}, Unfit),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "wanted"), EDGES)
def test_an_edge_has_the_value_of_the_table(kind: Any, value: Any, wanted: Any) -> None:
    """Where readers differ: ranges, other notations, clocks, zones."""
    found = converted(kind, value)
    assert (type(found), found) == (type(wanted), wanted)


def test_unknown_fields_of_a_struct_are_counted() -> None:
    more: list[str] = []
    inner = {"type": "struct", "fields": [{"name": "a", "type": "string"}]}
    conversions.of_type({"type": "array", "elementType": inner})([{"a": "x"}, {"b": "y"}], more)
    assert more == ["b"]


@pytest.mark.parametrize(
    "kind", ["variant", "interval", "time", {"type": "map", "keyType": "integer", "valueType": "string"}]
)
def test_a_type_that_no_line_can_hold_is_refused(kind: Any) -> None:
    with pytest.raises(Refused, match="can't be read from lines"):
        conversions.of_type(kind)
