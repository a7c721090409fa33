"""What a notebook sees of a pipeline that has run: each kind of table, and the fates of its records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import onlyonce
from onlyonce import Refused
from onlyonce.sinks.files import finalize
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)


def flight(number: int, minutes: int, carrier: str = "UA") -> dict[str, Any]:
    """A line of the reference data."""
    at = (TEN + timedelta(minutes=minutes)).isoformat()
    return {"carrier": carrier, "flight": number, "origin": "EWR", "scheduled_departure": at, "arr_delay": number}


def test_a_notebook_has_results_and_fates_by_three_calls(new_platform: Callable[..., Platform]) -> None:
    """A Delta table, files with their final names, a PostgreSQL table, late and invalid records, and one record's
    way."""
    platform = new_platform("jobs/pipelines.py")
    flights = onlyonce.open("flights")
    with pytest.raises(Refused, match="has no rows yet"):
        flights.output("per_carrier")
    platform.put("flights", "1.jsonl", [flight(1, 5), flight(2, 10, "B6"), flight(3, 600), "{bad"])
    platform.run("flights")
    platform.put("flights", "2.jsonl", [flight(4, 20)])
    platform.run("flights", "--close")
    finalize.main(["flights"])

    ten = flights.output("per_carrier").query("window_start == @TEN")
    assert dict(zip(ten["carrier"], ten["flights"], strict=True)) == {"UA": 1, "B6": 1}
    assert sorted(flights.output("carrier_files")["carrier"]) == ["B6", "UA", "UA"]
    assert sorted(flights.output("per_hour")["flights"]) == [1, 2]
    assert set(flights.late("per_carrier")["flight"]) == {4}
    assert len(flights.late()) == 2
    assert list(flights.invalid()["raw"]) == ["{bad"]
    of_four = ("UA", 4, "EWR", "2013-01-01 10:20")
    assert list(flights.trace(*of_four)["fate"]) == ["kept"]
    assert set(flights.windows(*of_four)["fate"]) == {"late"}
    assert flights.trace("UA", 99, "EWR", "2013-01-01 10:20").empty
    with pytest.raises(Refused, match="did you mean 'per_hour'"):
        flights.output("per_hours")
    with pytest.raises(Refused, match="no pipeline 'flight'"):
        onlyonce.open("flight")
