"""Debezium's envelope is taken apart without a change of any value, and Debezium's placeholder never becomes one."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from onlyonce.api.messages import PLACEHOLDER
from onlyonce.core import line_values

READ = line_values.envelope_reader(("id", "notes"), PLACEHOLDER, keyed=False)
SOURCE = {"connector": "postgresql", "lsn": 7, "ts_ms": 1000}
IN_BASE64 = b64encode(PLACEHOLDER.encode()).decode()
TOASTED: list[Any] = [PLACEHOLDER, IN_BASE64, [PLACEHOLDER], {PLACEHOLDER: PLACEHOLDER}]


def envelope(op: str, before: Any, after: Any, **source: Any) -> str:
    """Return an envelope in JSON."""
    return json.dumps({"op": op, "before": before, "after": after, "source": SOURCE | source})


@pytest.mark.parametrize("row", [
    '{"id":1.10,"notes":1e400}', '{"id":12345678901234567890123456789012345678901234567890}', '{"notes":"é","id":-0.0}', '{"id":{"b":1.0,"a":[2E5]}}',
])  # fmt: skip
def test_a_row_keeps_its_characters(row: str) -> None:
    """Numbers have no other digits, and fields no other order."""
    line = envelope("c", None, "ROW").replace('"ROW"', row)
    assert READ(line) == (None, row, "c", f"{7:020}1", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))


@pytest.mark.parametrize("toasted", TOASTED)
def test_an_unchanged_value_is_taken_from_before(toasted: Any) -> None:
    """A value that did not change is the one before the change."""
    found = READ(envelope("u", {"id": 1, "notes": "long"}, {"id": 1, "notes": toasted}))
    assert (found.reason, found.row) == (None, '{"id":1,"notes":"long"}')


@pytest.mark.parametrize("toasted", TOASTED)
@pytest.mark.parametrize("before", [None, {"id": 1}, {"id": 1, "notes": PLACEHOLDER}])
def test_a_change_without_its_value_is_invalid(toasted: Any, before: Any) -> None:
    """The placeholder is no value, and the reason says what to set."""
    found = READ(envelope("u", before, {"id": 1, "notes": toasted}))
    assert found.row is None
    assert str(found.reason).startswith("column notes has Debezium's placeholder")
    assert "REPLICA IDENTITY FULL" in str(found.reason)


def test_a_placeholder_elsewhere_refuses_no_change() -> None:
    """A deleted row needs no such value, and a column that is not declared has none."""
    assert READ(envelope("d", {"id": 1, "notes": PLACEHOLDER}, None)).row == '{"id":1,"notes":null}'
    assert READ(envelope("u", None, {"id": 1, "other": PLACEHOLDER})).row == f'{{"id":1,"other":"{PLACEHOLDER}"}}'
    other = line_values.envelope_reader(("id",), "gone", keyed=False)
    assert other(envelope("u", None, {"id": PLACEHOLDER})).reason is None
    assert other(envelope("u", None, {"id": "gone"})).reason is not None


@pytest.mark.parametrize(("source", "reason"), [
    ({"lsn": None}, line_values.NO_PLACE), ({"connector": "mysql", "pos": 1}, line_values.NO_PLACE), ({"connector": "mysql", "file": "bin.1"}, line_values.NO_PLACE),
    ({"lsn": "7"}, "source.lsn is no whole number of at most 20 digits: 7"), ({"lsn": 7.5}, "source.lsn is no whole number of at most 20 digits: 7.5"), ({"lsn": -7}, "source.lsn is no whole number of at most 20 digits: -7"),
    ({"lsn": 2**63}, f"source.lsn is no whole number of at most 20 digits: {2**63}"), ({"connector": "mysql", "file": "bin", "pos": 1}, "source.file is no name of a binlog file, which ends in digits: bin"),
    ({"connector": "mysql", "file": "bin.1", "pos": 1, "row": 10**10}, "source.row is no whole number of at most 10 digits: 10000000000"),
])  # fmt: skip
def test_a_change_without_a_position_is_invalid(source: dict[str, Any], reason: str) -> None:
    """A position has no digit that was cut off, and no sign; one that is there is not called missing."""
    assert READ(envelope("c", None, {"id": 1}, **source)).reason == reason


@pytest.mark.parametrize("time", ["01.03.2026 10:05", 1.5, 10**18, True])
def test_time_of_a_change_that_is_no_time_is_not_called_missing(time: Any) -> None:
    """Only a null is missing, and receive says so of the event time."""
    said = READ(envelope("c", None, {"id": 1}, ts_ms=time)).reason
    assert str(said).startswith("the time of the change (ts_ms) is no number of milliseconds since 1970: ")
    assert (
        READ(envelope("c", None, {"id": 1}, ts_ms=None)).reason,
        READ(envelope("c", None, {"id": 1}, ts_ms=None)).time,
    ) == (None, None)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no JSON",
        "[]",
        '{"op":"c"}',
        '{"op":1,"source":{}}',
        '{"op":"c","op":"c"}',
        '{"op":"c","source":{}} {}',
        "{" * 200,
        '{"x":NaN}',
    ],
)
def test_another_message_is_no_envelope(line: str) -> None:
    """Whatever else the message is, it has a reason."""
    assert str(READ(line).reason).startswith(line_values.NO_ENVELOPE)


def test_half_a_surrogate_pair_is_invalid_in_the_row_alone() -> None:
    """What is not read decides nothing."""
    assert "half of a surrogate" in str(READ(envelope("u", None, {"id": "\ud800"})).reason)
    assert READ(envelope("u", {"id": "\ud800"}, {"id": "a"})).row == '{"id":"a"}'
