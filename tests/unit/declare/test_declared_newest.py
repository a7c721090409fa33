"""What a declaration says of the newest rows and of deletes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onlyonce import Delta, Fixed, MySQL, Output, Postgres, Refused
from onlyonce.api.identity import output_parts
from onlyonce.api.load import fingerprint
from onlyonce.api.outputs import check_rows
from onlyonce.core.changes import Need, changes
from tests.support.shop import SHOP

ME = "tests.support.plain:rows"


def sink(**options: Any) -> Postgres:
    return Postgres(**{"table": "results.rows", "write": "upsert", "keys": "id", "sequence_by": "cents"} | options)


def pipeline(made: Postgres | Delta, mode: Any = "exactly_once", **options: Any) -> Any:
    return replace(SHOP, mode=mode, outputs=(Output(name="rows", transform=ME, sink=made, **options),))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sink(write="append", keys=()), "sequence_by with write='append'"),
        (lambda: sink(sequence_by=("cents", "id")), "'id' is a key and in sequence_by"),
        (lambda: sink(sequence_by=(), delete_when="gone"), "delete_when='gone' without sequence_by"),
        (lambda: sink(delete_when="id"), "'id' says which rows are deleted, and is a key"),
        (lambda: sink(delete_when="gone", table="results." + "x" * 64), "is longer than a name in PostgreSQL may be"),
        (lambda: pipeline(sink(), window=Fixed(timedelta(hours=1))), "sequence_by and a window"),
        (lambda: pipeline(sink(delete_when="gone"), mode="at_least_once"), "delete_when in mode='at_least_once'"),
        (lambda: sink(write="history", sequence_by=()), "write='history' without sequence_by"),
        (lambda: pipeline(sink(write="history"), mode="at_least_once"), "a history in mode='at_least_once'"),
        (lambda: pipeline(sink(write="history"), window=Fixed(timedelta(hours=1))), "sequence_by and a window"),
        (lambda: Delta(write="upsert", keys="id", delete_when="gone"), "Delta: delete_when='gone' without sequence_by"),
        (lambda: pipeline(Delta(write="upsert", keys="id", sequence_by="cents", delete_when="gone"), mode="at_least_once"), "delete_when in mode='at_least_once'"),  # type: ignore[arg-type]
        (lambda: MySQL(table="x" * 65, connection="DB", write="upsert", keys="id", sequence_by="cents", delete_when="gone"), "MySQL: table"),
        (lambda: MySQL(table="x", connection="DB", write="history", keys="id"), "MySQL: write='history' without sequence_by"),
        (lambda: Delta(sequence_by="cents"), "sequence_by with write='append'"),
        (lambda: Delta(write="history", keys="id"), "Delta: write='history' without sequence_by"),
        (lambda: Delta(write="upsert", keys="id", newest="cents"), "unknown option 'newest'"),  # type: ignore[call-arg]
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_when_it_is_declared(make: Callable[[], Any], said: str) -> None:
    """With the way out."""
    with pytest.raises(Refused) as told:
        make()
    assert said in told.value.what
    assert told.value.hint


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ({"id": "string", "gone": "boolean"}, "'cents' is not a column of what"),
        ({"id": "string", "cents": "double", "gone": "boolean"}, "sequence_by='cents' is of type double"),
        ({"id": "string", "cents": "bigint", "gone": "string"}, "delete_when='gone' is of type string"),
    ],
)
def test_rows_that_a_sink_could_not_order_are_refused_before_a_run(types: dict[str, str], said: str) -> None:
    """By the types that the function gives."""
    with pytest.raises(Refused, match=said):
        check_rows(pipeline(sink(delete_when="gone")).output("rows"), types)


def test_a_history_needs_to_know_when_a_version_begins() -> None:
    """And has columns of its own."""
    output, types = pipeline(sink(write="history")).output("rows"), {"id": "string", "cents": "bigint"}
    with pytest.raises(Refused, match="'valid_from' is not a column of type timestamp"):
        check_rows(output, types | {"valid_from": "date"})
    with pytest.raises(Refused, match="'is_current' is found by the platform"):
        check_rows(output, types | {"valid_from": "timestamp", "is_current": "boolean"})
    check_rows(output, types | {"valid_from": "timestamp"})


def test_which_row_is_the_newest_is_part_of_the_declaration() -> None:
    """A table that was begun by another rule is not gone on with; a sink without one has no word of it."""
    plain, newer = pipeline(sink(sequence_by=())), pipeline(sink())
    gone = pipeline(sink(delete_when="gone"))
    assert len({fingerprint(one, "rows") for one in (plain, newer, gone)}) == 3
    assert "sequence_by" not in output_parts(plain, "rows", {"rows": "f"})["outputs"]["rows"]
    parts = [output_parts(one, "rows", {"rows": "f"}) for one in (plain, newer, gone)]
    for before, after in ((parts[0], parts[1]), (parts[1], parts[2]), (parts[2], parts[1])):
        assert [change.need for change in changes("rows", before, after)] == [Need.NAME]


def test_a_map_among_the_keys_is_refused() -> None:
    """Also inside a column, for every sink with keys: neither Spark nor a database compares two of them."""
    types = {"id": "string", "cents": "bigint", "marks": "array<map<string,bigint>>"}
    for declared in (
        Postgres(table="a.b", write="increment", keys=("id", "marks")),
        Delta(write="upsert", keys=("id", "marks")),
    ):
        with pytest.raises(Refused, match=r"column marks is array<map<string,bigint>>, and is a key"):
            check_rows(pipeline(declared).output("rows"), types)
    check_rows(pipeline(Delta()).output("rows"), types)
