"""The driver writes a small batch of an output by itself, and Spark's tasks a large one: nobody can tell which from
what is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from onlyonce.outputs import query, stateless
from tests.support import shop_oracle
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

DECLARED = "tests/support/row_by_row_shop.py"
NEVER, ALWAYS = "0", str(1 << 30)
OUTPUTS = ("plain", "dated", "rows", "kept")
UNITS = "SELECT unique_id, rows, content_hash FROM onlyonce.commits WHERE unique_id NOT LIKE '%/receive/%'"
FATES = "SELECT query, batch, in_time, late FROM onlyonce.batches WHERE query <> 'receive'"
PANES = "SELECT output, window_start, window_end, final, rows FROM onlyonce.panes"


def committed(platform: Platform) -> dict[str, Counter[Any]]:
    """All that the outputs have committed, and what the log says of it."""
    found = {query: multiset(platform.sql(query).astype(str)) for query in (UNITS, FATES, PANES)}
    for table in ("plain", "dated"):
        found[table] = multiset(platform.table(f"shop/{table}").astype(str))
    for table in ("rows", "kept"):
        found[table] = multiset(platform.sql(f"SELECT * FROM results.{table}").astype(str))
    return found


def test_rows_units_and_windows_are_the_same_whoever_wrote_them(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    """Equal to the oracle, too; and the driver asked for half of the jobs at most."""
    files = shop_oracle.sales(200, 2)
    found, jobs = [], []
    for bytes_in_driver in (NEVER, ALWAYS):
        platform = new_platform(DECLARED)
        platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=bytes_in_driver)
        for number, records in enumerate(files):
            platform.put("shop", f"sales-{number:04}.jsonl", records)
            platform.run("shop")
        found.append(committed(platform))
        jobs.append(_jobs(spark, "shop/dated/1"))

    assert found[0] == found[1]
    distinct = shop_oracle.distinct(files)
    assert set(found[0]["plain"].values()) == {1}
    assert found[0]["plain"].total() == len(distinct)
    assert multiset(platform.table("shop/dated"), "id") == multiset(distinct[~distinct["late"]], "id")
    assert 0 < jobs[1] - jobs[0] <= jobs[0] / 2


@pytest.mark.parametrize(("first", "again"), [pytest.param(NEVER, ALWAYS, marks=pytest.mark.whole), (ALWAYS, NEVER)])
def test_a_replay_of_an_output_may_go_the_other_way(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: Any, first: str, again: str
) -> None:
    """Its units are compared with those in the log, and are the same."""
    platform = new_platform(DECLARED)
    platform.put("shop", "sales.jsonl", [record for records in shop_oracle.sales(200, 2) for record in records])
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=first)
    with monkeypatch.context() as broken:
        broken.setattr(query, "_end", _lose)
        with pytest.raises(Lost):
            platform.run("shop")
    before = platform.sql(UNITS)
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=again)
    platform.run("shop")

    assert len(before) == len(OUTPUTS)
    assert multiset(platform.sql(UNITS)) == multiset(before)
    for table in (
        platform.table("shop/plain"),
        platform.table("shop/dated"),
        *(platform.sql(f"SELECT * FROM results.{name}") for name in ("rows", "kept")),
    ):
        assert table["id"].is_unique
        assert len(table) >= 100


def test_the_driver_takes_the_rows_of_functions_only_that_add_none(spark: Any) -> None:
    records = spark.createDataFrame([(1, "a b")], "id long, text string")
    adds_none = (
        records,
        records.filter("id > 0").selectExpr("id + 1 AS id"),
        records.select("id").union(records.select("id")),
    )
    adds_some = (
        records.selectExpr("explode(split(text, ' '))"), records.join(records, "id"), records.groupBy("id").count(),
        records.selectExpr("id", "stack(2, id, id)"), records.mapInPandas(lambda parts: parts, records.schema),
    )  # fmt: skip

    assert all(stateless.adds_no_rows(frame) for frame in adds_none)
    assert not any(stateless.adds_no_rows(frame) for frame in adds_some)


@pytest.mark.parametrize(
    "most", [10, pytest.param(10_000, marks=pytest.mark.whole)]
)  # what fits is also in test_at_close
def test_many_rows_of_few_records_are_for_the_tasks(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: Any, most: int
) -> None:
    """Whether a function keeps a state or gets whole windows, the driver asks for no more than it takes; all rows come,
    once."""
    monkeypatch.setattr(query, "MOST", most)
    platform = new_platform("tests/support/at_close_shop.py")
    files = shop_oracle.sales(200, 2)
    for number, records in enumerate(files):
        platform.put("shop", f"sales-{number:04}.jsonl", records)
        platform.run("shop", *(["--close"] if number else []))
    panes = platform.sql("SELECT output, sum(rows) AS rows FROM onlyonce.panes GROUP BY output").set_index("output")

    by_state, largest = platform.table("shop/by_state"), platform.table("shop/largest")
    assert multiset(by_state, "window_start", "shop") == multiset(largest, "window_start", "shop")
    assert set(multiset(by_state, "window_start", "shop").values()) == {1}
    assert len(by_state) == panes["rows"]["by_state"] > 20
    assert len(platform.sql("SELECT * FROM results.counted")) == panes["rows"]["counted"]


class Lost(Exception):
    """The driver is lost."""


def _lose(*_: Any) -> None:
    raise Lost("after the rows were written, before their batch was ended")


def _jobs(spark: Any, incarnation: str) -> int:
    store = spark._jsparkSession.sparkContext().statusStore()
    jobs = store.jobsList(None)
    return sum(_of(jobs.apply(at), incarnation) for at in range(jobs.size()))


def _of(job: Any, incarnation: str) -> bool:
    return bool(job.description().isDefined()) and str(job.description().get()).startswith(incarnation + "\n")
