"""Show how far long work is: bars at a terminal, a line for each step in a pipe.

They follow the log lines of the work itself, so nothing is counted twice and no batch waits for them. Inside a batch
there is no log line. There a thread of the terminal asks Spark once a second how many tasks have ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn

RECEIVE = "taken in"
WINDOWS = "windows written"
TASKS = "Spark's tasks"
FATES = ("kept", "invalid", "expired", "duplicate")
POLL_SECONDS = 1.0
WIDE = 100
"""The columns of a terminal that has room for the time since a bar began, next to the time left."""
BATCH_ENDS = ("batch committed", "backfill committed")
ASKS, ASKED = "asks the source", "the source is asked for new input"
MOST_OF_BATCH = 0.95
"""A batch that is not committed never counts as done, however far its estimate goes."""


@dataclass(frozen=True)
class Step:
    """The progress in a log line: how many more of what a bar counts are done, or how many remain.

    `batch`: how many of them belong to the batch that begins.
    """

    bar: str
    done: int = 0
    total: int | None = None
    batch: int | None = None


def step_of(event: Mapping[str, Any]) -> Step | None:
    """Return what a log line adds; None if it has no progress. Pure."""
    name = event.get("event")
    if name == "to take in":
        return Step(RECEIVE, total=int(event["records"]))
    if name == "batch begun":
        return Step(RECEIVE, batch=int(event["records"]))
    if name == "batch committed" and "windows" in event:
        return Step(WINDOWS, done=int(event["windows"]))
    if name == "batch committed":
        return Step(RECEIVE, done=sum(int(event.get(fate, 0)) for fate in FATES))
    if name == "backfill begun":
        return Step(WINDOWS)
    if name == "backfill committed":
        return Step(WINDOWS, done=int(event.get("windows", 0)))
    if name == "pulled":
        return Step("messages pulled", done=int(event["messages"]))
    return None


@dataclass
class Tasks:
    """The tasks of Spark's stages since the last batch ended: all that were seen, and how many of them have ended.

    A stage that is no longer active has ended.
    """

    _seen: dict[int, tuple[int, int]] = field(default_factory=dict)
    _over: set[int] = field(default_factory=set)

    def look(self, active: Mapping[int, tuple[int, int]]) -> None:
        """Take in the active stages: their tasks, and how many have ended. Pure."""
        ended = {stage: (tasks, tasks) for stage, (tasks, _) in self._seen.items() if stage not in active}
        self._seen |= ended | {stage: found for stage, found in active.items() if stage not in self._over}

    def batch_ended(self) -> None:
        """Forget the stages of the batch that has ended."""
        self._over |= self._seen.keys()
        self._seen.clear()

    @property
    def all(self) -> int:
        """Return how many tasks the batch has had so far."""
        return sum(tasks for tasks, _ in self._seen.values())

    @property
    def ended(self) -> int:
        """Return how many of them have ended."""
        return sum(ended for _, ended in self._seen.values())

    @property
    def share(self) -> float:
        """Return about which share of a batch of receive is done.

        It reads its records in as many tasks as it then writes them. A stage of one task only lists the input.
        """
        most = max((tasks for tasks, _ in self._seen.values()), default=0)
        return sum(ended for tasks, ended in self._seen.values() if tasks == most) / (2 * most) if most > 1 else 0.0


def guessed(done: float, batch: float, since_start: float, since_batch: float, share: float) -> float:
    """Return how many records are done, including the records of the current batch, which has `batch`. Pure.

    After the first batch it goes by the speed of the batches before, and in the first one by the share of its tasks.
    """
    more = done / (since_start - since_batch) * since_batch if done and since_start > since_batch else batch * share
    return done + min(more, MOST_OF_BATCH * batch)


def told(done: float, total: float | None, seconds: float | None) -> str:
    """Return how much is done of what, how fast, and the time left at this speed. Pure.

    In 80 columns it leaves room for a bar of 10 if there are 9,999,999 records at most.
    """
    total = None if total is None else max(total, done)  # the number that was known before is an estimate
    speed = done / seconds if seconds else 0.0
    rate = f", {speed:,.{0 if speed >= 10 else 1}f} a second" if speed >= 0.05 else ""
    of = f" of {total:,.0f}" if total is not None else ""
    minutes, rest = divmod(round((total - done) / speed), 60) if total is not None and speed else (0, 0)
    left = f", {minutes // 60}:{minutes % 60:02}:{rest:02} left" if minutes > 0 or rest > 0 else ""
    return f"{done:,.0f}{of}{rate}{left}"


@contextmanager
def bars(screen: Console) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show bars on a terminal; yield the function that prints a log line."""
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[told]}"),
        *([TimeElapsedColumn()] if screen.width >= WIDE else []),
        console=screen, refresh_per_second=4, redirect_stderr=False, redirect_stdout=False,
    )  # fmt: skip
    shown = _Shown(progress)
    done = threading.Event()
    watcher = threading.Thread(target=shown.poll, args=(done,), name="progress", daemon=True)
    with progress:
        watcher.start()
        try:
            yield shown.take
        finally:
            done.set()
            watcher.join(POLL_SECONDS)
        shown.end()


class _Shown:
    """The bars of one terminal. The log lines and the poll come from several threads."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._lock, self._tasks = progress, threading.Lock(), Tasks()
        self._starting = progress.add_task("Spark starts", total=None, told="")
        self._bars: dict[str, TaskID] = {}
        self._committed, self._last = 0, time.monotonic()
        self._batch = 0
        """How many records receive's current batch has; 0 between two batches."""

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in a log line."""
        if event.get("event") == "stopping":
            self._progress.console.print(stopping(event), markup=False, soft_wrap=True)
        if event.get("event") == ASKS:
            self._progress.update(self._starting, description=ASKED)
        if (step := step_of(event)) is None:
            return
        with self._lock:
            self._progress.update(self._starting, visible=False)
            bar = self._bar(step.bar)
            if step.total is not None:
                self._progress.update(bar, total=step.total)
            if step.bar == RECEIVE:
                self._committed += step.done
                self._batch = step.batch or 0
                self._tell(bar, self._committed)
            else:
                self._progress.advance(bar, step.done)
                self._tell(bar, self._task(bar).completed)
            if event["event"] in BATCH_ENDS:
                self._tasks.batch_ended()
            self._last = time.monotonic()

    def poll(self, done: threading.Event) -> None:
        """Ask Spark, once a second until `done`, how far the current batch is."""
        while not done.wait(POLL_SECONDS):
            with suppress(Exception):  # Spark starts or ends; only the display depends on it
                active = _active_stages()
                with self._lock:
                    self._tasks.look(active)
                    self._show_batch()

    def end(self) -> None:
        """Complete the bars whose length was not known."""
        for task in self._progress.tasks:
            hidden = task.id in (self._starting, self._bars.get(TASKS))
            self._progress.update(task.id, total=task.total or task.completed, visible=not hidden)

    def _show_batch(self) -> None:
        if not self._bars:
            return
        tasks = self._bar(TASKS)
        self._progress.update(tasks, total=self._tasks.all or None, completed=self._tasks.ended)
        self._progress.update(tasks, told=f"{self._tasks.ended:,} of {self._tasks.all:,}", visible=self._tasks.all > 0)
        if (bar := self._bars.get(RECEIVE)) is None:
            return
        task = self._task(bar)
        if self._batch and task.elapsed:
            since = time.monotonic() - self._last
            now = guessed(self._committed, self._batch, task.elapsed, since, self._tasks.share)
            self._tell(bar, max(now, task.completed))

    def _bar(self, name: str) -> TaskID:
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=None, told="", visible=name != TASKS)
        return self._bars[name]

    def _tell(self, bar: TaskID, done: float) -> None:
        task = self._task(bar)
        self._progress.update(bar, completed=done, told=told(done, task.total, task.elapsed))

    def _task(self, bar: TaskID) -> Task:
        return next(task for task in self._progress.tasks if task.id == bar)


def stopping(event: Mapping[str, Any]) -> str:
    """Return the words that acknowledge a signal."""
    return f"stopping after {event['after']}; Ctrl-C again ends it at once"


def lines(screen: Console) -> Callable[[Mapping[str, Any]], None]:
    """Return what prints a short line for each step, each warning and a signal, in a pipe."""
    sums: dict[str, int] = {}
    totals: dict[str, int] = {}

    def show(event: Mapping[str, Any]) -> None:
        if event.get("event") == "stopping":
            screen.print(stopping(event), markup=False, soft_wrap=True)
        if event.get("event") == ASKS:
            screen.print(ASKED, style="dim")
        warn(screen, event)
        step = step_of(event)
        if step is None or step.batch is not None:
            return
        if step.total is not None:
            totals[step.bar] = step.total
        sums[step.bar] = sums.get(step.bar, 0) + step.done
        screen.print(
            f"{step.bar}: {told(sums[step.bar], totals.get(step.bar), None)}", style="dim", markup=False, soft_wrap=True
        )

    return show


def warn(screen: Console, event: Mapping[str, Any]) -> None:
    """Print a log line that is a warning."""
    if event.get("level") == "warning":
        rest = ", ".join(f"{event[name]}" for name in ("output", "what") if name in event)
        screen.print(f"! {event['event']}{': ' if rest else ''}{rest}", style="yellow", markup=False, soft_wrap=True)


def _active_stages() -> dict[int, tuple[int, int]]:
    """Return Spark's active stages: how many tasks each has, and how many of them have ended."""
    from pyspark import SparkContext  # only where a command has started Spark

    context = SparkContext._active_spark_context
    if context is None:
        return {}
    tracker = context.statusTracker()
    found = {stage: tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()}
    return {stage: (info.numTasks, info.numCompletedTasks) for stage, info in found.items() if info}
