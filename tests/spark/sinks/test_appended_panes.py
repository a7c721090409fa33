"""Early panes into sinks that add: each row has the number of its pane, and each pane all rows of its window so far."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import onlyonce
from onlyonce import check
from onlyonce.core.errors import Refused
from onlyonce.engine import driver_rows
from onlyonce.operate import audit
from onlyonce.outputs import query as outputs_query
from onlyonce.run import reset
from onlyonce.testing import backfill, run
from tests.spark.sinks.test_file_panes import EARLY, LATE, PARTS, WANTED
from tests.support import appended_panes, file_panes, iceberg_shop, mysql_shop
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, Server

pytestmark = pytest.mark.spark

SHOP = appended_panes.PIPELINES[0]
Panes = dict[tuple[str, int], Counter[Any]]
TRIGGERED: dict[str, Panes] = {
    "early": EARLY, "after_records": WANTED["after_records"], "after_time": WANTED["after_time"], "sent": EARLY,
}  # fmt: skip
ENDS = {1: ("output-before-end", 2), 2: ("delta-unit-after-commit", 1), 3: ("output-consumed", 3)}
"""Where the driver is lost while it takes a file, and with which pass."""
LAST = """
SELECT shop, sales, window_start FROM (
    SELECT *, max(pane) OVER (PARTITION BY window_start, window_end) AS last_pane FROM results.after_records) panes
WHERE pane = last_pane"""


def rows(platform: Platform, output: str) -> pd.DataFrame:
    """Return all rows of an output."""
    if output == "early":
        return platform.table("shop/early")
    if output == "sent":
        sent = platform.sql("SELECT payload FROM onlyonce_private.outbox")["payload"]
        return pd.DataFrame(json.loads(payload) for payload in sent)
    return platform.sql(f"SELECT * FROM results.{output}")


def by_pane(found: list[dict[str, Any]]) -> Panes:
    """Return the rows of each pane by (window, pane)."""
    panes: Panes = {}
    for row in found:
        window = f"{pd.Timestamp(row['window_start']):%H:%M}"
        panes.setdefault((window, row["pane"]), Counter())[row["shop"], row["sales"]] += 1
    return panes


def panes(platform: Platform, output: str) -> Panes:
    """Return the rows of each pane in a sink by (window, pane)."""
    return by_pane(rows(platform, output).to_dict("records"))


def with_late(output: str) -> Panes:
    """Return the panes after a backfill of the first window, which leaves its new pane only. What is sent stays."""
    written = TRIGGERED[output]
    last = max(pane for window, pane in written if window == "00:00")
    kept = {key: pane for key, pane in written.items() if output == "sent" or key[0] != "00:00"}
    return {**kept, ("00:00", last + 1): LATE}


def check_books(platform: Platform) -> None:
    """The log adds up, and the tables have the rows that it says."""
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert audit.main(["--data"]).warnings == []


def test_each_pane_is_appended_with_its_number(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over lost drivers and new incarnations: early panes, the pane at the close, and a backfill."""
    platform = new_platform("tests/support/appended_panes.py")
    for number, part in enumerate(PARTS):
        platform.put("shop", f"{number}.jsonl", part)
        assert number not in ENDS or ended_at(platform, monkeypatch, *ENDS[number])
        if number == 2:  # a batch whose rows are in the table, and which has not ended, is finished
            for query in TRIGGERED:
                reset.new(f"shop/{query}", yes=True)
        platform.run("shop")
    assert {output: panes(platform, output) for output in TRIGGERED} == TRIGGERED
    check_books(platform)
    log = platform.sql("SELECT DISTINCT window_start, pane FROM onlyonce.panes WHERE output = 'early'")
    found = {(f"{window:%H:%M}", pane) for window, pane in log.itertuples(index=False)}
    assert found == {(window, max(pane for other, pane in EARLY if other == window)) for window, _ in EARLY}
    last = {(f"{row.window_start:%H:%M}", row.shop, row.sales) for row in platform.sql(LAST).itertuples()}
    assert last == {("00:00", "a", 2), ("00:00", "b", 2), ("00:05", "a", 1)}

    platform.backfill("shop", "--from", "2026-01-05T00:00Z", "--to", "2026-01-05T00:05Z")
    assert {output: panes(platform, output) for output in TRIGGERED} == {each: with_late(each) for each in TRIGGERED}
    check_books(platform)


@pytest.mark.whole
def test_tables_elsewhere_take_numbered_panes(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch, server: Server, mariadb: Any
) -> None:
    """For Iceberg and MySQL the number is a column like any other."""
    platform, database = new_platform("tests/support/appended_elsewhere.py"), mariadb.new_database()
    catalog = iceberg_shop.configured(server.url("writer", server.new_database()), platform.home)
    platform.give(monkeypatch, **catalog, **{mysql_shop.THERE: mariadb.url(database)})
    for number, part in enumerate(PARTS):
        platform.put("shop", f"{number}.jsonl", part)
        platform.run("shop")
    platform.backfill("shop", "--from", "2026-01-05T00:00Z", "--to", "2026-01-05T00:05Z")

    for output in ("iceberg", "mysql"):
        assert by_pane(onlyonce.open("shop").output(output).to_dict("records")) == with_late("early"), output
    check_books(platform)


def test_played_pipeline_has_the_same_panes(spark: object) -> None:
    """`onlyonce.testing` shows the rows of all panes with their numbers, as the test above finds them."""
    played, later = run(SHOP, *PARTS), run(SHOP, *PARTS, backfill())

    for output in ("early", "after_records"):
        assert by_pane(played.output(output)) == TRIGGERED[output]
        found = by_pane(later.output(output))
        assert {key: pane for key, pane in found.items() if key[0] == "00:00"} == {
            key: pane for key, pane in with_late(output).items() if key[0] == "00:00"
        }


def test_pane_without_rows_is_refused(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of the last pane would take the rows of the pane before. A test of the pipeline is refused
    too."""
    monkeypatch.setattr(file_panes, "per_shop", file_panes.few)
    platform = new_platform("tests/support/appended_panes.py")
    platform.put("shop", "0.jsonl", PARTS[0])
    platform.run("shop")
    platform.put("shop", "1.jsonl", PARTS[1])
    with pytest.raises(
        Refused, match=r"gives no row for the window \[2026-01-05 00:00:00\+00:00, .*its pane 0 has rows"
    ):
        platform.run("shop")
    with pytest.raises(Refused, match="its pane 0 has rows"):
        run(SHOP, *PARTS[:2])
    assert platform.table("shop/early")["pane"].tolist() == [0]


def test_column_of_a_pane_is_the_platforms(spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that gives a column of that name is refused before the first run, whatever case it is in."""

    def with_pane(sales: Any) -> Any:
        return file_panes.few(sales).withColumnRenamed("sales", "Pane")

    monkeypatch.setattr(file_panes, "per_shop", with_pane)
    with pytest.raises(Refused, match="has a column pane, and the platform adds the number"):
        check.function_shapes(spark, SHOP, SHOP.output("early"))  # type: ignore[arg-type]


def test_driver_takes_no_more_rows_than_it_asks_for(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pane has rows of records of earlier batches: few records of a batch are not few rows."""
    taken: list[tuple[int, int]] = []

    def fetched(frame: Any, most: int) -> Any:
        found = driver_rows.fetched(frame, most)
        assert found is not None
        taken.append((found.num_rows, most))
        return found

    monkeypatch.setattr(outputs_query, "driver_rows", SimpleNamespace(fetched=fetched, are_few=driver_rows.are_few))
    platform = new_platform("tests/support/raw_panes.py")
    for number, part in enumerate(PARTS[:3]):
        platform.put("shop", f"{number}.jsonl", part)
        platform.run("shop")

    counts = platform.sql("SELECT window_start, pane, count(*) AS rows FROM results.each GROUP BY 1, 2 ORDER BY 1, 2")
    assert counts["rows"].tolist() == [2, 4, 1]
    assert taken
    assert all(rows <= most for rows, most in taken), taken


def test_bounded_run_writes_first_panes(new_platform: Callable[..., Platform], spark: object) -> None:
    """Each window is closed, and has one pane."""
    platform = new_platform("tests/support/appended_panes.py")
    platform.put("shop", "0.jsonl", [sale for part in PARTS for sale in part])
    platform.run("shop", "--bounded")
    assert {pane for _, pane in by_pane(platform.table("shop/early@1").to_dict("records"))} == {0}
    check_books(platform)
