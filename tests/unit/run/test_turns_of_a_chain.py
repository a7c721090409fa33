"""The turns that a drain gives to the outputs of a chain: each behind the one before it, and none behind one that has
failed."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from onlyonce import Delta, Files, Fixed, Output, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.run import queries


def output(name: str, minutes: int, before: str | None = None) -> Output:
    """An output with windows of so many minutes."""
    return Output(
        name=name, transform="m:f", from_output=before, window=Fixed(timedelta(minutes=minutes)), sink=Delta()
    )


PIPELINE = Pipeline(
    name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
    outputs=(output("days", 1440, "hours"), output("hours", 60, "minutes"), output("minutes", 1), output("alone", 5)),
)  # fmt: skip


def turns(failing: str = "") -> list[str]:
    """The outputs in the order of their turns; one of them fails."""
    had: list[str] = []

    def work(root: Output) -> None:
        had.append(root.name)
        if root.name == failing:
            raise Refused("it does not go")

    context: Any = SimpleNamespace(pipeline=PIPELINE)
    if failing:
        with pytest.raises(Refused, match="it does not go"):
            queries._each(context, work)
    else:
        queries._each(context, work)
    return had


def test_each_output_has_its_turn_behind_the_one_before_it() -> None:
    """And all have one."""
    had = turns()

    assert sorted(had) == ["alone", "days", "hours", "minutes"]
    assert [name for name in had if name != "alone"] == ["minutes", "hours", "days"]


def test_what_is_made_from_one_that_has_failed_has_no_turn_and_the_others_have() -> None:
    """Its error is the run's."""
    assert sorted(turns("hours")) == ["alone", "hours", "minutes"]
    assert sorted(turns("minutes")) == ["alone", "minutes"]
