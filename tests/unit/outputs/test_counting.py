"""The driver's count of a batch's windows is the model's rule, asked for each record."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onlyonce.commitlog.batches import COUNTED
from onlyonce.commitlog.removals import REJECTED
from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.frontier import Frontier, is_late, late_through
from onlyonce.core.triggers import AfterRecords, Held
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Sliding, Window, micros
from onlyonce.outputs import at_close, events, window_log
from onlyonce.outputs.results import Versions
from onlyonce.outputs.window_log import Met
from onlyonce.receive.events import FRONTIER_ROW

HOUR = timedelta(hours=1)
START = 1_700_000_000_000_000
WATERMARK_DELAY = timedelta(minutes=7)
WINDOWS: list[Window] = [
    Fixed(HOUR),
    Fixed(timedelta(days=1), timezone="Europe/Berlin"),
    Sliding(HOUR, timedelta(minutes=20), timedelta(minutes=5)),
    Session(timedelta(minutes=3)),
    Joined.of(Fixed(HOUR), timedelta(minutes=30)),
    Chained(HOUR, upstream=Sliding(timedelta(minutes=30), timedelta(minutes=10)), waits_before=timedelta(minutes=1)),
]


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: type(window).__name__)
def test_windows_are_counted_as_the_model_judges_each_record(window: Window, tmp_path: Path) -> None:
    chance = random.Random(23)
    frontiers = [Frontier(), *(Frontier(max_event_time=START + chance.randrange(5) * micros(HOUR)) for _ in range(3))]
    records = [(START + chance.randrange(6 * micros(HOUR)), frontiers[n // 50 % 4]) for n in range(400)]
    files = []
    for n, some in enumerate((records[:250], records[250:])):
        files.append(tmp_path / f"{n}.parquet")
        pq.write_table(_table(some), files[-1], row_group_size=100)

    found = [_in_micros(row) for row in window_log.counted_windows(files, window, WATERMARK_DELAY).to_pylist()]

    wanted = Counter[Any]()
    lates: dict[Any, list[int]] = {}
    for time, frontier in records:
        for bounds, late in _pairs(time, frontier, window):
            wanted[bounds, late] += 1
            if late:
                lates.setdefault(bounds, []).append(time)
    assert {key: n for row in found for key, n in _by_fate(row) if n} == wanted
    for row in found if isinstance(window, Session) else []:
        times = lates.get((row["window_start"], row["window_end"]))
        assert (row["late_from"], row["late_to"]) == ((min(times), max(times)) if times else (None, None))


def test_no_files_have_no_windows() -> None:
    assert window_log.counted_windows([], Fixed(HOUR), WATERMARK_DELAY).num_rows == 0


def test_window_of_an_earlier_declaration_gets_no_pane(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log still has the records that it holds back. A pane would have none of its rows, and replace its files."""
    old, new = ((START + n * micros(HOUR), START + (n + 1) * micros(HOUR)) for n in (0, 1))
    held = dict.fromkeys((old, new), Held(3, START))
    root = SimpleNamespace(name="sums", trigger=AfterRecords(1), has_early_sessions=False, pane_column=None)
    monkeypatch.setattr(window_log, "Panes", lambda _: SimpleNamespace(held=lambda *_: held))
    monkeypatch.setattr(window_log, "received", lambda *_: [])
    monkeypatch.setattr(window_log, "counted_batch", lambda *_: Met(COUNTED.empty_table(), REJECTED.empty_table()))
    monkeypatch.setattr(at_close, "closed_at", lambda *_: new[1])
    monkeypatch.setattr(events, "closing_stream", lambda *_: None)
    context: Any = SimpleNamespace(bounded=False, instance="shop")
    query: Any = SimpleNamespace(database=None, first_window=new[0], log=SimpleNamespace(info=lambda *_, **__: None))
    plan = SimpleNamespace(ingestion_time=to_time(new[1]), incarnation="shop/sums/2", batch_id=0)
    others: Any = (root, SimpleNamespace(plan=plan), Versions(0, 1), ExitStack())

    fired = window_log.fired_panes(context, query, *others)

    assert fired is not None
    assert fired.windows == [new]
    assert [row["window_start"] for row in fired.held.to_pylist()] == [to_time(new[0])]


def _pairs(time: int, frontier: Frontier, window: Window) -> list[tuple[tuple[int, int], bool]]:
    if isinstance(window, Chained):
        return late_through(frontier, window, micros(WATERMARK_DELAY), time)
    if isinstance(window, Session):  # by the hour: it has no end yet
        return [(Fixed(HOUR).assign(time)[0], is_late(frontier, window, micros(WATERMARK_DELAY), time, time))]
    return [
        (bounds, is_late(frontier, window, micros(WATERMARK_DELAY), time, bounds[1])) for bounds in window.assign(time)
    ]


def _in_micros(row: dict[str, Any]) -> dict[str, Any]:
    return {name: to_micros(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _by_fate(row: dict[str, Any]) -> list[tuple[Any, int]]:
    bounds = (row["window_start"], row["window_end"])
    return [((bounds, False), row["in_time"]), ((bounds, True), row["late"])]


def _table(records: list[tuple[int, Frontier]]) -> pa.Table:
    known = [{name: to_time(value) for name, value in asdict(frontier).items()} for _, frontier in records]
    times = pa.array([time for time, _ in records]).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"oo_event_time": times, "oo_frontier": pa.array(known, FRONTIER_ROW)})
