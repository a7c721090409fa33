"""An option that is a length of time is refused as such, and a text gets the timedelta that it means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onlyonce.api.outputs import Output
from onlyonce.api.pipeline import Pipeline
from onlyonce.api.sinks import Webhook
from onlyonce.core.errors import Refused
from onlyonce.core.triggers import AfterTime
from onlyonce.core.windows import Fixed, Session, Sliding

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("declared", "options", "what", "hint"),
    [
        (Fixed, {"size": "1 hour"}, "Fixed(size='1 hour')", "did you mean size=timedelta(hours=1)"),
        (Fixed, {"size": HOUR, "offset": "10m"}, "Fixed(offset='10m')", "did you mean offset=timedelta(minutes=10)"),
        (Sliding, {"size": HOUR, "slide": 600}, "Sliding(slide=600)", "did you mean slide=timedelta(minutes=10)"),
        (Session, {"gap": None}, "Session(gap=None)", "for example gap=timedelta("),
        (AfterTime, {"time": "30 s"}, "AfterTime(time='30 s')", "did you mean time=timedelta(seconds=30)"),
        (Output, {"watermark_delay": "2 days"}, "Output(watermark_delay='2 days')", "did you mean watermark_delay=timedelta(days=2)"),
        (Pipeline, {"max_ahead": None}, "Pipeline(max_ahead=None)", "for example max_ahead=timedelta("),
        (Webhook, {"timeout": 30}, "Webhook(timeout=30)", "did you mean timeout=timedelta(seconds=30)"),
    ],
)  # fmt: skip
def test_another_value_than_a_timedelta_is_refused_by_name(
    declared: Any, options: dict[str, Any], what: str, hint: str
) -> None:
    with pytest.raises(Refused) as refused:
        declared(**options)
    assert (refused.value.what, hint in refused.value.hint) == (f"{what}: must be a timedelta", True)


def test_a_length_that_may_be_missing_may_be_none() -> None:
    declared: Any = Pipeline
    with pytest.raises(Refused, match="name"):  # the next that is wrong
        declared(idle_after=None)


@pytest.mark.parametrize(
    ("declare", "what", "hint"),
    [
        (lambda: Fixed(HOUR, timezone="Europe/Rome"), "Fixed(size=timedelta(hours=1), timezone='Europe/Rome')", "offset="),
        (lambda: Fixed(HOUR, timedelta(minutes=90)), "Fixed(offset=timedelta(hours=1, minutes=30))", "offset=timedelta(minutes=30)"),
        (lambda: Session(-HOUR), "Session(gap=-timedelta(hours=1))", "positive"),
        (lambda: Fixed(timedelta(0)), "Fixed(size=timedelta(0))", "positive"),
    ],
)  # fmt: skip
def test_an_error_repeats_a_length_as_it_is_declared(declare: Callable[[], object], what: str, hint: str) -> None:
    with pytest.raises(Refused) as refused:
        declare()
    assert refused.value.what.startswith(what)
    assert hint in refused.value.hint
