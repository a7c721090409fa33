"""An erasure blanks records of CSV in place: all others stay the records that they were."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onlyonce.core import erasure
from onlyonce.core.errors import Retryable
from onlyonce.operate import erase_inputs, erase_search
from tests.support import csv_oracle

MOST = 30
STRAY = b'1,"a\nx"y\nb",2\n'
"""Without the quote of its second line, the quote of the first would be closed by the third."""


@given(csv_oracle.contents, st.sets(st.integers(0, 10)))
@example(STRAY, {1})
@example(b'1,"a\n2,"secret"\n3,b",x\n', {1})
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blanked_records_change_no_other(tmp_path: Path, content: bytes, chosen: set[int]) -> None:
    """Each has its place, and the blanked ones are one record each, of spaces and quotes."""
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    before = csv_oracle.records(content, MOST)
    blanked = [one for number, one in enumerate(before) if number in chosen]

    with path.open("rb") as file:
        state = erase_inputs.state_of(file)
    places = [(at, at + len(record)) for at, record in blanked]
    erase_inputs.blank_files(erase_inputs.Lines(path, places, state, with_quotes=True))

    after = csv_oracle.records(path.read_bytes(), MOST)
    assert [at for at, _ in after] == [at for at, _ in before]
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        assert set(new[1]) <= set(b' "') if number in chosen else new == old


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_values_of_a_record_over_several_lines_are_found(delimiter: str) -> None:
    """The record is meant as a whole, and so is one whose value has a line feed; a line within another record is
    none."""
    parts = (b'7,"a\n8,b\nc",u1', b'8,"x",u1', b'9,"a\nb",u2', b'9,"7",u3')
    first, second, third, other = (one.replace(b",", delimiter.encode()) for one in parts)
    content = first + b"\r\n" + second + b"\n" + third + b"\n" + other + b"\n"
    for where, meant in (
        ("id = 7", [first]),
        ("id = 8", [second]),
        ("user = 'u1'", [first, second]),
        ("note = 'a\nb'", [third]),
    ):
        condition = erasure.read_conditions(where, {"id": "bigint", "note": "string", "user": "string"})
        condition = replace(condition, delimiter=delimiter)

        places = erase_inputs.input_places(io.BytesIO(content), condition, ["id", "note", "user"], 1000)

        assert [content[begin:end] for begin, end in places] == meant


def test_word_for_null_is_no_value() -> None:
    """In a line of CSV, unless it is in quotes."""
    condition = erasure.read_conditions("user = 'NULL'", {"id": "bigint", "user": "string"})
    places = erase_inputs.input_places(
        io.BytesIO(b'1,NULL\n2,"NULL"\n'), replace(condition, null=("NULL",)), ["id", "user"], 1000
    )
    assert list(places) == [(7, 15)]


@pytest.mark.parametrize("who", ["Zoë €", "Ã©mile"])
def test_a_value_is_found_in_the_encoding_of_its_source(who: str) -> None:
    """Also if its bytes are another value in UTF-8: in the lines of the source, and by the search of all files."""
    content = f'1,{who},x\n2,Zoe,y\n3,"{who}",z\n'.encode("cp1252")
    condition = erasure.read_conditions(f"user = '{who}'", {"id": "bigint", "user": "string", "note": "string"})

    places = erase_inputs.input_places(io.BytesIO(content), condition, ["id", "user", "note"], 1000, "windows-1252")

    assert [content[begin:end].decode("cp1252") for begin, end in places] == [f"1,{who},x", f'3,"{who}",z']
    mentions = erasure.Mentions(condition, encodings=("windows-1252",))
    assert erase_search.count_mentions(content, mentions) == 2
    assert erase_search.count_mentions(content.replace(who.encode("cp1252"), b"Zo"), mentions) == 0


def test_file_that_changed_since_its_records_were_found_is_left(tmp_path: Path) -> None:
    """The places of its records are those of the file that was read."""
    path = tmp_path / "a.csv"
    path.write_text("1,a\n2,b\n")
    with path.open("rb") as file:
        state = erase_inputs.state_of(file)
    path.write_text("0,c\n1,a\n2,b\n")

    with pytest.raises(Retryable, match="has changed since its records were found"):
        erase_inputs.blank_files(erase_inputs.Lines(path, [(0, 3)], state))

    assert path.read_text() == "0,c\n1,a\n2,b\n"
