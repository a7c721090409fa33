"""Windows that have records and for which the function returns no row: they close as others do, however they are written."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.commitlog.new_incarnations import NewIncarnations
from onlyonce.core.batch import read_upto
from onlyonce.database.connect import Database
from onlyonce.operate import plan
from tests.support.changes import START, declare, output, sale, wanted
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

OPTIONS = "window=Fixed(MINUTE), watermark_delay=MINUTE"
BIG = [{**sale(n), "cents": n % 12} for n in range(60)]
"""In every second minute each record has more than five cents."""
WAYS = {
    "on_time": f"transform='tests.support.changes:small', {OPTIONS}, sink=Delta()",
    "early": f"transform='tests.support.changes:small', {OPTIONS}, panes='early', "
    "sink=Delta(write='upsert', keys=('window_start', 'shop'))",
    "at_close": f"transform='tests.support.changes:small', {OPTIONS}, panes='at_close', sink=Delta()",
    "as_they_come": f"transform='tests.support.changes:small_records', {OPTIONS}, sink=Delta()",
    "sliding": "transform='tests.support.changes:small', window=Sliding(2 * MINUTE, MINUTE), watermark_delay=MINUTE, "
    "sink=Delta()",
}


def states(platform: Platform, name: str) -> dict[int, tuple[str, float]]:
    """The state and the rows of each window of an output, by the minute of its start."""
    found = platform.sql(f"SELECT window_start, state, rows, generation FROM onlyonce.windows WHERE output = '{name}'")
    assert set(found["generation"]) == {0}
    minutes = [int((start - START) / timedelta(minutes=1)) for start in found["window_start"]]
    return dict(zip(minutes, zip(found["state"], found["rows"], strict=True), strict=True))


@pytest.mark.parametrize("bounded", [False, True])
def test_they_close_with_the_windows_around_them(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch, bounded: bool
) -> None:
    """Each window is closed once the input has ended, with its rows or none; so a new incarnation reads nothing again."""
    outputs = ", ".join(f"Output(name='{name}', {way})" for name, way in WAYS.items())
    declared = declare(platform.home, outputs)
    declared.write_text(declared.read_text().replace("import Fixed", "import Fixed, Sliding"))
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(declared))
    platform.put("shop", "a.jsonl", BIG[:36])
    platform.put("shop", "b.jsonl", BIG[36:])
    if bounded:
        platform.run("shop", "--bounded")
    else:
        platform.run("shop")
        platform.run("shop", "--close")

    small = {0: 2, 2: 2, 4: 2, 6: 2, 8: 2}
    odd = dict.fromkeys((1, 3, 5, 7, 9), 0)
    of_rows = {minute: 3 * rows for minute, rows in small.items()}
    assert {name: states(platform, name) for name in WAYS} == {
        **{name: {minute: ("closed", rows) for minute, rows in (small | odd).items()} for name in WAYS},
        "as_they_come": {minute: ("closed", rows) for minute, rows in (of_rows | odd).items()},
        "sliding": dict.fromkeys(range(-1, 9), ("closed", 2)) | {9: ("closed", 0)},
    }
    if bounded:
        return
    log = Database(platform.environment["ONLYONCE_DATABASE_URL"])
    for name in WAYS:
        live = Incarnations(log).live("shop", name)
        assert live is not None
        begins = NewIncarnations(log).begins_at("shop", name, live.incarnation, None)
        assert begins is not None
        read = platform.sql(
            f"SELECT end_offset FROM onlyonce.batches WHERE incarnation = '{live.incarnation}' ORDER BY batch DESC LIMIT 1"
        )
        assert begins["version"] == read_upto(read["end_offset"][0]) + 1


def test_sessions_are_not_open_for_ever(platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their records in time are counted by the hour, which is no window and has no state of one."""
    declared = declare(platform.home, output("small", "window=Session(MINUTE), watermark_delay=MINUTE, sink=Delta()"))
    declared.write_text(declared.read_text().replace("import Fixed", "import Fixed, Session"))
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(declared))
    platform.put("shop", "a.jsonl", BIG[:12])

    platform.run("shop", "--close")

    found = platform.sql(
        "SELECT state, rows, in_time FROM onlyonce.windows WHERE output = 'sums' ORDER BY in_time, window_start"
    )
    assert list(found.fillna(-1).itertuples(index=False, name=None)) == [
        ("hour of sessions", -1, 12), ("closed", 1, -1), ("closed", 1, -1),
    ]  # fmt: skip


def test_another_function_is_computed_for_them_too(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan's backfill has the windows before, between and after those with rows; then the plan is empty, though the
    last window has no row again."""
    sales = [*BIG[6:54], *({**one, "cents": 20} for one in BIG[54:])]
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(declare(platform.home, output("small"))))
    platform.put("shop", "a.jsonl", sales)
    platform.run("shop", "--close")
    declare(platform.home, output("up_to_a_dozen"))

    plan.main(["shop", "--yes", "--master", "local[2]"])

    found = multiset(platform.table("shop/sums"), "window_start", "shop", "cents")
    table: Counter[Any] = Counter({(row[0].to_pydatetime(), *row[1:]): n for row, n in found.items()})
    assert table == wanted(sales[:-6], 1, lambda made: (sum(one["cents"] for one in made),))
    assert plan.main(["shop"]).tables["steps"] == []
