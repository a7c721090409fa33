"""A window is final when it has closed, not when a row of it was written: outputs whose rows Spark gives as they
come."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.database.connect import Database
from onlyonce.operate import audit
from onlyonce.run import reset
from onlyonce.sinks.files import finalize
from tests.support import shop_oracle
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

MINUTE = timedelta(minutes=1)


def sale(name: str, seconds: int, shop: str = "a") -> dict[str, Any]:
    """A record of so many seconds after the start."""
    at = shop_oracle.START + timedelta(seconds=seconds)
    return {"id": name, "shop": shop, "at": at.isoformat(), "cents": 1, "weight": 1.0}


def pairs(sales: list[dict[str, Any]], *before: int) -> Counter[Any]:
    """The oracle: each record with the start of its minute, and of so many minutes before that."""
    return Counter(
        (shop_oracle.START + (int((shop_oracle.every([[s]])["window_start"][0] - shop_oracle.START) / MINUTE) - n) * MINUTE, s["id"])
        for s in sales
        for n in before
    )  # fmt: skip


def panes(platform: Platform, output: str) -> list[tuple[list[str], int, str]]:
    """The ids in each file that counts, with the pane and window of its name."""
    finalize.main(["shop"])
    there = platform.sql(
        f"SELECT place, name, pane, window_start::text AS start FROM onlyonce.output_files WHERE output = '{output}' "
        "AND state = 'final' ORDER BY start, pane"
    )
    return [
        (sorted(json.loads(line)["id"] for line in (settings.files_dir() / place / name).read_text().splitlines()), pane, start)
        for place, name, pane, start in there.itertuples(index=False)
    ]  # fmt: skip


def disagreements() -> list[str]:
    """What the audit of the data finds."""
    return audit.examine_data(Database(settings.database_url()), declarations.load(), lambda _: None)[0]


@pytest.mark.whole
def test_rows_written_as_they_come_are_all_there_through_a_new_incarnation(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window takes rows until it closes, in this incarnation or the next, none twice; files are written once, at the close,
    also where a stream is joined and mapped.

    The audit counts the same. A new incarnation may begin before there is anything new."""
    monkeypatch.setattr(audit, "SECOND_LOOK_SECONDS", 0.0)
    platform = new_platform("tests/support/as_they_come.py")
    sales = [sale("a1", 10), sale("b1", 20, "b")], [sale("a2", 30), sale("a3", 70)], [sale("a4", 40)], [sale("a5", 600)]
    for number in range(2):
        platform.put("shop", f"{number}.jsonl", sales[number])
    platform.run("shop")
    assert disagreements() == []

    for output in ("raw", "files"):
        reset.new(f"shop/{output}", yes=True)
    platform.run("shop")
    for number in range(2, 4):
        platform.put("shop", f"{number}.jsonl", sales[number])
    platform.run("shop")

    states = platform.sql("SELECT state, count(*)::int AS n FROM onlyonce.windows WHERE output = 'raw' GROUP BY 1")
    assert multiset(states) == Counter({("closed", 3): 1, ("open", 2): 1})
    assert multiset(platform.table("shop/raw"), "window_start", "id") == pairs(
        [one for some in sales for one in some], 0, 1
    )
    assert panes(platform, "files") == [
        (["a1", "a2", "a4", "b1"], 0, "2026-01-01 00:00:00+00"),
        (["a3"], 0, "2026-01-01 00:01:00+00"),
    ]
    assert disagreements() == []
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]
