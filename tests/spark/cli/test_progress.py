"""The bars of a real run in a terminal of 80 columns. `ONLYONCE_SCREENSHOTS=FOLDER` writes the frames to progress.txt."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.whole, pytest.mark.timeout(600)]
COLUMNS = 80
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FILES, RECORDS = 3, 400_000
ASKS_OFTEN = "from onlyonce.cli import app, bars; bars.POLL_SECONDS = 0.1; app()"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FRAME = re.compile(r"^..taken in +[━╸╺]* +([\d,]+) of 1,200,000(?:, ([\d,.]+) a second)?(?:, (\d+:\d\d:\d\d) left)?$")


def frames(command: list[str], environment: dict[str, str]) -> list[tuple[float, str]]:
    """Return each line that a command shows at a terminal, with the seconds since its start."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    begun = time.monotonic()
    started = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    found, rest = [], ""
    try:
        while piece := os.read(master, 1 << 16):
            *lines, rest = re.split(r"[\r\n]+", CONTROL.sub("", rest + piece.decode("utf-8", "replace")))
            found += [(time.monotonic() - begun, line.rstrip()) for line in lines if line.strip()]
    except OSError:
        pass  # the other side is closed
    os.close(master)
    assert started.wait() == 0, "\n".join(line for _, line in found[-20:])
    return found


def test_a_bar_moves_inside_a_batch_at_a_terminal(platform: Platform) -> None:
    """With a rate and the time left; no line of a bar is cut. Spark is asked often, so that no fast batch is missed."""
    for number in range(FILES):
        minutes = (f"2026-01-01T00:{minute:02}:00Z" for minute in range(10 * number, 10 * number + 10))
        times = [*minutes]
        platform.put(
            "shop",
            f"{number}.jsonl",
            [
                json.dumps(
                    {"id": f"{number}-{at}", "shop": "x", "at": times[at * 10 // RECORDS], "cents": 7, "weight": 0.5}
                )
                for at in range(RECORDS)
            ],
        )
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment |= platform.environment | {"TERM": "xterm", "ONLYONCE_MASTER": "local[2]"}
    command = [sys.executable, "-c", ASKS_OFTEN, "run", "shop"]

    shown = frames(command, environment)

    if folder := os.environ.get("ONLYONCE_SCREENSHOTS"):
        seen: dict[str, float] = {}
        for at, line in shown:
            seen.setdefault(line[2:] if line[:1] in SPINNER or line.startswith("  ") else line, at)
        text = "".join(f"{at:6.1f} s  {line}\n" for line, at in seen.items())
        (Path(folder) / "progress.txt").write_text(text.replace(str(platform.home), "~/.onlyonce"))
    bars = [FRAME.search(line) for _, line in shown if "taken in" in line and " of " in line]
    assert all(bars), [line for _, line in shown if "taken in" in line]  # none is cut
    committed = {n * RECORDS for n in range(FILES + 1)}
    done = [int(one[1].replace(",", "")) for one in bars if one]
    assert done == sorted(done)  # it never goes back
    inside = [one.groups() for one in bars if one and int(one[1].replace(",", "")) not in committed]
    assert inside
    assert any(rate and left for _, rate, left in inside)
