"""Plain lines: what the expression finds, every parser reads alike."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlyonce.core import line_template

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.text(max_size=3), SCALARS, max_size=2))
KINDS = {"id": "string", "n": "bigint", "small": "tinyint", "x": "double", "at": "timestamp", "odd (name).*": "boolean"}
EXACTLY = line_template.exact(KINDS)
VALUE = st.one_of(VALUES, st.sampled_from(["2026-03-01T12:00:00Z", "2026-03-01 12:00:00.5+01:00", 1.5, -0.0, 10**18]))


def exactly(*lines: str) -> list[bool]:
    """Which of the lines the expression finds, asked as the tasks ask."""
    found: list[bool] = pc.match_substring_regex(pa.array(lines, pa.string()), EXACTLY).to_pylist()
    return found


@given(
    st.dictionaries(st.sampled_from([*KINDS, "other", "i"]), VALUE, max_size=4),
    st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :  ")]),
    st.sampled_from(["", " ", "\n", "}", "{}"]),
)
def test_what_is_found_exactly_is_an_object_of_the_declared_types(
    record: dict[str, Any], separators: tuple[str, str], tail: str
) -> None:
    """Whatever a line is found to be, a strict parser reads it, and each value is of its column's type or null."""
    line = json.dumps(record, separators=separators, ensure_ascii=False) + tail
    if not exactly(line)[0]:
        return
    assert json.loads(line) == record
    assert all(value is None or type(value) in _types(KINDS[key]) for key, value in record.items())
    assert abs(record.get("small") or 0) < 128


def _types(kind: str) -> tuple[type, ...]:
    return {"string": (str,), "timestamp": (str,), "boolean": (bool,), "double": (int, float)}.get(kind, (int,))


def test_usual_lines_are_found_exactly() -> None:
    """In any order of the keys, with one of them missing, and with spaces as producers write them."""
    assert all(
        exactly(
            '{"id":"a","n":5,"small":-7,"x":0.25,"at":"2026-03-01T12:00:00.123Z","odd (name).*":true}',
            '{ "at" : "2026-03-01 12:00:00", "id": "é€😀", "x": 5 }', '{"id":null,"n":-999999999999999999}',
        )
    )  # fmt: skip


def test_what_two_parsers_may_read_in_two_ways_is_not_found_exactly() -> None:
    """Escapes, numbers at the edge of their type or in another notation, times of another form, and no JSON at all."""
    values = {
        "id": ['"a\\n"', "5", '"a\tb"', "a"], "n": ["9" * 19, "1.0", "1e2", "07", "+1", '"5"'], "small": ["128", "100"],
        "x": ["-0", "1e5", ".5", "1.", "NaN", "1" * 16], "odd (name).*": ["TRUE", "1"],
        "at": ['"2026-03-01"', '"2026-03-01T24:00:00Z"', '"2026-03-01T12:00:00+18:00"', "5", '"2026-13-01T00:00:00Z"'],
    }  # fmt: skip
    lines = [f'{{"{name}":{value}}}' for name, some in values.items() for value in some]
    others = ["", "{}", "null", '{"id":"a",}', '{"id":"a"} ', '{"id":"a"}\n', '{"id":"a"}{"id":"b"}', '{"id":"a" "n":1}', '{"m":1}', '\ufeff{"id":"a"}']  # fmt: skip
    assert not any(exactly(*lines, *others))


OF_LAYOUTS = {"id": "string", "user": "bigint", "at": "timestamp", "yes": "boolean"}


@pytest.mark.parametrize(("line", "fixed", "values"), [
    ('{"id":"a","user":5}', ['{"id":"', '","user":', "}"], {"id": "string", "user": "bigint"}),
    ('{ "user" : 5 , "id":"" }', ['{ "user" : ', ' , "id":"', '" }'], {"user": "bigint", "id": "string"}),
    ('{"id":null,"at":"2026-01-01 10:00:00"}', ['{"id":null,"at":"', '"}'], {"at": "timestamp"}),
    ('{"at":1772366400,"yes":true}', ['{"at":', ',"yes":', "}"], {"at": "seconds", "yes": "boolean"}),
])  # fmt: skip
def test_a_layout_is_the_text_around_the_values(line: str, fixed: list[str], values: dict[str, str]) -> None:
    """With its white space, and the form that times have; what is null is fixed."""
    assert line_template.layout(line, OF_LAYOUTS) == line_template.Layout(
        tuple(part.encode() for part in fixed), tuple(values.items())
    )


@pytest.mark.parametrize("line", [
    "", "{}", "null", '{"id":null}', '{"id":"a"} ', ' {"id":"a"}', '{"id":"a"}{"id":"b"}', '{"id":"a",}', '{,"id":"a"}', '{"id":"a""user":5}',
    '{"id":"a","id":"b"}', '{"other":1}', '{"id":5}', '{"user":"5"}', '{"yes":"true"}', '{"id":"a","id":null}', '["id":"a"]', '{"id":"a"', '{"user":[1]}{',
])  # fmt: skip
def test_what_is_no_flat_object_of_different_columns_has_no_layout(line: str) -> None:
    """What a layout has fixed is right; so a line with two keys of one name, or a text where a number belongs, makes
    none."""
    assert line_template.layout(line, OF_LAYOUTS) is None


@pytest.mark.parametrize("name", ['a"b', 'b":1,"id'])
def test_a_column_with_a_quotation_mark_in_its_name_has_no_layout(name: str) -> None:
    """JSON writes it otherwise; marks are what values are found by."""
    assert line_template.layout(f'{{"{name}":5}}', {"id": "string", name: "bigint", "b": "bigint"}) is None
