"""The driver's count of a batch's windows is the model's rule, asked for each record."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.frontier import Frontier, is_late, late_through
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Sliding, Window, micros
from onlyonce.outputs import window_log
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
