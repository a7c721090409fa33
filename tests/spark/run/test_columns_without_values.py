"""A column that no record of the first run has is named: its name may be misspelt, and its results would be null."""

from __future__ import annotations

import pytest

from tests.support.changes import declare, output, sale
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

SCHEMA = "id string, shop string, at timestamp, cents long, wieght double, note string"


def test_columns_without_a_value_are_named_by_the_first_run(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the fields that the records have instead. Not by the second run: a column may be seldom used."""
    declared = declare(platform.home, output("in_windows"), SCHEMA)
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(declared))
    platform.put("shop", "a.jsonl", [sale(n, colour="red") for n in range(4)])
    platform.put("shop", "b.jsonl", [sale(4), sale(5)])

    first = platform.run("shop")
    platform.put("shop", "c.jsonl", [sale(6)])
    second = platform.run("shop")

    assert first.warnings == [
        f"{declared}:6: no value in wieght, note: null in all 6 records that were looked at. Are the columns spelt as in "
        "the records? They have fields that no column takes: colour, weight."
    ]
    assert second.warnings == []
