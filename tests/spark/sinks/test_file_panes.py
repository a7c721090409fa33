"""Each pane is a new file, by every trigger: a pane's files hold all rows of its window at that time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.core.file_names import FileWindow
from onlyonce.operate import audit
from onlyonce.sinks.files import finalize
from onlyonce.testing import run
from tests.support import file_panes
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform

NAMED = file_panes.named
pytestmark = pytest.mark.spark

START = datetime(2026, 1, 5, tzinfo=UTC)
"""A day whose windows `onlyonce check` does not name."""
Panes = dict[tuple[str, int], Counter[Any]]


def sale(number: int, minute: int, shop: str = "a") -> dict[str, str]:
    """Return one record."""
    return {"id": f"s{number}", "shop": shop, "at": (START + timedelta(minutes=minute)).isoformat()}


PARTS = [
    [sale(0, 0), sale(1, 1, "b")],
    [sale(2, 2), sale(3, 5)],
    [sale(4, 3, "b"), sale(5, 11)],
    [sale(6, 1)],
]
"""Three files of three windows, the last of which closes the first two windows; then a late record of the first."""
ENDS = {1: ("output-before-end", 3), 2: ("files-after-units", 1)}
"""Where the driver is lost while it takes a file, and with which pass: in the third file within the corrected batch."""


def panes(platform: Platform, output: str) -> Panes:
    """Return the rows of each pane by (window, pane), from all files with final names."""
    there = platform.sql(
        f"SELECT window_start, pane, place, name FROM onlyonce.output_files WHERE output = '{output}' AND name IS NOT NULL"
    )
    found: Panes = {}
    for window, pane, place, file in there.itertuples(index=False):
        rows = found.setdefault((f"{window:%H:%M}", pane), Counter())
        for line in (settings.files_dir() / place / file).read_text().splitlines():
            row = json.loads(line)
            rows[row.get("shop", "all"), row["sales"]] += 1
    return found


def colliding(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """Give all panes and windows of the day of the test the names of the first."""
    first = window.start.day == START.day
    return NAMED(FileWindow(START, START) if first else window, 0 if first else pane, shard, shards)


def refuse_colliding(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run under a function whose names collide: nothing is written of a batch that has a file with such a name.

    The batch of `on_time` writes `made` too, whose names are asked for first.
    """
    with monkeypatch.context() as patched:
        patched.setattr(file_panes, "named", colliding)
        with pytest.raises(Refused, match="gives two files the name"):
            platform.run("shop")
    begun = "SELECT 1 FROM onlyonce.output_files WHERE output IN ('on_time', 'made', 'early') AND name IS NULL"
    assert platform.sql(begun).empty
    assert list((settings.files_dir() / "shop/early/.pending").iterdir()) == []


def newest(platform: Platform, output: str) -> dict[str, Counter[Any]]:
    """Return the rows that a reader of `onlyonce.output_files` takes."""
    current = platform.sql(
        f"SELECT DISTINCT window_start, pane FROM onlyonce.output_files WHERE output = '{output}' AND state = 'final'"
    )
    there = panes(platform, output)
    return {f"{window:%H:%M}": there[f"{window:%H:%M}", pane] for window, pane in current.itertuples(index=False)}


ONCE: Panes = {("00:00", 0): Counter({("a", 2): 1, ("b", 2): 1}), ("00:05", 0): Counter({("a", 1): 1})}
EARLY: Panes = {
    ("00:00", 0): Counter({("a", 1): 1, ("b", 1): 1}),
    ("00:00", 1): Counter({("a", 2): 1, ("b", 1): 1}),
    ("00:00", 2): Counter({("a", 2): 1, ("b", 2): 1}),
    ("00:05", 0): Counter({("a", 1): 1}),
    ("00:05", 1): Counter({("a", 1): 1}),
    ("00:10", 0): Counter({("a", 1): 1}),
}
WANTED: dict[str, Panes] = {
    "on_time": ONCE,
    "made": {("00:00", 0): Counter({("all", 4): 1}), ("00:05", 0): Counter({("all", 1): 1})},
    "early": EARLY,
    "after_records": {
        ("00:00", 0): EARLY["00:00", 0],
        ("00:00", 1): EARLY["00:00", 2],
        ("00:05", 0): EARLY["00:05", 1],
    },
    "after_time": {
        ("00:00", 0): EARLY["00:00", 1],
        ("00:00", 1): EARLY["00:00", 2],
        ("00:05", 0): EARLY["00:05", 1],
        ("00:10", 0): EARLY["00:10", 0],
    },
    "few": {
        ("00:00", 0): Counter({("all", 2): 1}),
        ("00:00", 1): Counter(),
        ("00:00", 2): Counter(),
        ("00:05", 0): Counter({("all", 1): 1}),
        ("00:05", 1): Counter({("all", 1): 1}),
        ("00:10", 0): Counter({("all", 1): 1}),
    },
}
LATE: Counter[Any] = Counter({("a", 3): 1, ("b", 2): 1})
OTHER: dict[str, Counter[Any]] = {"few": Counter(), "made": Counter({("all", 5): 1})}
"""What a backfill of the first window finds with its late record."""


def test_each_firing_writes_whole_windows_to_new_files(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over lost drivers and refused names: early panes, the pane at the close, a window that loses its rows, and a late
    pane."""
    platform = new_platform("tests/support/file_panes.py")
    for number, part in enumerate(PARTS):
        platform.put("shop", f"{number}.jsonl", part)
        if number == 2:
            refuse_colliding(platform, monkeypatch)
        assert number not in ENDS or ended_at(platform, monkeypatch, *ENDS[number])
        platform.run("shop")
        finalize.main([])
    assert {output: panes(platform, output) for output in WANTED} == WANTED
    files = (settings.files_dir() / "shop/early/hour=2026-01-05T00").iterdir()
    assert {file.name for file in files} == {
        f"{window[3:]}-{int(window[3:]) + 5:02}-{pane}-{shard}.jsonl" for window, pane in EARLY for shard in range(2)
    }

    platform.backfill("shop", "--from", "2026-01-05T00:00Z", "--to", "2026-01-05T00:05Z")
    finalize.main([])
    for output, written in WANTED.items():
        last = max(pane for window, pane in written if window == "00:00")
        late = OTHER.get(output, LATE)
        assert panes(platform, output) == {**written, ("00:00", last + 1): late}
        assert newest(platform, output)["00:00"] == late
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert audit.main(["--data"]).warnings == []


def test_played_pipeline_has_the_rows_of_the_newest_panes(spark: object) -> None:
    """`onlyonce.testing` shows what a reader of the files takes, as the test above finds it."""
    result = run(file_panes.PIPELINES[0], *PARTS)

    for output in ("on_time", "made", "early", "after_records", "few"):
        there = {f"{pane.window_start:%H:%M}": Counter[Any]() for pane in result.panes(output)}
        for row in result.output(output):
            there[f"{row['window_start']:%H:%M}"][row.get("shop", "all"), row["sales"]] += 1
        last = {window: WANTED[output][window, pane] for window, pane in sorted(WANTED[output])}
        assert there == last, output
