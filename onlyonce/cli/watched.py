"""Shows long work at a terminal: progress bars instead of log lines, which go to a file.

The bars follow the log lines of the work itself, so nothing is counted twice and no batch waits for them. Without a
terminal the log lines are shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onlyonce import logs, settings, tables

RECEIVE = "taken in"
WINDOWS = "windows written"
FATES = ("kept", "invalid", "remnant", "duplicate")


@dataclass(frozen=True)
class Step:
    """What a log line says of the progress: how many more of what a bar counts are done, or how many there are to do."""

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
    file = settings.home() / "logs" / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
    with _to_file(file) as screen, _bars(screen) as show, logs.heard_by(show):
        yield


@contextmanager
def _to_file(path: Path) -> Iterator[Console]:
    """Standard error is this file, for Spark's JVM as well, which takes it over; gives the terminal that it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    with path.open("ab") as file, os.fdopen(terminal, "w") as screen:
        console = Console(file=screen, highlight=False)
        console.print(f"log: {path}", style="dim", markup=False, soft_wrap=True)
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
    rate = f", {done / seconds:,.0f} a second" if seconds and done else ""
    left = f", {total - done:,.0f} left" if total is not None and total > done else ""
    return f"{done:,.0f}{rate}{left}"
