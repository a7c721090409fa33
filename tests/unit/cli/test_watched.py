"""Progress at a terminal: which log lines move which bar, and that log lines go to a file there and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from onlyonce import logs
from onlyonce.cli.work import RECEIVE, WINDOWS, Step, quiet, step_of


@pytest.mark.parametrize(
    "event, step",
    [
        ({"event": "to take in", "records": 40}, Step(RECEIVE, total=40)),
        ({"event": "batch committed", "kept": 7, "duplicate": 2, "invalid": 1, "expired": 0, "unknown_fields": 5}, Step(RECEIVE, done=10)),
        ({"event": "batch committed", "in_time": 7, "late": 0, "windows": 3}, Step(WINDOWS, done=3)),
        ({"event": "backfill committed", "windows": 24, "rows": 90}, Step(WINDOWS, done=24)),
        ({"event": "pulled", "messages": 9}, Step("messages pulled", done=9)),
        ({"event": "written", "rows": 5}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_what_a_log_line_says_of_progress(event: dict[str, Any], step: Step | None) -> None:
    assert step_of(event) == step


WORK = """
import os, sys, structlog
from onlyonce import logs
from onlyonce.cli.work import watched
with watched("run-shop"):
    logs.configure(pipeline="shop")
    log = structlog.get_logger()
    os.write(2, b"Spark speaks\\n")  # as its JVM does, which has the descriptor and not sys.stderr
    log.info("to take in", records=40)
    log.info("batch committed", kept=30, duplicate=1)
    log.info("batch committed", windows=4)
print("after", file=sys.stderr)
"""


def at_a_terminal(home: Path) -> str:
    master, slave = pty.openpty()
    environment = os.environ | {"ONLYONCE_HOME": str(home), "TERM": "xterm", "COLUMNS": "120"}
    started = subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=slave, stdout=slave, stderr=slave, env=environment
    )  # fmt: skip
    os.close(slave)
    shown = b""
    try:
        while piece := os.read(master, 4096):
            shown += piece
    except OSError:
        pass  # the other side is closed
    os.close(master)
    assert started.wait() == 0, shown
    return shown.decode()


def test_a_terminal_shows_bars_and_the_log_is_in_the_file_that_is_told(tmp_path: Path) -> None:
    shown = at_a_terminal(tmp_path)

    [log] = (tmp_path / "logs").iterdir()
    assert str(log) in shown.splitlines()[0]
    assert "31" in shown
    assert "9 left" in shown
    assert "windows written" in shown
    assert "after" in shown
    assert "event=" not in shown
    assert "Spark speaks" not in shown
    written = log.read_text()
    assert "Spark speaks" in written
    assert "event='to take in'" in written


def test_without_a_terminal_the_log_lines_are_what_is_shown(tmp_path: Path) -> None:
    environment = os.environ | {"ONLYONCE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, env=environment, check=True)

    assert [line.split(" event=")[-1].split(" ")[0] for line in done.stderr.splitlines() if "event=" in line] == [
        "'to", "'batch", "'batch"
    ]  # fmt: skip
    assert "Spark speaks" in done.stderr
    assert not (tmp_path / "logs").exists()


def test_what_spark_says_as_it_starts_is_not_shown_by_a_check_and_a_warning_is(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It goes to a file of the home, also where there is no terminal."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.delenv("ONLYONCE_SPARK_LOG", raising=False)
    logs.configure(job="check")

    with quiet("checks") as say:
        say("starts Spark")
        os.write(2, b"Spark speaks\n")
        structlog.get_logger().warning("not checked", output="all", what="no luck")

    shown = capfd.readouterr().err
    assert "Spark speaks" not in shown
    assert shown.splitlines()[:2] == ["starts Spark", "! not checked: all, no luck"]
    [file] = (tmp_path / "logs").iterdir()
    assert "Spark speaks" in file.read_text()
