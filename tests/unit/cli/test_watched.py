"""Progress: which log lines move which bar, what a pipe shows, and that log lines go to a file and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.main import get_command

from onlyonce import logs
from onlyonce.cli import app, checking, operate, shell, work
from onlyonce.cli.bars import RECEIVE, WINDOWS, Step, Tasks, guessed, step_of, told
from onlyonce.cli.work import quiet
from onlyonce.core.errors import Refused


@pytest.mark.parametrize(
    "event, step",
    [
        ({"event": "to take in", "records": 40}, Step(RECEIVE, total=40)),
        ({"event": "batch begun", "records": 9}, Step(RECEIVE, batch=9)),
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
    log.info("asks the source")
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

    [log] = (tmp_path / "logs").glob("*.log")  # next to it: the error that the doctor names
    assert str(log) in shown.splitlines()[0]
    assert "31 of 40" in shown
    assert "windows written" in shown
    assert "after" in shown
    assert "event=" not in shown
    assert "Spark speaks" not in shown
    written = log.read_text()
    assert "Spark speaks" in written
    assert "event='to take in'" in written


def test_a_pipe_shows_a_line_for_each_step_and_no_log_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK], capture_output=True, text=True, env=of_home(tmp_path), check=True
    )

    [log] = (tmp_path / "logs").glob("*.log")  # next to it: the error that the doctor names
    assert done.stderr.splitlines() == [
        f"log: {log}", "the source is asked for new input", "taken in: 0 of 40", "taken in: 31 of 40", "windows written: 4", "after"
    ]  # fmt: skip
    assert "Spark speaks" in log.read_text()
    assert "event='to take in'" in log.read_text()


@pytest.mark.parametrize("asked", [{"ONLYONCE_LOG": "json"}, {"ONLYONCE_SPARK_LOG": "WARN"}])
def test_a_pipe_shows_all_that_is_logged_if_that_is_asked_for(asked: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK], capture_output=True, text=True, env=of_home(tmp_path) | asked, check=True
    )

    assert "Spark speaks" in done.stderr
    assert "batch committed" in done.stderr
    assert not (tmp_path / "logs").exists()


def of_home(home: Path) -> dict[str, str]:
    left = {name: value for name, value in os.environ.items() if name not in ("ONLYONCE_LOG", "ONLYONCE_SPARK_LOG")}
    return left | {"ONLYONCE_HOME": str(home)}


STARTS_SPARK = {
    "run": ("onlyonce.run.stream", ["flights"]),
    "backfill": ("onlyonce.outputs.backfill", ["flights", "--from", "2013-01-01", "--to", "2013-01-02"]),
    "plan": ("onlyonce.operate.plan", ["flights", "--yes"]),
    "reprocess": ("onlyonce.outputs.reprocess", ["flights", "--invalid", "--yes"]),
    "forget": ("onlyonce.operate.forget", ["flights", "--where", "carrier = 'AA'", "--yes"]),
    "conform": ("onlyonce.testing.conformance", ["flights"]),
    "doctor": ("onlyonce.operate.doctor", ["--fix"]),
}
"""The module and arguments of each command that may start Spark."""


@pytest.mark.parametrize("command", STARTS_SPARK)
def test_nothing_stands_before_the_three_lines_of_an_error(
    command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What Spark, Ivy and the work log is in the file that the first line names."""
    module, words = STARTS_SPARK[command]

    def fail(_: list[str]) -> None:
        logs.configure(job=command)
        os.write(2, b":: resolving dependencies ::\n")
        structlog.get_logger().info("to take in", records=40)
        raise Refused("it is wrong", data="nothing was done", hint="put it right")

    for variable in ("ONLYONCE_LOG", "ONLYONCE_SPARK_LOG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.setattr(f"{module}.main", fail)
    monkeypatch.setattr(shell, "refuse_other_format", lambda: None)
    monkeypatch.setattr(work, "started_database", lambda: None)
    for of_commands in (checking, operate, work):
        monkeypatch.setattr(of_commands, "there", lambda _: "")

    monkeypatch.setattr(sys, "stderr", os.fdopen(2, "w", buffering=1, closefd=False))  # pytest's is another file

    with pytest.raises(SystemExit) as ended:
        get_command(app).main([command, *words])

    [log] = (tmp_path / "logs").glob("*.log")  # next to it: the error that the doctor names
    assert ended.value.code == Refused.exit_code
    assert capfd.readouterr().err.splitlines() == [
        f"log: {log}", "taken in: 0 of 40", "it is wrong", "  data: nothing was done", "  next: put it right"
    ]  # fmt: skip
    assert "resolving dependencies" in log.read_text()
    assert "to take in" in log.read_text()


def test_the_tasks_of_the_batch_at_work_are_counted_anew_for_each_batch() -> None:
    """A stage that is no longer active has ended. A batch is read in as many tasks as write it."""
    tasks = Tasks()
    tasks.look({0: (1, 1)})
    assert tasks.share == 0
    for active in ({1: (2, 0)}, {1: (2, 1)}, {2: (2, 1)}):
        tasks.look(active)
    assert (tasks.ended, tasks.all, tasks.share) == (4, 5, 0.75)

    tasks.batch_ended()
    tasks.look({2: (2, 2), 3: (4, 1)})
    assert (tasks.ended, tasks.all, tasks.share) == (1, 4, 0.125)


def test_a_bar_moves_inside_a_batch_and_never_to_its_end() -> None:
    in_first = [guessed(0, 100, since_start=5, since_batch=5, share=share) for share in (0, 0.5, 1)]
    later = [guessed(50, 40, since_start=10 + since, since_batch=since, share=0) for since in (0, 2, 20)]

    assert in_first == [0, 50, 95]
    assert later == [50, 60, 88]


def test_a_bar_says_how_fast_and_how_long_still() -> None:
    assert told(0, 100, 3) == "0 of 100"
    assert told(50_000, 400_000, 10) == "50,000 of 400,000, 5,000 a second, 0:01:10 left"
    assert told(400_000, 400_000, 80) == "400,000 of 400,000, 5,000 a second"
    assert told(7, None, 7) == "7, 1.0 a second"
    assert told(104, 102, None) == "104 of 104"


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


UNRESOLVED = "java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark_4.2_2.13;4.4.1: not found]"
REFUSED = (
    "\tServer access error at url https://repo1.maven.org/maven2/io/delta/x.pom (java.net.ConnectException: "
    f"Connection refused)\n{UNRESOLVED}"
)
NO_HOST = f"\tHost repo1.maven.org not found. url=https://repo1.maven.org/maven2/io/delta/x.pom\n{UNRESOLVED}"
NO_START = {
    "no java": ({"PATH": "/nonexistent"}, "command not found", "no java is on PATH", "install Java 17 or newer"),
    "wrong JAVA_HOME": (
        {"JAVA_HOME": "/nonexistent"},
        "No such file",
        "JAVA_HOME is /nonexistent",
        "unset JAVA_HOME, since /",
    ),
    "wrong JAVA_HOME, no java": (
        {"JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"},
        "No such file",
        "JAVA_HOME is /none",
        "install Java 17",
    ),
    "old java": ({}, "java.lang.UnsupportedClassVersionError: x", "too old for Spark", "install Java 17 or newer"),
    "unresolved jar": ({}, UNRESOLVED, "its jars io.delta:delta-spark_4.2_2.13:4.4.1", "SPARK_CONF_DIR"),
    "a proxy that refuses": ({}, REFUSED, "4.4.1: https://repo1.maven.org: Connection refused", "-Dhttps.proxyHost="),
    "an unknown host": ({}, NO_HOST, "4.4.1: the host repo1.maven.org is not found", "JAVA_TOOL_OPTIONS"),
}
"""Variables, what the JVM says, and words of the error and of its next step."""


@pytest.mark.parametrize("why", NO_START)
@pytest.mark.parametrize("context", [quiet, work.watched])
def test_a_jvm_that_can_never_start_is_refused_with_its_cause(
    context: Any, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Running the same command again would not help."""
    variables, said, what, hint = NO_START[why]
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    for variable in ("ONLYONCE_LOG", "ONLYONCE_SPARK_LOG", "JAVA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def start() -> None:
        os.write(2, f"{said}\n".encode())
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

    with pytest.raises(Refused) as refused, context("run-shop"):
        start()

    assert what in refused.value.what
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize("context", [quiet, work.watched])
def test_a_jvm_that_ends_as_it_starts_is_quoted(
    context: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its last lines are on the screen, and so is the name of the file with all of them."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    for variable in ("ONLYONCE_LOG", "ONLYONCE_SPARK_LOG"):
        monkeypatch.delenv(variable, raising=False)

    def start() -> None:
        os.write(2, b"".join(b"line %d\n" % number for number in range(9)) + b"Unrecognized option: -Xfoo\n\n")
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

    with pytest.raises(RuntimeError), context("run-shop"):
        start()

    shown = capfd.readouterr().err.splitlines()
    [log] = (tmp_path / "logs").glob("*.log")  # next to it: the error that the doctor names
    assert [line for line in shown if "the JVM: " in line] == [
        *(f"the JVM: line {number}" for number in range(5, 9)), "the JVM: Unrecognized option: -Xfoo"
    ]  # fmt: skip
    assert shown[-1] == f"log: {log}"
