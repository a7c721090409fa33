"""Joins as they are declared: what can't work is refused, what has none is as it was, and which windows are computed
again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onlyonce import Delta, Files, FileSink, Fixed, Join, Lookup, Output, Pipeline, Session, Sliding
from onlyonce.api import load
from onlyonce.api.identity import output_parts
from onlyonce.core.backfill import Span, with_neighbours
from onlyonce.core.changes import Need, changes
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Joined

MINUTE = timedelta(minutes=1)
SECOND = 1_000_000
JOIN: Any = {"left": f"{__name__}:orders", "right": f"{__name__}:payments", "on": "order_id", "within": 30 * MINUTE}


def orders(rows: Any) -> Any:
    """A side."""


def payments(rows: Any) -> Any:
    """The other."""


def output(name: str = "paid", **changed: Any) -> Output:
    """An output that is right but for what is changed."""
    plain: dict[str, Any] = {"join": Join(**JOIN), "sink": Delta()}
    return Output(name=name, **plain | changed)


def pipeline(*outputs: Output) -> Pipeline:
    """A pipeline with these outputs."""
    return Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=outputs
    )


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no bound": (lambda: Join(**{k: v for k, v in JOIN.items() if k != "within"}), "within"),
    "a negative bound": (lambda: Join(**JOIN | {"within": -MINUTE}), "within=.* is negative"),
    "no whole bound": (lambda: Join(**JOIN | {"within": timedelta(microseconds=1500)}), "parts of a millisecond"),
    "no key": (lambda: Join(**JOIN | {"on": ()}), "Join: no key"),
    "a key twice": (lambda: Join(**JOIN | {"on": ("a", "a")}), "'a' is named twice"),
    "no function": (lambda: Join(**JOIN | {"left": "orders"}), "left='orders' is not of the form"),
    "another kind": (lambda: Join(**JOIN | {"kind": "outer"}), "kind='outer'"),
    "a transform": (lambda: output(transform="m:f"), "a join and transform"),
    "from another": (lambda: output(from_output="other"), "a join and from_output"),
    "lookups": (lambda: output(lookups=Lookup(name="l", table=Delta(path="l"), keys="k")), "a join and lookups"),
    "rejections": (lambda: output(reject="m:f"), "a join and reject"),
    "sessions": (lambda: output(window=Session(MINUTE)), "not Session"),
    "sliding windows": (lambda: output(window=Sliding(2 * MINUTE, MINUTE)), "not Sliding"),
    "an upsert": (lambda: output(sink=Delta(write="upsert", keys="order_id")), "appends its rows as they come"),
    "files": (lambda: output(sink=FileSink(shards=1)), "appends its rows as they come"),
    "early panes": (lambda: output(panes="early"), "gives each row once"),
    "made from it": (
        lambda: pipeline(output(), Output(name="sums", transform="m:f", from_output="paid", sink=Delta())),
        "gives its rows as they come, and not by closed windows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_can_not_be_joined_is_refused_when_it_is_declared(kind: str) -> None:
    """With what it is that does not go."""
    wrong, told = WRONG[kind]
    with pytest.raises(Refused, match=told):
        wrong()


def test_a_join_decides_the_fingerprint_of_its_own_output_alone() -> None:
    """An output without one has no word of it; another bound, key, side or kind is another join."""
    plain = Output(name="rows", transform=f"{__name__}:orders", sink=Delta())
    assert "join" not in output_parts(pipeline(plain), "rows", {"rows": ""})["outputs"]["rows"]

    others: tuple[dict[str, Any], ...] = (
        {"within": MINUTE},
        {"on": "id"},
        {"kind": "left"},
        {"left": f"{__name__}:payments"},
        {},
    )
    joins = [pipeline(output(join=Join(**JOIN | other))) for other in others]
    assert len({load.fingerprint(one, "paid") for one in joins}) == len(others)
    now = load.parts(joins[-1], "paid")
    for one in joins[:-1]:
        assert Need.NAME in {change.need for change in changes("paid", load.parts(one, "paid"), now)}


def test_the_windows_of_a_join_are_declared_ones_or_hours_and_stay_when_an_output_is_made_again() -> None:
    """With the bound of the join."""
    assert output().window == Joined(60 * MINUTE, within=30 * MINUTE)
    assert output(window=Fixed(MINUTE)).window == output(window=output(window=Fixed(MINUTE)).window).window


def test_a_span_is_computed_again_with_its_neighbours_and_with_theirs_where_late_records_wait() -> None:
    """Of minutes with a bound of 30 s: one on each side, and one more where the first has late records."""
    window, minute = Joined(MINUTE, within=MINUTE / 2), 60 * SECOND
    asked = Span(10 * minute, 11 * minute)

    assert with_neighbours(window, asked, []) == Span(9 * minute, 11 * minute + 1)
    far = [(5 * minute, 6 * minute), (10 * minute, 11 * minute)]
    assert with_neighbours(window, asked, far) == Span(9 * minute, 11 * minute + 1)
    near = [(9 * minute, 10 * minute), (8 * minute, 9 * minute)]
    assert with_neighbours(window, asked, near) == Span(7 * minute, 11 * minute + 1)
