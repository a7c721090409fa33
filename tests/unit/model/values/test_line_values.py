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


@pytest.mark.parametrize(("line", "where"), [
    ('{"id": "x2", "shop": ', " (the line ends before its object does, after 21 characters)"), ('{"id": "x', " (the line ends before its object does, after 9 characters)"),
    ("{'id':1}", " (it is no JSON from character 2 on)"), ('{"id":1 , }', " (it is no JSON from character 11 on)"), ('{"id":[1,]}', " (it is no JSON from character 10 on)"), ('{"id" 1}', " (it is no JSON from character 7 on)"), ('{"n":NaN}', " (NaN is no JSON number)"), ('{"n":-Infinity}', " (-Infinity is no JSON number)"),
    ("not json", ""), ("[1]", ""), ("PAR1", ", but the beginning of a Parquet file"),
])  # fmt: skip
def test_a_broken_line_says_where_it_breaks(line: str, where: str) -> None:
    """In words that depend on no version of Python."""
    assert JSON(line).reason == f"{line_values.NO_OBJECT}{where}: {line}"


@pytest.mark.parametrize(("kind", "form", "value", "told"), [
    ("timestamp", None, '"03.03.2025 16:00"', "declare its form: formats={'t': '%d.%m.%Y %H:%M'}"), ("date", None, '"3.3.2025"', "declare its form: formats={'t': '%d.%m.%Y'}"),
    ("timestamp_ntz", None, '"2025/03/03 16:00:59"', "declare its form: formats={'t': '%Y/%m/%d %H:%M:%S'}"), ("timestamp", None, '"3 Mar 2025 4:00 PM"', "declare its form: formats={'t': '%d %b %Y %I:%M %p'}"),
    ("timestamp", None, '"1/2/2026"', "declare its form: formats={'t': '%d/%m/%Y'} or formats={'t': '%m/%d/%Y'}"), ("timestamp", None, '"13/2/2026"', "declare its form: formats={'t': '%d/%m/%Y'}"),
    ("timestamp", None, "1767225600000", "declare its form: formats={'t': 'epoch_ms'}"), ("timestamp", None, '"1767225600"', "declare its form: formats={'t': 'epoch_s'}"),
    ("timestamp", None, '"yesterday"', "it is not ISO 8601, and `formats` names no other form"), ("timestamp", None, '"2025-02-30"', "there is no such time"), ("timestamp", None, "true", ""),
    ("timestamp", "%d/%m/%Y", '"03.03.2025"', "it is neither ISO 8601 nor '%d/%m/%Y', as declared"), ("timestamp", "epoch_ms", '"03.03.2025"', "it is neither ISO 8601 nor 'epoch_ms', as declared"),
    ("date", "%d/%m/%Y", "7", "it is neither ISO 8601 nor '%d/%m/%Y', as declared"), ("int", None, '"03.03.2025"', ""),
])  # fmt: skip
def test_a_time_in_another_form_says_what_to_declare(kind: str, form: str | None, value: str, told: str) -> None:
    """In JSON, and in CSV where it is no number."""
    read_by = conversions.of_type({"type": conversions.FORMATTED, "of": kind, "form": form} if form else kind)
    columns = [Column("t", "t", kind, read_by)]
    shown = value.strip('"')
    reason = f"column t is no {kind}: {shown}" + (f" ({told})" if told else "")

    assert line_values.json_reader(columns, ["t"])(f'{{"t":{value}}}').reason == reason
    if value.startswith('"'):
        assert line_values.csv_reader(columns)(shown).reason == reason


def test_each_form_to_declare_reads_the_value() -> None:
    """What a reason proposes is a form that a declaration may name."""
    for form, read in conversions._usual_forms().items():
        assert conversions.time_reader(form) is not None
        assert read("nothing") is None


NULL = ("NULL", "\\N", "0,0")
NULL_ROWS = {
    "NULL;NULL": [None, None],
    "\\N;0,0\r": [None, None],
    ";7": [None, 7],
    '"NULL"; NULL ': ["NULL", None],
    ' NULL;"NULL"': [" NULL", None],
    '"a;b";"\\N"': ["a;b", None],
    "null;7": ["null", 7],
}
"""Lines with semicolons, and their values if NULL are the words for null."""


@pytest.mark.parametrize("line", NULL_ROWS)
def test_word_for_null_is_null(line: str) -> None:
    """In any column. A string in quotes, or with spaces around it, stays; other types have neither."""
    assert line_values.csv_reader(COLUMNS, ";", NULL)(line) == (NULL_ROWS[line], None, False)
    assert line_values.csv_reader(COLUMNS, ";")("NULL;7") == (["NULL", 7], None, False)


def test_layout_has_its_delimiter_and_its_words_for_null() -> None:
    """As a task gets them; without the words it is what it was."""
    for delimiter, null, layout in ((",", (), "csv"), (";", (), "csv;"), (",", NULL, None), ("\t", ("NA",), None)):
        made = line_values.csv_layout(delimiter, null)
        assert (line_values.csv_delimiter(made), line_values.csv_null(made)) == (delimiter, null)
        assert layout in (made, None)


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
