"""The first hour of a user: docs/tutorial.md, its files written and its commands run in order, in an empty folder and
an empty home."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
BLOCK = re.compile(r'^(<!-- not run: .+ -->\n)?```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Person:
    """Who reads the tutorial: writes its files, and types its commands at a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: dict[str, list[str]] = {}

    def follow(self, page: Path) -> None:
        """Do what each block says. Every command must succeed."""
        for mark, language, place, text in BLOCK.findall(page.read_text()):
            if mark:
                continue
            if place:
                (self.folder / place).write_text(text)
            for command in text.splitlines() if language == "sh" else []:
                self.type(command)

    def type(self, command: str) -> None:
        if command.startswith("cd "):
            self.folder /= command[3:]
            return
        master, slave = pty.openpty()
        variables = os.environ | {"TERM": "xterm", "COLUMNS": "200", "PATH": f"{BIN}:{os.environ['PATH']}"}
        started = subprocess.Popen(
            command, shell=True, stdin=slave, stdout=slave, stderr=slave, cwd=self.folder, env=variables
        )  # fmt: skip
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(master, 1 << 16):
                shown += piece
        except OSError:
            pass  # its end was closed
        os.close(master)
        assert started.wait() == 0, f"{command}\n{shown.decode()}"
        self.told[command] = shown.decode().splitlines()

    def rows(self) -> dict[tuple[str, str], tuple[int, int]]:
        """By hour and shop, how many orders, and what was paid: as the table has them now."""
        asked = [str(BIN / "onlyonce"), "sql", "select * from results.shop_per_hour", "--json"]
        found = json.loads(subprocess.run(asked, cwd=self.folder, capture_output=True, check=True).stdout)
        return {(row["window_start"][:13], row["shop"]): (row["records"], row["cents"]) for row in found}


def oracle(inbox: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """By hour and shop, of the distinct orders in all files, where an order is two hours past the hour's begin."""
    lines = [line for file in sorted(inbox.iterdir()) for line in file.read_text().splitlines()]
    orders = {order["order_id"]: order for order in map(json.loads, lines)}.values()
    last = max(order["at"] for order in orders)
    counts: Counter[tuple[str, str]] = Counter()
    cents: Counter[tuple[str, str]] = Counter()
    for order in orders:
        hour, key = order["at"][:13], (order["at"][:13], order["shop"])
        if f"{hour[:11]}{int(hour[11:]) + 2:02}:00:00Z" <= last:
            counts[key] += 1
            cents[key] += order["cents"]
    return {key: (counts[key], cents[key]) for key in counts}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.airflow
def test_the_tutorial_alone_leads_to_the_right_rows(home: Path, tmp_path: Path) -> None:
    """Every record that the files hold is in the result once, the late one too."""
    person = Person(tmp_path)
    text = (ROOT / "docs" / "tutorial.md").read_text()
    page, put_away = tmp_path / "page.md", tmp_path / "rest.md"
    before, mark, after = text.partition("## The page")
    assert mark
    page.write_text(before)
    put_away.write_text(after)

    person.follow(page)
    rows = person.rows()
    project = person.folder

    assert rows == oracle(project / "inbox")
    run = person.told["onlyonce run shop"]
    assert [line for line in run if "event=" in line or "WARN" in line] == []
    assert any("o-0200" in line for line in person.told["onlyonce late shop"])
    person.follow(put_away)
    assert any("Airflow: http" in line for line in person.told["onlyonce up"])
