"""Shows long work at a terminal: progress bars instead of log lines, which go to a file.

The bars follow the log lines of the work itself, so nothing is counted twice and no batch waits for them. Without a
terminal the log lines are shown.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onlyonce import logs, settings, tables
from onlyonce.cli.shell import progress
from onlyonce.settings import home_folders

NO_JVM = "JAVA_GATEWAY_EXITED"
"""What Spark calls a JVM that ends as it starts. Only the JVM itself says why."""
RECEIVE = "taken in"
WINDOWS = "windows written"
FATES = ("kept", "invalid", "remnant", "duplicate")


@dataclass(frozen=True)
class Step:
    """What a log line says of the progress: how many more of what a bar counts are done, or how many there are to
    do."""

    bar: str
    done: int = 0
    total: int | None = None


def step_of(event: Mapping[str, Any]) -> Step | None:
    """What a log line adds; None where it says nothing of progress. Pure."""
    name = event.get("event")
    if name == "to take in":
        return Step(RECEIVE, total=int(event["records"]))
    if name == "batch committed" and "windows" in event:
        return Step(WINDOWS, done=int(event["windows"]))
    if name == "batch committed":
        return Step(RECEIVE, done=sum(int(event.get(fate, 0)) for fate in FATES))
    if name == "backfill begun":
        return Step(WINDOWS)
    if name == "backfill committed":
        return Step(WINDOWS, done=int(event.get("windows", 0)))
    if name == "landed":
        return Step("messages landed", done=int(event["messages"]))
    return None


@contextmanager
def watched(name: str) -> Iterator[None]:
    """Inside, a terminal shows progress, and what is written to standard error goes to a file, whose name is told.

    `name` is the work's, like run-flights. Not promised: what a process that was started before writes.
    """
    if not tables.console(stderr=True).is_terminal:
        yield
        return
    file = home_folders.inside(settings.home(), "logs") / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
    with _to_file(file) as screen:
        _name(file, screen)
        with _bars(screen) as show, logs.heard_by(show):
            yield


@contextmanager
def quiet(text: str) -> Iterator[Callable[[str], None]]:
    """A line on standard error while Spark is asked something, and what changes it.

    What Spark says as it starts goes to a file: it is nobody's first ten lines. ONLYONCE_SPARK_LOG lets it through
    where there is no terminal."""
    terminal = tables.console(stderr=True).is_terminal
    if not terminal and settings.spark().spark_log is not None:
        with progress(text) as say:
            yield say
        return
    file = _spark_log()
    with _to_file(file) as screen, logs.heard_by(lambda event: _warn(screen, event)):
        try:
            if terminal:
                with _spinner(screen) as line:
                    task = line.add_task(escape(text), total=None)
                    yield lambda now: line.update(task, description=escape(now))
            else:
                yield lambda now: screen.print(now, style="dim", markup=False, soft_wrap=True)
        except Exception as error:
            if NO_JVM in str(error):
                _name(file, screen)
            raise


def _spinner(screen: Console) -> Progress:
    # A status of rich's would take standard error back from the file.
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=screen, transient=True, redirect_stderr=False, redirect_stdout=False)


def _name(log: Path, screen: Console) -> None:
    screen.print(f"log: {log}", style="dim", markup=False, soft_wrap=True)


def _warn(screen: Console, event: Mapping[str, Any]) -> None:
    if event.get("level") == "warning":
        rest = ", ".join(f"{event[name]}" for name in ("output", "what") if name in event)
        screen.print(f"! {event['event']}: {rest}", style="yellow", markup=False, soft_wrap=True)


def _spark_log() -> Path:
    try:
        folder = home_folders.inside(settings.home(), "logs")
    except OSError:  # a check needs no home
        folder = Path(
            tempfile.mkdtemp(prefix="onlyonce-")
        )  # of a name that nobody can guess, and that only this user may enter
    return folder / f"spark-{datetime.now(UTC):%Y%m%d}.log"


@contextmanager
def _to_file(path: Path) -> Iterator[Console]:
    """Standard error is this file, for Spark's JVM as well, which takes it over; gives the terminal that it was."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with path.open("ab") as file, os.fdopen(terminal, "w") as screen:
        console = tables.console(file=screen)
        os.dup2(file.fileno(), 2)
        try:
            yield console
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)


@contextmanager
def _bars(screen: Console) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(), TimeRemainingColumn(), console=screen, refresh_per_second=4, redirect_stderr=False,
        redirect_stdout=False,
    )  # fmt: skip
    bars: dict[str, TaskID] = {}
    starting = progress.add_task("Spark starts", total=None, told="")

    def show(event: Mapping[str, Any]) -> None:
        if (step := step_of(event)) is None:
            return
        progress.update(starting, visible=False)
        bar = bars.get(step.bar)
        if bar is None:
            bar = bars[step.bar] = progress.add_task(step.bar, total=None, told="")
        if step.total is not None:
            progress.update(bar, total=step.total)
        progress.advance(bar, step.done)
        task = next(task for task in progress.tasks if task.id == bar)
        progress.update(bar, told=_told(task.completed, task.total, task.elapsed))

    with progress:
        yield show
        for task in progress.tasks:
            # The end of what nobody knew the length of.
            progress.update(task.id, total=task.total or task.completed, visible=task.id != starting)


def _told(done: float, total: float | None, seconds: float | None) -> str:
    speed = done / seconds if seconds else 0.0
    rate = f", {speed:,.{0 if speed >= 10 else 1}f} a second" if speed >= 0.05 else ""
    left = f", {total - done:,.0f} left" if total is not None and total > done else ""
    return f"{done:,.0f}{rate}{left}"
