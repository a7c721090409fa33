"""Outputs made from another's closed windows as they are declared: what can't work is refused, which windows they have,
and what a change of one before asks for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onlyonce import AfterRecords, Delta, Files, Fixed, Join, Lookup, Output, Pipeline, Session, Sliding, Stateful
from onlyonce.api import load
from onlyonce.api.identity import output_parts
from onlyonce.core.backfill import Span
from onlyonce.core.changes import Need, changes
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Chained
from onlyonce.outputs import events

MINUTE = timedelta(minutes=1)
HOUR, DAY = 60 * MINUTE, timedelta(days=1)
ME = __name__


def per_minute(rows: Any) -> Any:
    """The first of the chain."""


def of_closed(rows: Any) -> Any:
    """The others."""


def minutes(**changed: Any) -> Output:
    """An output that reads the records."""
    plain: dict[str, Any] = {
        "name": "minutes",
        "transform": f"{ME}:per_minute",
        "window": Fixed(MINUTE),
        "sink": Delta(),
    }
    return Output(**plain | changed)


def hours(**changed: Any) -> Output:
    """One that is made from its closed windows."""
    plain: dict[str, Any] = {
        "name": "hours", "transform": f"{ME}:of_closed", "from_output": "minutes", "window": Fixed(HOUR), "sink": Delta(),
    }  # fmt: skip
    return Output(**plain | changed)


def pipeline(*outputs: Output) -> Pipeline:
    """A pipeline with these outputs."""
    return Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=outputs
    )


UPSERT = Delta(write="upsert", keys=("window_start", "id"))
STATEFUL = Stateful(processor=f"{ME}:Processor", keys="id", schema="id string, n long", timers_within=MINUTE)
LOOKUP = Lookup(name="l", table=Delta(path="l"), keys="k")
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a circle": (
        lambda: pipeline(minutes(from_output="hours", window=Fixed(2 * MINUTE)), hours()),
        "in a circle: minutes from hours from minutes",
    ),
    "nobody's windows": (lambda: pipeline(minutes(), hours(from_output="minute")), "no output 'minute'"),
    "no windows before": (lambda: pipeline(minutes(window=None), hours()), "minutes has no windows"),
    "sessions before": (lambda: pipeline(minutes(window=Session(MINUTE)), hours()), "minutes has sessions"),
    "sessions": (lambda: pipeline(minutes(), hours(window=Session(MINUTE))), "not into Session"),
    "sliding windows": (lambda: pipeline(minutes(), hours(window=Sliding(HOUR, MINUTE))), "not into Sliding"),
    "a join before": (
        lambda: pipeline(
            minutes(transform="", join=Join(left=f"{ME}:per_minute", right=f"{ME}:of_closed", on="id", within=MINUTE)), hours()
        ),
        "a join gives its rows as they come",
    ),
    "state before": (
        lambda: pipeline(minutes(transform="", window=None, stateful=STATEFUL), hours()), "a processor with state gives its rows as they come"),
    "early panes before": (lambda: pipeline(minutes(panes="early", sink=UPSERT), hours()), "early panes change"),
    "early panes": (lambda: pipeline(minutes(), hours(panes="early", sink=UPSERT)), "early panes change"),
    "a trigger": (lambda: pipeline(minutes(), hours(panes=AfterRecords(3), sink=UPSERT)), "early panes change"),
    "stable input before": (lambda: pipeline(minutes(stable_input=True), hours()), "minutes has stable_input"),
    "lookups before": (lambda: pipeline(minutes(lookups=LOOKUP), hours()), "minutes has lookups"),
    "lookups": (lambda: pipeline(minutes(), hours(lookups=LOOKUP)), "hours has lookups"),
    "rejections": (lambda: pipeline(minutes(), hours(reject=f"{ME}:of_closed")), "only records can be rejected"),
    "no function": (lambda: pipeline(minutes(), hours(transform="")), "a window of its own, and no transform"),
    "made in another's batches": (
        lambda: pipeline(minutes(), minutes(name="also", from_output="minutes", window=None), hours(from_output="also")),
        "also has no windows",
    ),
    "late ones that never come": (lambda: pipeline(minutes(), hours(late="backfill")), "minutes leaves late records out"),
    "a watermark delay without windows of its own": (
        lambda: pipeline(minutes(), hours(window=Fixed(MINUTE), watermark_delay=MINUTE)), "has the watermark delay of minutes"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_chain_that_can_not_work_is_refused(case: str) -> None:
    """By name, when it is declared."""
    make, says = WRONG[case]
    with pytest.raises(Refused, match=says):
        make()


def test_a_refusal_of_a_chain_is_told_at_the_users_line(tmp_path: Path) -> None:
    """The file, and the line of the pipeline that has the circle."""
    file = tmp_path / "pipelines.py"
    file.write_text(
        "from datetime import timedelta\n"
        "from onlyonce import Delta, Files, Fixed, Output, Pipeline\n"
        "A = Output(name='a', transform='m:f', from_output='b', window=Fixed(timedelta(1)), sink=Delta())\n"
        "B = Output(name='b', transform='m:f', from_output='a', window=Fixed(timedelta(2)), sink=Delta())\n"
        "PIPELINES = [Pipeline(name='p', source=Files(), schema='id string, at timestamp', record_id='id', "
        "event_time='at', outputs=[A, B])]\n"
    )

    with pytest.raises(Refused, match=r"pipelines.py:5: .*in a circle: a from b from a"):
        load.load([file])


def test_a_chain_is_in_order_however_it_is_declared() -> None:
    """Each output behind the one that it is made from; what has no windows of its own is made in the batches of
    another."""
    days = hours(name="days", from_output="hours", window=Fixed(DAY))
    also = minutes(name="also", from_output="hours", window=None)
    made = pipeline(days, also, hours(), minutes())

    assert made.queries() == ["receive", "minutes", "hours", "days"]
    assert [o.name for o in made.made_from(made.output("hours"))] == ["also"]
    assert [o.name for o in made.upstream(made.output("days"))] == ["minutes", "hours"]
    assert [o.name for o in made.downstream(made.output("minutes"))] == ["hours", "days"]


def test_the_same_window_is_no_window_of_its_own() -> None:
    """As it was: such an output is made in the batches of the other."""
    made = pipeline(minutes(), hours(window=Fixed(MINUTE)))

    assert made.queries() == ["receive", "minutes"]


def test_a_span_goes_down_the_chain_to_the_windows_that_are_made_of_it() -> None:
    """One minute is in one hour, and that in one day; two hours share no window further up than they are in."""
    made = pipeline(minutes(), hours(), hours(name="days", from_output="hours", window=Fixed(DAY)))
    hour, minute = HOUR // MINUTE * 60_000_000, 60_000_000

    def down(start: int, stop: int) -> dict[str, Span]:
        return {
            output.name: span for output, span in events.spans_below(made, made.output("minutes"), Span(start, stop))
        }

    assert down(hour - minute, hour) == {"hours": Span(0, 1), "days": Span(0, 1)}
    assert down(hour, hour + 1) == {"hours": Span(hour, hour + 1), "days": Span(0, 1)}
    assert down(1, minute) == {}


def test_what_an_output_before_decides_is_part_of_the_declaration() -> None:
    """Its function: a backfill.

    Its windows or its watermark_delay: a new incarnation and a backfill. No chain: nothing more is said.
    """
    made, waits = pipeline(minutes(), hours()), pipeline(minutes(watermark_delay=MINUTE), hours())
    other = pipeline(minutes(transform=f"{ME}:of_closed"), hours())
    was = load.parts(made, "hours")

    assert "upstream" not in load.parts(made, "minutes")["outputs"]["minutes"]
    assert [(c.part, c.need) for c in changes("hours", was, load.parts(other, "hours"))] == [
        ("upstream of output hours", Need.BACKFILL)
    ]
    assert [(c.part, c.need) for c in changes("hours", was, load.parts(waits, "hours"))] == [
        ("window of output hours", Need.BOTH)
    ]
    assert len({load.fingerprint(one, "hours") for one in (made, waits, other)}) == 3
    assert output_parts(made, "hours", {"hours": ""})["outputs"]["hours"]["from_output"] == "minutes"


def test_the_windows_of_a_chain_know_those_before_them() -> None:
    """Their watermark delay, and whether late records come through at all."""
    made = pipeline(
        minutes(watermark_delay=MINUTE, late="backfill"),
        hours(watermark_delay=2 * MINUTE),
        hours(name="days", from_output="hours", window=Fixed(DAY)),
    )
    hour, day = (made.output(name).window for name in ("hours", "days"))

    assert hour == Chained(HOUR, upstream=Fixed(MINUTE), waits_before=MINUTE, leaves_late_out=False)
    assert isinstance(day, Chained)
    assert (day.upstream, day.leaves_late_out, day.waits) == (hour, True, 3 * 60_000_000)
