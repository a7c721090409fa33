"""A table as a source: what can't work is refused when it is declared, with the way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onlyonce import Delta, DeltaSource, Fixed, Input, Output, Pipeline
from onlyonce.api import load
from onlyonce.api.identity import receive_parts
from onlyonce.core.errors import Refused
from tests.support.shop import SHOP

CHANGES = f"{SHOP.schema}, _change_type string, _commit_version long, _commit_timestamp timestamp"


def over(schema: str = SHOP.schema, record_id: tuple[str, ...] = (), **options: Any) -> Pipeline:
    """The test pipeline over a table."""
    return replace(SHOP, source=DeltaSource(**({"path": "raw/sales"} | options)), schema=schema, record_id=record_id)


def chain(name: str, reads: str, **sink: Any) -> Pipeline:
    """A pipeline over a table, with one output."""
    output = Output(name="out", transform="t:f", window=Fixed(timedelta(hours=1)), sink=Delta(**sink))
    return Pipeline(
        name=name,
        source=DeltaSource(path=reads),
        schema="id string, at timestamp",
        record_id=(),
        event_time="at",
        outputs=output,
    )


def replaced_late() -> Pipeline:
    """A pipeline whose windows are computed anew when something is late."""
    made = chain("a", "raw")
    return replace(made, outputs=replace(made.outputs[0], late="backfill"))


REFUSALS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a URL of no store": (lambda: over(path="file:///data/t"), "not s3://bucket/prefix", "the standard variables of the store"),
    "no table": (lambda: DeltaSource(), "one of path and table", "table='sales.orders'"),
    "both": (lambda: over(table="sales.orders"), "one of path and table", "path='shop/per_shop'"),
    "a name that is a folder": (lambda: DeltaSource(table="/lake/sales.orders"), "not the name of a table", "a folder is named by path='/lake/sales.orders'"),
    "a name without a schema": (lambda: DeltaSource(table="orders"), "not the name of a table", "'schema.table'"),
    "nothing": (lambda: over(path=""), "not a table's folder", "below <home>/tables"),
    "a way up": (lambda: over(path="../sales"), "not a table's folder", "its whole path"),
    "a start that is a text": (lambda: over(start="latest"), "start='latest'", "the number of a version"),
    "a start before all": (lambda: over(start=-1), "start=-1", "the number of a version"),
    "a start that is a bool": (lambda: over(start=True), "DeltaSource(start=True): must be 'earliest' or a whole number", "give start as"),
    "no files": (lambda: over(max_files_a_batch=0), "at least 1", "1000"),
    "misspelt": (lambda: over(ignore_delete=True), "ignore_delete", "ignore_deletes"),
    "deletes both ways": (lambda: over(CHANGES, changes=True, ignore_deletes=True), "leaves them out", "one of the two"),
    "columns of changes without changes": (lambda: over(CHANGES), "change data feed", "changes=True"),
    "changes without their kind": (lambda: over(changes=True), "would look like a new one", "_change_type string"),
    "a change of another type": (lambda: over(CHANGES.replace("_commit_version long", "_commit_version int"), changes=True), "declared as int", "bigint"),
    "changes by an id": (lambda: over(CHANGES, ("id",), changes=True), "would be a duplicate", "record_id=()"),
    "one table twice": (
        lambda: replace(SHOP, source=Pipeline.source, sources={"a": DeltaSource(path="t"), "b": DeltaSource(path="t", start=3)}, id_space="shared"),
        "two of its sources read the table t", "declare it once"),
    "its own output": (lambda: load.check_following([chain("a", "a/out")]), "reads what it writes", "write elsewhere"),
    "a circle": (lambda: load.check_following([chain("a", "c/out"), chain("b", "a/out"), chain("c", "b/out/")]), "reads what it writes, by way of b, c", "write elsewhere"),
    "the appends of an upsert": (
        lambda: load.check_following([chain("a", "raw", write="upsert", keys="id"), chain("b", "a/out")]), "whose rows are replaced", "changes=True"),
    "the appends of windows that are computed anew": (
        lambda: load.check_following([replaced_late(), chain("b", "a/out")]), "late='backfill'", "changes=True"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_work_is_refused_with_the_way_out(name: str) -> None:
    """When it is declared, so when the file with the declarations is loaded."""
    make, what, hint = REFUSALS[name]
    with pytest.raises(Refused) as refused:
        make()
    assert what in refused.value.what
    assert hint in refused.value.hint


def test_what_can_work_is_taken() -> None:
    """By place and by columns, appends and changes, a chain of pipelines."""
    assert over(record_id=("id",), start=7, ignore_deletes=True).source.format == "parquet"
    assert over(CHANGES, changes=True).by_position
    assert over(CHANGES, ("id", "_commit_version", "_change_type"), changes=True).record_id
    load.check_following([chain("c", "b/out"), chain("b", "a/out"), chain("a", "raw")])
    assert load.followed(chain("b", "a/out"), [chain("a", "raw")]) == [("a", "out")]
    both = replace(
        SHOP,
        source=Pipeline.source,
        sources={"a": DeltaSource(path="a/out"), "b": Input(source=DeltaSource(path="b/out"))},
        id_space="shared",
    )
    assert load.followed(both, [chain("b", "raw"), chain("a", "raw")]) == [("b", "out"), ("a", "out")]


def test_changes_and_appends_are_not_one_input() -> None:
    """A declaration that goes from one to the other is another pipeline's."""
    assert receive_parts(over())["source"]["format"] != receive_parts(over(CHANGES, changes=True))["source"]["format"]
