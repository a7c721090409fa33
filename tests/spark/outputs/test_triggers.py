"""Panes of open windows by a trigger: which there are is decided by the log, each has all of its window so far, and the
last one is that of a batch."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pandas as pd
import pytest

from onlyonce import AfterRecords, AfterTime
from onlyonce.operate import audit
from onlyonce.outputs import query as outputs_query
from onlyonce.run import reset
from tests.support.ended_runs import ended_at
from tests.support.paned_shop import SHOP
from tests.support.platform import ROOT, Platform, multiset

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POINTS = ("output-after-begin", "output-consumed", "output-before-end", "output-after-end")
Windows = Counter[tuple[datetime, datetime]]
Fired = dict[tuple[datetime, datetime], list[int]]
QUERIES = ("counted", "timed", "numbered")


class Clock(datetime):
    """A clock that goes on by some seconds whenever it is looked at."""

    shows: ClassVar[datetime] = START
    chance: ClassVar[random.Random]

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        """Later each time: a second look would decide otherwise."""
        Clock.shows += timedelta(seconds=Clock.chance.randrange(90))
        return cls.shows


def sales(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Records in order of time."""
    times = sorted(START + timedelta(seconds=chance.randrange(900)) for _ in range(count))
    return [
        {
            "id": f"s{n}",
            "shop": chance.choice("ab"),
            "at": at.isoformat(),
            "cents": chance.randrange(100),
            "weight": 1.0,
        }
        for n, at in enumerate(times)
    ]


def last_panes(numbered: pd.DataFrame) -> pd.DataFrame:
    """The rows of each window's last pane, as a reader takes them."""
    if numbered.empty:
        return numbered
    return numbered[numbered["pane"] == numbered.groupby(["window_start", "window_end"])["pane"].transform("max")]


def numbered_panes(platform: Platform) -> Fired:
    """How many records each pane of each window has, in order of their numbers, which begin at 0 and leave none out."""
    found: dict[Any, Counter[int]] = defaultdict(Counter)
    for row in platform.table("shop/numbered").itertuples():
        found[row.window_start, row.window_end][int(row.pane)] += int(row.sales)
    assert all(sorted(panes) == [*range(len(panes))] for panes in found.values())
    return {window: [panes[number] for number in sorted(panes)] for window, panes in found.items()}


def in_sinks(platform: Platform) -> dict[str, Windows]:
    """How many records the rows of each window have."""
    found = {
        "counted": platform.sql("SELECT window_start, window_end, sales FROM results.counted"),
        "timed": platform.table("shop/timed"),
        "numbered": last_panes(platform.table("shop/numbered")),
    }
    windows: dict[str, Windows] = {}
    for name, frame in found.items():
        windows[name] = Counter()
        for row in frame.itertuples():
            windows[name][row.window_start, row.window_end] += int(row.sales)
    return windows


def by_the_log(platform: Platform, name: str) -> tuple[Fired, set[Any]]:
    """How many records each pane of each open window must have, by what each batch met and when it began; and what is
    open."""
    met = platform.sql(f"""
        SELECT c.window_start, c.window_end, c.in_time, b.ingestion_time FROM onlyonce_private.window_counts c JOIN onlyonce_private.batches b USING (incarnation, batch_id)
        JOIN onlyonce_private.incarnations l USING (incarnation) WHERE c.output = '{name}' AND b.state = 'committed' ORDER BY l.ordinal, b.batch_id""")
    times = platform.sql(f"""
        SELECT b.ingestion_time, b.state FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
        WHERE l.query = '{name}' AND b.state = 'committed' ORDER BY l.ordinal, b.batch_id""")
    trigger = SHOP.output(name).trigger
    written, waits = defaultdict[Any, list[int]](list), defaultdict[Any, list[datetime]](list)
    seen: Windows = Counter()
    for now in times["ingestion_time"]:
        for row in met[met["ingestion_time"] == now].itertuples():
            window = row.window_start, row.window_end
            seen[window] += row.in_time
            waits[window] += [now] * row.in_time
        for window, since in waits.items():
            if since and (
                (not isinstance(trigger, AfterTime) and len(since) >= trigger.records)  # type: ignore[union-attr]
                or (not isinstance(trigger, AfterRecords) and now - since[0] >= trigger.time)  # type: ignore[union-attr]
            ):
                written[window].append(seen[window])
                waits[window] = []
    final = platform.sql(f"SELECT window_start, window_end FROM onlyonce.panes WHERE output = '{name}' AND final")
    return written, set(seen) - {tuple(row) for row in final.itertuples(index=False)}


def check_panes(platform: Platform, before: dict[str, Windows]) -> dict[str, Windows]:
    """Each open window has its last pane and no more; none has fewer records than before."""
    there = in_sinks(platform)
    for name, windows in there.items():
        written, opened = by_the_log(platform, name)
        last = {window: panes[-1] for window, panes in written.items()}
        assert {window: windows[window] for window in opened} == {window: last.get(window, 0) for window in opened}, (
            name
        )
        assert all(windows[window] >= records for window, records in before.get(name, Counter()).items()), name
    written, opened = by_the_log(platform, "numbered")
    for window, panes in numbered_panes(platform).items():
        # A window that a batch closes has its last pane with it, whether that batch would fire it or not.
        assert panes == written[window] or (window not in opened and panes[:-1] == written[window]), window
    return there


def wanted(records: list[dict[str, Any]], name: str) -> Counter[Any]:
    """(start, shop, records, cents) of each window, by a plain batch."""
    window = SHOP.output(name).window
    found: Counter[Any] = Counter()
    counts: Counter[Any] = Counter()
    for one in records:
        at = datetime.fromisoformat(one["at"])
        for start, _ in window.assign((at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)):  # type: ignore[union-attr]
            counts[start, one["shop"]] += 1
            found[start, one["shop"]] += one["cents"]
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    return Counter((zero + timedelta(microseconds=key[0]), key[1], counts[key], cents) for key, cents in found.items())


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_panes_are_those_that_the_log_decides_and_the_last_is_that_of_a_batch(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Over kills and a new incarnation of each, however the input is cut."""
    platform, chance = new_platform("tests/support/paned_shop.py"), random.Random(seed)
    monkeypatch.setattr(Clock, "chance", chance, raising=False)
    monkeypatch.setattr(Clock, "shows", START)
    monkeypatch.setattr(outputs_query, "datetime", Clock)
    records = sales(chance, 80)
    places = sorted(chance.sample(range(5, len(records)), 3))
    parts = [records[a:b] for a, b in zip([0, *places], [*places, len(records)], strict=True)]
    before: dict[str, Windows] = {}
    point, nth = chance.choice(POINTS), chance.randrange(1, 3)
    for number, part in enumerate(parts):
        platform.put("shop", f"{number}.jsonl", [*part, *records[:2]])
        if number == 1:
            assert ended_at(platform, monkeypatch, point, nth)
        if number == 2:
            for query in QUERIES:
                reset.new(f"shop/{query}", yes=True)
        platform.run("shop", *(["--close"] if part is parts[-1] else []))
        before = check_panes(platform, before)

    assert multiset(platform.sql("SELECT window_start, shop, sales, cents FROM results.counted")) == wanted(
        records, "counted"
    )
    assert multiset(platform.table("shop/timed"), "window_start", "shop", "sales", "cents") == wanted(records, "timed")
    last = last_panes(platform.table("shop/numbered"))
    assert multiset(last, "window_start", "shop", "sales", "cents") == wanted(records, "numbered")
    assert platform.sql("SELECT * FROM onlyonce.panes WHERE NOT final OR held IS NOT NULL").empty
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert audit.main(["--data"]).warnings == []


def test_late_records_change_a_window_once_enough_wait_or_one_for_long(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three late records for the window of minute 0, then two hours for that of minute 5. A kill leaves no trace."""
    platform = new_platform("tests/support/late_shop.py")
    monkeypatch.setattr(Clock, "chance", random.Random(1), raising=False)
    monkeypatch.setattr(Clock, "shows", START)
    monkeypatch.setattr(outputs_query, "datetime", Clock)
    found = []
    for number, minutes in enumerate(([0, 1, 5, 40], [2, 3, 6, 41], [4, 42], [43], [44])):
        lines = [
            {"id": f"{minute}", "shop": "a", "at": (START + minute * MINUTE).isoformat(), "cents": 1, "weight": 1.0}
            for minute in minutes
        ]
        platform.put("shop", f"{number}.jsonl", lines)
        if number == 2:
            assert ended_at(platform, monkeypatch, "backfill-before-end")
        if number == 4:
            monkeypatch.setattr(Clock, "shows", Clock.shows + timedelta(hours=2))
        platform.run("shop")
        rows = platform.table("shop/rare").itertuples() if number else []
        found.append({(row.window_start - START) // MINUTE: row.sales for row in rows})

    assert found[1:] == [{0: 2, 5: 1}, {0: 5, 5: 1}, {0: 5, 5: 1}, {0: 5, 5: 2}]
    assert audit.main(["--data"]).warnings == []


def test_a_begun_backfill_of_late_records_is_finished_also_if_they_are_to_wait_now(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink has its rows already, and nobody else may change the windows before its end. Other windows wait."""
    platform = new_platform("tests/support/late_shop.py")

    def put(number: int, *minutes: int) -> None:
        lines = [
            {"id": f"{minute}", "shop": "a", "at": (START + minute * MINUTE).isoformat(), "cents": 1, "weight": 1.0}
            for minute in minutes
        ]
        platform.put("shop", f"{number}.jsonl", lines)

    for number, minutes in enumerate(([0, 5, 40], [41], [1, 2, 3, 42])):
        put(number, *minutes)
        if number < 2:
            platform.run("shop")
    assert ended_at(platform, monkeypatch, "backfill-before-end")
    put(3, 6, 7, 8, 43)

    platform.run("shop", "--pipelines", str(ROOT / "tests/support/late_kept_shop.py"))

    states = platform.sql("SELECT state FROM onlyonce.backfills ORDER BY batch")["state"]
    assert states.tolist() == ["replaced", "committed"]
    found = {(row.window_start - START) // MINUTE: row.sales for row in platform.table("shop/rare").itertuples()}
    assert found == {0: 4, 5: 1}
