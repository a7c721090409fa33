"""Lookups as they are declared: what can't work is refused, what has none is as it was, and a function takes what it is
given."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onlyonce import Delta, Files, Fixed, Lookup, Output, Pipeline, Postgres, Session
from onlyonce.api import functions, load, target_identity
from onlyonce.api.identity import output_parts
from onlyonce.core.changes import Need, changes
from onlyonce.core.errors import Refused

MINUTE = timedelta(minutes=1)
# Without types, so that wrong options can be given.
lookup: Any = Lookup
CITIES = Lookup(name="cities", table=Delta(path="cities"), keys="shop")


def output(name: str = "sums", **changed: Any) -> Output:
    """An output that is right but for what is changed."""
    plain: dict[str, Any] = {"transform": f"{__name__}:joined", "sink": Delta(), "lookups": CITIES}
    return Output(name=name, **plain | changed)


def pipeline(*outputs: Output) -> Pipeline:
    """A pipeline with these outputs."""
    return Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=outputs
    )


def joined(rows: Any, cities: Any) -> Any:
    """Takes the lookup."""


def alone(rows: Any) -> Any:
    """Takes none."""


def by_another_name(rows: Any, citys: Any) -> Any:
    """Takes it by another name."""


def with_more(rows: Any, cities: Any, factor: int = 2, **rest: Any) -> Any:
    """Takes more, which may be left out."""


WRONG: dict[str, tuple[Callable[[], object], str, str]] = {
    "no keys": (lambda: lookup(name="cities", table=Delta(path="cities")), "lacks `keys`", "add keys='id', which has no default: the columns"),
    "keys of no columns": (lambda: lookup(name="cities", table=Delta(path="cities"), keys=()), "no keys", "keys='id'"),
    "no path": (lambda: lookup(name="cities", table=Delta(), keys="shop"), "names no table", "path="),
    "no table": (lambda: lookup(name="cities", table="cities", keys="shop"), r"Lookup\(table='cities'\): must be Delta or Postgres", "Delta"),
    "a URL": (lambda: lookup(name="cities", table=Postgres(table="a.b", connection="postgresql://u:p@h/d"), keys="shop"), "connection is a URL", "a password"),
    "refresh of Delta": (lambda: lookup(name="cities", table=Delta(path="c"), keys="shop", refresh=MINUTE), "refresh is for a copy", "leave refresh out"),
    "a refresh of days": (lambda: lookup(name="cities", table=Postgres(table="a.b"), keys="shop", refresh=2000 * MINUTE), "from none to a day", "minutes=1"),
    "a refresh before now": (lambda: lookup(name="cities", table=Postgres(table="a.b"), keys="shop", refresh=-MINUTE), "refresh is -1 day", "minutes=1"),
    "an upsert": (
        lambda: lookup(name="cities", table=Delta(path="c", write="upsert", keys="shop"), keys="shop"), "only read", "leave write out",
    ),
    "a keyword": (lambda: lookup(name="class", table=Delta(path="c"), keys="shop"), "a parameter of that name", "another"),
    "two of one name": (lambda: output(lookups=[CITIES, CITIES]), "two lookups are named 'cities'", "rename"),
    "late sessions": (
        lambda: output(window=Session(gap=MINUTE), late="backfill"), "may merge sessions", "--lookups now",
    ),
    "another table under one name": (
        lambda: pipeline(
            output(window=Fixed(MINUTE)),
            output("made", from_output="sums", lookups=Lookup(name="cities", table=Delta(path="other"), keys="shop")),
        ),
        "another table than that of sums", "rename",
    ),
    "a table of its own": (
        lambda: target_identity.refuse_own_tables([pipeline(output(), output("each", sink=Delta(path="x/../cities")))]),
        "the table that output each of the same pipeline writes", "from_output='each'",
    ),
    "no parameter": (lambda: functions.check_parameters(output(), alone), "has no parameter 'cities'", r"def alone\(rows, cities\)"),
    "another name": (lambda: functions.check_parameters(output(), by_another_name), "has no parameter 'cities'", "did you mean 'citys'"),
    "no lookup": (lambda: functions.check_parameters(output(lookups=()), joined), "takes 'cities', which nothing is given to", "no lookups"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_can_not_work_is_refused_with_the_way_out(case: str) -> None:
    """The message names the cause, the hint what to write instead."""
    make, what, hint = WRONG[case]
    with pytest.raises(Refused, match=what) as refused:
        make()
    assert re.search(hint, refused.value.hint), refused.value.hint


def test_a_function_takes_what_its_output_gives_it() -> None:
    """A lookup by its name; what has a default may be left out."""
    for function in (joined, with_more):
        functions.check_parameters(output(), function)
    functions.check_parameters(output(lookups=()), alone)


def test_a_pipeline_without_lookups_is_as_it_was_and_with_one_it_is_another() -> None:
    """A fingerprint from before there were lookups stays; a lookup, its table or its keys make another."""
    assert "lookups" not in load.parts(pipeline(output(lookups=())), "sums")["outputs"]["sums"]
    others = [
        (),
        CITIES,
        Lookup(name="cities", table=Delta(path="cities"), keys=["shop", "city"]),
        Lookup(name="cities", table=Postgres(table="a.b"), keys="shop"),
    ]
    found = {load.fingerprint(pipeline(output(lookups=given)), "sums") for given in others}
    assert len(found) == len(others)


def test_another_table_is_a_change_that_needs_nothing() -> None:
    """It needs nothing: what is written saw the old table, and a backfill makes it again."""
    before, after = (output_parts(pipeline(output(lookups=given)), "sums", {"sums": "f"}) for given in ((), CITIES))
    found = changes("sums", before, after)
    assert [(change.part, change.need) for change in found] == [("lookups of output sums", Need.NOTHING)]
    assert "--lookups now" in found[0].why
    assert found[0].before is None
