"""Sharded files on Spark: exactly N for each window, through a replay and a backfill, with the rows of the oracle."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from onlyonce import failpoints, settings
from onlyonce.sinks.files import finalize
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=UTC)
Event = dict[str, str]


def events(minute: int, count: int, first: int = 0) -> list[Event]:
    """Events of some users in one minute."""
    return [
        {
            "event_id": f"e{minute}-{n}", "user": f"u{n % 4}",
            "at": f"{START + timedelta(minutes=minute, seconds=n):%Y-%m-%dT%H:%M:%SZ}", "action": "view",
        }
        for n in range(first, first + count)
    ]  # fmt: skip


def window_of(event: Event) -> str:
    """The start of an event's window, as files have it."""
    return event["at"][:16]


def per_user(some: list[Event]) -> Counter[Any]:
    """The oracle of `per_user`."""
    counts = Counter((window_of(event), event["user"]) for event in some)
    return Counter((*key, count) for key, count in counts.items())


def of_all(some: list[Event]) -> Counter[Any]:
    """The oracle of `of_all`."""
    windows = Counter(window_of(event) for event in some)
    users = {start: len({e["user"] for e in some if window_of(e) == start}) for start in windows}
    return Counter((start, count, users[start]) for start, count in windows.items())


def records(some: list[Event]) -> Counter[Any]:
    """The oracle of `records`."""
    return Counter((window_of(event), event["event_id"], event["user"]) for event in some)


def final(platform: Platform, output: str) -> list[Path]:
    """The files of an output that a reader is to read."""
    where = f"WHERE state = 'final' AND output = '{output}'"
    there = platform.sql(f"SELECT place, name FROM onlyonce.output_files {where} ORDER BY name")
    return [settings.files_dir() / place / name for place, name in there.itertuples(index=False)]


def read(platform: Platform) -> tuple[Counter[Any], Counter[Any], Counter[Any]]:
    """What the files of the three outputs hold; each file must be whole by itself."""
    lines = [json.loads(line) for path in final(platform, "per_user") for line in path.read_text().splitlines()]
    tables = [pq.read_table(path) for path in final(platform, "of_all")]
    rows = [row for table in tables for row in table.to_pylist()]
    assert {tuple(table.schema.names) for table in tables} <= {("window_start", "window_end", "count", "users")}
    texts = []
    for path in final(platform, "records"):
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            texts += list(reader)
            assert reader.fieldnames == ["window_start", "window_end", "event_id", "user"]
    return (
        Counter((row["window_start"][:16], row["user"], row["count"]) for row in lines),
        Counter((f"{row['window_start']:%Y-%m-%dT%H:%M}", row["count"], row["users"]) for row in rows),
        Counter((row["window_start"][:16].replace(" ", "T"), row["event_id"], row["user"]) for row in texts),
    )


def wanted(some: list[Event]) -> tuple[Counter[Any], Counter[Any], Counter[Any]]:
    """The oracle over some events."""
    return per_user(some), of_all(some), records(some)


def test_three_windows_give_thirty_files_through_a_replay_and_a_backfill(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten files a window, empty ones among them; the same winners after a replay; late rows in a new pane."""
    platform = new_platform("tests/support/file_outputs.py")
    known = events(0, 9) + events(1, 3) + events(2, 1)
    platform.put("user_counts", "a.jsonl", known[:10])
    platform.put("user_counts", "b.jsonl", known[10:])

    def strike(name: str) -> None:
        if name == "output-before-end" and not platform.sql("SELECT 1 AS n FROM onlyonce.output_files").empty:
            raise failpoints.FailPoint(name)

    with monkeypatch.context() as striking:
        striking.setattr("onlyonce.outputs.query.passing", strike)
        with pytest.raises(Exception, match="output-before-end"):
            platform.run("user_counts", "--close")
    before = winners(platform)
    assert before
    assert finalize.main([]).facts == {"files": 0}
    platform.run("user_counts", "--close")
    assert before <= winners(platform)
    assert read(platform) == wanted([])
    finalize.main(["user_counts"])

    assert [len(final(platform, output)) for output in ("per_user", "of_all", "records")] == [30, 6, 9]
    assert len(list((settings.files_dir() / "user_counts/per_user").glob("*.jsonl"))) == 30
    assert (
        final(platform, "per_user")[0].name == "per_user-20240101T000000Z-20240101T000100Z-pane-0-00000-of-00010.jsonl"
    )
    assert any(path.stat().st_size == 0 for path in final(platform, "per_user"))
    assert read(platform) == wanted(known)
    old = {path: path.read_bytes() for output in ("per_user", "of_all", "records") for path in final(platform, output)}

    late = events(1, 2, first=30)
    platform.put("user_counts", "c.jsonl", late)
    platform.run("user_counts")
    finalize.main([])
    assert read(platform) == wanted(known)
    platform.backfill("user_counts", "--from", "2024-01-01T00:01Z", "--to", "2024-01-01T00:02Z")
    finalize.main([])

    assert read(platform) == wanted(known + late)
    assert {path: path.read_bytes() for path in old} == old
    states = platform.sql(
        "SELECT state, generation, pane, count(*)::int AS n FROM onlyonce.output_files GROUP BY 1, 2, 3"
    )
    assert Counter(states.itertuples(index=False, name=None)) == Counter(
        [("final", 0, 0, 30), ("replaced", 0, 0, 15), ("final", 1, 1, 15)]
    )
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]


def winners(platform: Platform) -> set[str]:
    """The temporaries that count."""
    return set(platform.sql("SELECT temporary FROM onlyonce.output_files")["temporary"])
