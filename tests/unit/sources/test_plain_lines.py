"""Blocks of lines as the tasks read them, without a JVM."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.sources.values import fast_json

KINDS = {"id": "string", "at": "timestamp", "day": "date"}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ids(*lines: str | None) -> list[Any]:
    """The id of each line that was read; None for one that was left to Spark's parser."""
    found, columns = fast_json.read_plain(pa.array(lines, pa.string()), KINDS)
    read_ids = iter(columns[0].to_pylist())
    return [next(read_ids) if one else None for one in found.to_pylist()]


def test_a_line_that_is_not_plain_is_left_out_and_the_others_keep_their_places() -> None:
    """Nulls (lines that are too long, files that can't be read) and odd lines, at both ends and between."""
    assert ids(None, '{"id":"a"}', "{", '{"id":"b"}', '{"id":"c"}', '{"id":"\\n"}') == [None, "a", None, "b", "c", None]
    assert ids() == []
    assert ids(None, "x") == [None, None]


def test_a_block_that_arrow_refuses_is_left_out_whole() -> None:
    """A key that is there twice, a day that is not: what is said of its other lines is Spark's word too."""
    for odd in ('{"id":"b","id":"c"}', '{"id":"b","day":"2026-02-30"}', '{"id":"b","at":"2026-02-30T00:00:00Z"}'):
        assert ids('{"id":"a"}', odd) == [None, None]


def test_times_with_and_without_zone_are_instants() -> None:
    """A time without a zone is UTC, beside others that have one."""
    times = ['"2026-03-01T12:00:00Z"', '"2026-03-01 12:00:00"', '"2026-03-01T17:30:00.0+05:30"', "null"]
    lines = pa.array([f'{{"at":{time}}}' for time in times])
    assert fast_json.read_plain(lines, KINDS)[1][1].to_pylist() == [NOON, NOON, NOON, None]


def test_of_texts_and_seconds_in_one_block_the_more_are_read() -> None:
    """A producer sends one or the other; where no layout tells them apart, the fewer are left to Spark's parser."""
    text, seconds = '{"id":"t","at":"2026-03-01T12:00:00Z"}', '{"id":"s","at":1772366400}'
    text2, seconds2 = '{"id":"t", "at":"2026-03-01T12:00:00Z"}', '{"id":"s", "at":1772366400}'
    assert ids(text, text, seconds) == ["t", "t", "s"]
    assert ids(text, text2, text, text2, seconds) == ["t", "t", "t", "t", None]
    assert ids(text, seconds, seconds2, seconds, seconds2) == [None, "s", "s", "s", "s"]
    assert fast_json.read_plain(pa.array([seconds]), KINDS)[1][1].to_pylist() == [NOON]


@pytest.mark.parametrize("time", ['"9999-12-31T23:59:59-05:00"', "-62135596801", "-99999999999"])
@pytest.mark.parametrize("lines", [1, 20])
def test_a_year_outside_1_to_9999_is_left_out(time: str, lines: int) -> None:
    """By an offset or by a number of seconds; whether the lines of a block are alike or not."""
    good = '{"id":"a","at":"2026-03-01T12:00:00Z"}' if time[0] == '"' else '{"id":"a","at":1772366400}'
    assert ids(*[good] * lines, f'{{"id":"b","at":{time}}}', good) == [*["a"] * lines, None, "a"]
