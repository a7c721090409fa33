"""Which rows are staged, and why. Pure."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onlyonce.core.unrepeatable import (
    COSTS,
    LISTED,
    SMALLEST,
    Found,
    Kind,
    because,
    declared_of,
    expression_of,
    listed,
    staged_rows,
)
from onlyonce.outputs import unrepeatable

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "stable-input.md"
MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "staging.json"
RAND = Found("rand()", "rand(1)", LISTED["Rand"])
NOW = Found("now()", "now()", LISTED["Now"])


@pytest.mark.parametrize(
    ("declared", "found", "exactly_once", "why"),
    [
        (None, [], True, None),
        (None, [RAND, NOW], True, "rand() draws a new value at each run"),
        (None, [NOW], True, "now() is the time of the run"),
        (None, [RAND], False, None),
        (False, [RAND], True, None),
        (True, [], True, "stable_input=True is declared"),
        (True, [RAND], False, "stable_input=True is declared"),
    ],
)
def test_the_plan_decides_unless_it_is_declared(
    declared: bool | None, found: list[Found], exactly_once: bool, why: str | None
) -> None:
    """At least once, only a declaration stages."""
    assert because(declared, found, exactly_once=exactly_once) == why


@pytest.mark.parametrize(
    ("options", "whole"),
    [([None, None], None), ([None, False], False), ([False, True], True), ([None, True], True)],
)
def test_the_results_of_a_function_are_staged_together(options: list[bool | None], whole: bool | None) -> None:
    """If one of them is declared to be, all are."""
    assert declared_of(options) is whole


def test_sparks_flag_counts_only_for_what_the_list_lacks() -> None:
    """The clock is staged although Spark calls it deterministic."""
    now, unknown = listed("Now", deterministic=True), listed("OfTomorrow", deterministic=False)
    assert now is not None
    assert now.kind is Kind.CLOCK
    assert unknown is not None
    assert unknown.kind is Kind.CHANCE
    assert listed("Add", deterministic=True) is None


def test_a_report_has_no_table_of_nothing() -> None:
    """Its rows name the pipeline, the output, the line, the reason, what it costs, and what to write instead."""
    assert staged_rows({"shop": {}}, {}) == {}
    [[row]] = staged_rows({"shop": {"sums": str(RAND)}}, {("shop", "sums"): "p.py:7"}).values()
    instead = "use a hash of the record's id (xxhash64)"
    assert list(row.values()) == ["shop", "sums", "p.py:7", "rand() draws a new value at each run", COSTS, instead]


@pytest.mark.parametrize(
    ("why", "called", "instead"),
    [
        (str(RAND), "rand", LISTED["Rand"].instead),
        (str(Found("Limit", "", LISTED["GlobalLimit"])), "Limit", f"{SMALLEST} for each key"),
        (str(Found("listagg(shop, NULL)", "", LISTED["ListAgg"])), "listagg", LISTED["ListAgg"].instead),
        ("stable_input=True is declared", "", None),
    ],
)
def test_a_reason_names_its_expression(why: str, called: str, instead: str | None) -> None:
    """A declared option is no expression."""
    assert expression_of(why) == called
    [[row]] = staged_rows({"shop": {"sums": why}}, {}).values()
    assert row["if it is not wanted"] == (f"use {instead}" if instead else "take stable_input=True out")


def test_each_expression_that_spark_does_not_flag_is_looked_for_by_its_name() -> None:
    """A plan is only walked where a name is in its text."""
    operators = {"GlobalLimit", "Deduplicate", "DeduplicateWithinWatermark"}
    not_flagged = {
        name.lower() for name, one in LISTED.items() if one.kind is not Kind.CHANCE and name not in operators
    }
    assert not_flagged <= {*unrepeatable._NAMES.replace("_", "").split("|")}


OPERATORS = {
    "GlobalLimit": "limit", "Deduplicate": "dropDuplicates", "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark"
}  # fmt: skip
"""The operators of the list that are called by another name than Spark's own."""


def entries() -> dict[str, list[str]]:
    """The rows of the page's list by each name in their first cell, without case and underscores."""
    _, _, *lines = PAGE.read_text().split("| expression |")[1].split("\n\n")[0].splitlines()
    found: dict[str, list[str]] = {}
    for line in lines:
        expressions, *cells = line.strip("|").split(" | ")
        for name in re.findall("`(\\w+)", expressions):
            found[name.replace("_", "").lower()] = [cell.replace("`", "").strip() for cell in cells]
    return found


@pytest.mark.parametrize("name", LISTED)
def test_page_has_each_expression_with_its_reason(name: str) -> None:
    """With what to write in its place."""
    assert entries()[OPERATORS.get(name, name).lower()] == [LISTED[name].reason, LISTED[name].instead]


def test_page_has_the_measured_cost_of_staging() -> None:
    """The difference of the medians, in the head of the list and below it."""
    batches = json.loads(MEASURED.read_text())["batches"]
    few, many = (f"{batches[size]['staged'] - batches[size]['plain']:.1f} s" for size in ("10", "1000000"))
    page = " ".join(PAGE.read_text().split())

    assert f"| without staging, which adds {few} (10 records) to {many} (a million) to a batch |" in page
    assert f"Measured: {few} more for a batch of ten records, and {many} more for a million" in page
