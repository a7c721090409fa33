"""The numbers of a row that goes to BigQuery by streaming inserts. Pure."""

from __future__ import annotations

import json

import pytest

from onlyonce.sinks.outbox.send_bigquery import row_of


@pytest.mark.parametrize(
    ("written", "sent"),
    [("0.10", 0.1), ("1E-18", 1e-18), ("-0.0", -0.0), ("9223372036854775807", "9223372036854775807"),
     ("9007199254740991", 9007199254740991), ("-9007199254740991", -9007199254740991),
     ("9007199254740993", "9007199254740993"), ("-9007199254740992", "-9007199254740992"),
     ("12345678901234567890123456789", "12345678901234567890123456789"),
     ("12345678901234567.89", "12345678901234567.89"), ("1E400", "1E400"), ("1.7976931348623157E308", 1.7976931348623157e308)],
)  # fmt: skip
def test_a_number_reaches_bigquery_exactly(written: str, sent: float | str) -> None:
    """A number that a float would change, or may, as JSON's readers have it, is a string, also within arrays and structs."""
    assert json.dumps(row_of(f'{{"a": {written}, "b": [{{"c": {written}}}]}}')) == json.dumps(
        {"a": sent, "b": [{"c": sent}]}
    )
