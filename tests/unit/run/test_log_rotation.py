"""The log of a long run is bounded, whoever writes to it, and nobody else's file is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WRITER = """
import os, subprocess, sys
from onlyonce import logs
child = subprocess.Popen([sys.executable, "-c", "import sys\\nfor line in sys.stdin: sys.stderr.write(line); sys.stderr.flush()"],
                         stdin=subprocess.PIPE, text=True, bufsize=1)
for number in range(40):
    os.write(2, (f"driver {number} " + "x" * 400 + chr(10)).encode())
    child.stdin.write(f"jvm {number}" + chr(10))
    logs.rotate()
child.stdin.close()
child.wait()
"""


def _written(log: Path, home: Path, mode: str) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    given = {
        "ONLYONCE_HOME": str(home),
        "ONLYONCE_LOG_BYTES": "2000",
        "ONLYONCE_LOG_FILES": "2",
        "PATH": "/usr/bin:/bin",
    }
    with log.open(mode) as file:
        subprocess.run([sys.executable, "-c", WRITER], stderr=file, env=given, check=True)


def test_a_log_is_put_aside_once_it_is_large_and_its_processes_write_on_into_an_empty_one(tmp_path: Path) -> None:
    """The last lines are in the file of the name, those before in as many others as are kept, none of them much
    larger."""
    log = tmp_path / "logs" / "long-run-shop.log"
    _written(log, tmp_path, "ab")

    there = sorted(file.name for file in log.parent.iterdir())
    assert there == [log.name, f"{log.name}.1", f"{log.name}.2"]
    sizes = {name: (log.parent / name).stat().st_size for name in there}
    assert max(sizes.values()) < 4000, sizes
    text = "".join((log.parent / name).read_text() for name in sorted(there[1:], reverse=True)) + log.read_text()
    drivers = [int(line.split()[1]) for line in text.splitlines() if line.startswith("driver")]
    assert drivers == list(range(drivers[0], 40)), "in order, to the last one, with none between lost"
    assert "\0" not in text


@pytest.mark.parametrize(("place", "mode"), [("theirs.log", "ab"), ("logs/cut.log", "wb")])
def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, place: str, mode: str) -> None:
    """One outside the home's logs, and one that would have a hole after it was cut."""
    _written(tmp_path / place, tmp_path, mode)

    assert [file.name for file in (tmp_path / place).parent.iterdir() if file.is_file()] == [Path(place).name]
