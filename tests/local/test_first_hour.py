"""From nothing to rows: `init`, `run`, `sql` in an empty folder and an empty home, as a person at a terminal does."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ONLYONCE = Path(sys.executable).with_name("onlyonce")


def at_a_terminal(*words: str, folder: Path) -> list[str]:
    """The lines that a command shows at a terminal; it must succeed."""
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    started = subprocess.Popen(
        [ONLYONCE, *words], stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment
    )  # fmt: skip
    os.close(slave)
    shown = b""
    try:
        while piece := os.read(master, 1 << 16):
            shown += piece
    except OSError:
        pass  # its end was closed
    os.close(master)
    assert started.wait() == 0, shown.decode()
    return shown.decode().splitlines()


def closed_hours(sample: Path) -> dict[str, int]:
    """By the hour, how many distinct records there are, of those that a record is an hour past the end of."""
    times = {row["order_id"]: row["at"] for row in map(json.loads, sample.read_text().splitlines())}.values()
    hours = Counter(time[:13] for time in times)
    last = max(times)
    return {hour: n for hour, n in hours.items() if f"{hour[:11]}{int(hour[11:]) + 2:02}:00:00Z" <= last}


def test_three_commands_from_nothing_to_rows(home: Path, tmp_path: Path) -> None:
    at_a_terminal("init", "shop", folder=tmp_path)
    project = tmp_path / "shop"

    told = at_a_terminal("run", "shop", folder=project)
    asked = [ONLYONCE, "sql", "select window_start, records from results.shop_per_hour", "--json"]
    rows = json.loads(subprocess.run(asked, cwd=project, capture_output=True, text=True, check=True).stdout)

    assert {row["window_start"][:13]: row["records"] for row in rows} == closed_hours(project / "inbox" / "sales.jsonl")
    assert [line for line in told if "event=" in line or "WARN" in line] == []
    assert any("taken in" in line and "102" in line for line in told)

    # A second run has nothing new to take in, and adds nothing.
    at_a_terminal("run", "shop", folder=project)
    again = json.loads(subprocess.run(asked, cwd=project, capture_output=True, text=True, check=True).stdout)
    assert again == rows

    tests = [sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(tests, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
