"""Lines of JSON and CSV become rows, or have a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onlyonce.core import conversions, line_values
from onlyonce.core.line_values import Column

COLUMNS = [Column("id", "id", "string", conversions.string), Column("n", "n", "int", conversions.whole("int"))]
JSON = line_values.json_reader(COLUMNS, ["id", "n"])
CSV = line_values.csv_reader(COLUMNS)
A, B = '{"id":"one"}', '{"id":"two"}'


@pytest.mark.parametrize("line", [
    f"{A}],[{B}", f"{A}][{B}", f"{A}]{B}", f"{A}]garbage}}", f"{A}]\0}}", A + B, f"{A},{B}", f"{A} {B}", f"{A}x", f"{A}\u00a0", f"{A}\ufeff", f"{A}\x0b",
])  # fmt: skip
def test_more_than_one_object_is_invalid(line: str) -> None:
    """No record on a line is lost while another is kept."""
    assert JSON(line) == (None, line_values.MORE, False)


@pytest.mark.parametrize(("line", "reason"), [
    ("", "blank"), (" \t\r", "blank"), ("[]", "no JSON object"), (f"[{A}]", "no JSON object"), ("{'id':1}", "no JSON object"), ('{"id":NaN}', "no JSON object"),
    ('{"id":-Infinity}', "no JSON object"), ('{"id":"a\tb"}', "no JSON object"), ('{"id":01}', "no JSON object"), ('{"id":1.}', "no JSON object"), ("{" * 100_000, "no JSON object"),
    ('{"x":' + "[" * 1000 + "]" * 1000 + "}", "no JSON object"), ('{"id":"a","id":"b"}', "the field id twice"), ('{"x":{"y":1,"\\u0079":2}}', "the field y twice"),
    ('{"id":"\\ud800"}', "half of a surrogate"), ('{"x":["\\ude00"]}', "half of a surrogate"), ('{"\\ud83d":1}', "half of a surrogate"), ('{"x":"\\u0000"}', "the NUL character"),
    ('{"n":"7"}', "column n is no int: 7"), ('{"n":2147483648}', "column n is no int: 2147483648 (it is out of range)"), ('{"n":true,"id":1}', "column n is no int: true"),
])  # fmt: skip
def test_a_line_that_is_no_record_has_its_reason(line: str, reason: str) -> None:
    found = JSON(line)
    assert found.values is None
    assert reason in str(found.reason)


@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_the_depth_of_a_line_decides_and_not_the_caller(opened: str) -> None:
    """1,000 levels are read wherever the call comes from; as a string they are what they were."""
    closed = {"[": "]", '{"a":': "}"}[opened]
    deep = opened * 999 + ("" if opened == "[" else "1") + closed * 999

    def below(calls: int) -> line_values.Row:
        return below(calls - 1) if calls else JSON(f'{{"id":{deep}}}')

    assert below(0) == below(500) == ([deep, None], None, False)


def test_a_line_has_its_values_and_says_whether_there_is_more() -> None:
    assert JSON(' { "n" : 7 , "id" : 1.10 }\r') == (["1.10", 7], None, False)
    assert JSON('{"id":"\\ud83d\\uded2\\\\u0000","x":1}') == (["🛒\\u0000", None], None, True)


@pytest.mark.parametrize(("line", "values"), [
    ("a,7", ["a", 7]), (",", [None, None]), ('"",""', ["", None]), ('"a ""b"", c", 7 ', ['a "b", c', 7]), (" a ,7\r", [" a ", 7]), ("  ,  ", ["  ", None]), ('"  ","  "', ["  ", None]), ('"a\rb",7', ["a\rb", 7]), ('"7","7"', ["7", 7]),
])  # fmt: skip
def test_a_csv_line_has_its_values(line: str, values: list[object]) -> None:
    assert CSV(line) == (values, None, False)


@pytest.mark.parametrize(("line", "reason"), [
    ("", "blank"), ("a", "not the 2 columns"), ("a,7,", "not the 2 columns"), ('a,"7', "a quote is open"), ('a"b",7', "a quote is within"), ('"a"b,7', "a quote is within"),
    ('"a" ,7', "a quote is within"), ("a,\0", "the NUL character"), ("a,seven", "column n is no int: seven"), ("a\rb,7", "a carriage return is outside of quotes"), ("a,\t7", "column n is no int"), ('a,"7.0"', "column n is no int"),
])  # fmt: skip
def test_a_csv_line_that_is_no_record_has_its_reason(line: str, reason: str) -> None:
    found = CSV(line)
    assert found.values is None
    assert reason in str(found.reason)


@pytest.mark.parametrize(("read", "line", "reason"), [
    (JSON, '{"id":"a\\u0000\\u001b"}', "; column id: a\\x00\\x1b"), (JSON, '{"n":1,"x":{"y":["\\u0000"]}}', "; column x: \\x00"), (JSON, '{"\\u0000":1}', "; column \\x00: \\x00"),
    (CSV, "a\0\x1b,7", "; column id: a\\x00\\x1b"), (CSV, "a,7,\0", "; column number 3: \\x00"), (CSV, '"a\0""b,c",7', '; column id: a\\x00"b,c'),
])  # fmt: skip
def test_nul_names_its_column(read: Callable[[str], line_values.Row], line: str, reason: str) -> None:
    """The characters that harm a terminal are written out."""
    assert read(line) == (None, line_values.NUL + reason, False)
