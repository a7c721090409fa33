"""What the form of a run becomes, and when the trigger of a long run fires.

What they do with a log: `tests/contract`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onlyonce.airflow import log
from onlyonce.airflow.spark_job import arguments
from onlyonce.airflow.triggers import LongRunEnd
from onlyonce.core.errors import DatabaseAway, Refused
from onlyonce.core.runs import LongRun

FOREVER = {"mode": "continuous", "every": 2, "close": False, "bounded": False, "max_files": None, "dry_run": False}
BEAT = timedelta(minutes=1)


def test_the_form_becomes_the_command_line() -> None:
    """And a drain has nothing of it."""
    assert arguments("flights", FOREVER, "a b", "d") == [
        "flights",
        "--run-id=a b",
        "--dag-id=d",
        "--continuous",
        "--every=2",
    ]
    assert arguments("flights", {**FOREVER, "mode": "once"}, "a b", "d") == ["flights", "--run-id=a b", "--dag-id=d"]


ALIVE = LongRun("flights", 1, "run", "m:1:a", timedelta(0), BEAT, 1, False, None, None)
LOST = replace(ALIVE, quiet=BEAT * 9)


@pytest.mark.parametrize(
    "looks, problem",
    [
        ([ALIVE, ALIVE, replace(ALIVE, exit_code=0)], None),
        ([replace(ALIVE, exit_code=75)], None),
        ([LOST, LOST], None),
        ([ALIVE, LOST, ALIVE, LOST, LOST], None),
        ([None], None),
        ([ALIVE, DatabaseAway("away"), ALIVE, replace(ALIVE, exit_code=1)], None),
        ([LOST, DatabaseAway("away"), LOST], None),
        ([ALIVE, Refused("no platform")], "no platform"),
    ],
)
def test_the_trigger_fires_when_no_driver_is_alive(
    looks: list[Any], problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once when one said that it ended, at the second look when its heart is not heard; and it looks no more."""
    left = list(looks)

    def look(_: str) -> Any:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def events() -> list[Any]:
        return [event.payload async for event in LongRunEnd("flights", "s").run()]

    monkeypatch.setattr(log, "read_long_run", look)
    monkeypatch.setattr(LongRunEnd, "EVERY_SECONDS", 0)
    assert asyncio.run(events()) == [{"problem": problem}]
    assert left == []
