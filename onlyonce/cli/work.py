"""The commands that change or judge the data: run, deliver, pull, backfill, audit, gc, maintain, finalize, sweep,
incarnations, reset; and how they show long work.

Log lines and what Spark prints are written to a file: the first lines that a person reads are the work's progress
(`onlyonce.cli.bars`), its report or the three lines of its error.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from onlyonce import asked, failed_runs, logs, settings
from onlyonce import console as onlyonce_console
from onlyonce.api import resolve
from onlyonce.cli import bars
from onlyonce.cli.shell import (
    Json,
    OnlyOfFiles,
    PipelineFiles,
    asking,
    declared,
    give,
    only_declared,
    progress,
    read,
    started_database,
    there,
)
from onlyonce.core.errors import Refused, in_line
from onlyonce.core.runs import Report

NO_JVM = "JAVA_GATEWAY_EXITED"
"""Spark's name for a JVM that ends as it starts. Only the JVM's own output has the cause."""
LAST_LINES = 5
"""How many lines of the JVM are shown."""


@contextmanager
def watched(name: str) -> Iterator[None]:
    """Show progress, and write standard error to a file, whose name is printed.

    `name` is the work's, like run-flights. A terminal shows bars, a pipe a line for each step. In a pipe
    ONLYONCE_SPARK_LOG or ONLYONCE_LOG=json prints all log lines instead. What a process writes that was
    started before is not redirected.
    """
    terminal = onlyonce_console.console(stderr=True).is_terminal
    if not terminal and (settings.spark().spark_log is not None or settings.log_format() == "json"):
        yield
        return
    file = _spark_log(name)
    with _to_file(file) as screen, _jvm_heard(file, screen):
        _name(file, screen)
        if not terminal:
            with logs.heard_by(bars.lines(screen)):
                yield
            return
        with bars.bars(screen) as show, logs.heard_by(show):
            yield


@contextmanager
def quiet(text: str) -> Iterator[Callable[[str], None]]:
    """Show a line on standard error while Spark is asked something; yield a function that changes the line.

    What Spark logs as it starts is written to a file, since it would hide the first lines of the result. Without a
    terminal, ONLYONCE_SPARK_LOG prints them.
    """
    terminal = onlyonce_console.console(stderr=True).is_terminal
    if not terminal and settings.spark().spark_log is not None:
        with progress(text) as say:
            yield say
        return
    file = _spark_log()
    with _to_file(file) as screen, _jvm_heard(file, screen), logs.heard_by(lambda event: bars.warn(screen, event)):
        if terminal:
            with _spinner(screen) as line:
                task = line.add_task(escape(text), total=None)
                yield lambda now: line.update(task, description=escape(now))
        else:
            yield lambda now: screen.print(now, style="dim", markup=False, soft_wrap=True)


def with_modules(command: str, job: Callable[[], Report]) -> Report:
    """Return a command's report. Start Spark only if a module of the functions can't be imported without it."""
    try:
        return job()
    except Refused as error:
        if not resolve.needs_session(error):
            raise
    from onlyonce.engine import session

    with quiet("starts Spark: a module of the functions needs it to be imported"):
        session.start(f"onlyonce {command}", "local[1]")
    return job()


@contextmanager
def _jvm_heard(log: Path, screen: Console) -> Iterator[None]:
    """Print the last lines of a JVM that ended as it started: only they have the cause, and they are in the log.

    Raise Refused if no later attempt can succeed.
    """
    begin = log.stat().st_size
    try:
        yield
    except Exception as error:
        if NO_JVM in str(error):
            from onlyonce.engine import failures

            sys.stderr.flush()
            with log.open("rb") as file:
                file.seek(begin)
                said = file.read().decode(errors="replace").splitlines()
            if refused := failures.start_failure("\n".join(said)):
                raise refused from error
            for line in [line for line in said if line.strip()][-LAST_LINES:]:
                screen.print(f"the JVM: {in_line(line)}", markup=False, soft_wrap=True)
            _name(log, screen)
        raise


def _spinner(screen: Console) -> Progress:
    # A status of rich's would take standard error back from the file.
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=screen, transient=True, redirect_stderr=False, redirect_stdout=False)


def _name(log: Path, screen: Console) -> None:
    screen.print(f"log: {log}", style="dim", markup=False, soft_wrap=True)


def _spark_log(name: str | None = None) -> Path:
    try:
        folder = settings.inside_home(settings.home(), "logs")
    except (OSError, Refused):  # a check needs no home
        folder = Path(tempfile.mkdtemp(prefix="onlyonce-"))  # with a name that can't be guessed, for this user only
    now = datetime.now(UTC)
    return folder / (f"{name}-{now:%Y%m%dT%H%M%S}.log" if name else f"spark-{now:%Y%m%d}.log")


@contextmanager
def _to_file(path: Path) -> Iterator[Console]:
    """Redirect standard error to this file, even for Spark's JVM, which inherits it; yield the terminal that it was."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with path.open("ab") as file, os.fdopen(terminal, "w") as screen:
        console = onlyonce_console.console(file=screen)
        os.dup2(file.fileno(), 2)
        try:
            yield console
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)


PANEL = "Work"


def add_work_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (run, pull, deliver, backfill, finalize, audit, gc, maintain, sweep, incarnations, reset):
        app.command(rich_help_panel=PANEL)(command)


@asking("run")
def run(given: Any, words: list[str], as_json: bool) -> None:
    """Take in the available input and write what is due, exactly once: what the DAG PIPELINE_stream does.

    Messages of Pub/Sub are pulled first (onlyonce pull), except for a dry run.
    """
    known = declared(given.pipeline)  # a wrong command is refused before anything starts, and is no run that failed

    from onlyonce.run import stream  # imports Spark, which no other command needs

    stream.arguments(words)
    started_database()
    if known.source.is_pulled and not given.dry_run:
        from onlyonce.sources import pubsub as before

        with watched(f"pull-{given.pipeline}"):
            before.main(asked.words("pull", vars(given)))

    with failed_runs.remembered("run", given.pipeline), watched(f"run-{given.pipeline}"):
        report = stream.main(words)
    give(report, as_json)


@asking("deliver")
def deliver(given: Any, words: list[str], as_json: bool) -> None:
    """Send what waits in the outbox to webhooks, Kafka, BigQuery and sinks of your own: what the task deliver of the
    DAG PIPELINE_stream does."""
    there(settings.database_url)
    if given.pipeline:
        declared(given.pipeline)

    # Imports the database's driver, which help and completion do without.
    from onlyonce.sinks.outbox import deliver as job

    give(job.main(words), as_json)


@asking("pull")
def pull(given: Any, words: list[str], as_json: bool) -> None:
    """Pull a pipeline's Pub/Sub messages, write them to its inbox, and only then acknowledge them. No Spark."""
    declared(given.pipeline)
    there(settings.database_url)

    from onlyonce.sources import pubsub as job

    with watched(f"pull-{given.pipeline}"):
        report = job.main(words)
    give(report, as_json)


@asking("backfill")
def backfill(given: Any, words: list[str], as_json: bool) -> None:
    """Recompute closed windows, now with their late rows, and replace the old results: what the DAG PIPELINE_backfill
    does."""
    declared(given.pipeline)  # a wrong command is refused before anything starts, and is no run that failed

    from onlyonce.outputs import backfill as job

    job.arguments(words)
    there(settings.database_url)

    with failed_runs.remembered("backfill", given.pipeline), watched(f"backfill-{given.pipeline}"):
        report = job.main(words)
    give(report, as_json)


@asking("audit")
def audit(given: Any, words: list[str], as_json: bool) -> None:
    """Check the log: every record has one fate, no batch was left unfinished, each output has read what was received.

    With --data, name each pipeline in the log whose declaration was not read. Exit code 64 if that is PIPELINE.
    """
    there(settings.database_url)

    from onlyonce.operate import audit as auditor

    with progress("reads the log") as show:
        report = auditor.examine_log(given.grace, data=given.data, watch=show, only=given.pipeline)
    give(report, as_json)
    if wrong := auditor.problem(report):
        onlyonce_console.show_error(wrong, onlyonce_console.console(stderr=True))
        raise typer.Exit(1 if report.warnings else wrong.exit_code)


@asking("gc")
def gc(given: Any, words: list[str], as_json: bool) -> None:
    """Remove record ids that are older than the dedup horizon, and say what was removed.

    The DAG onlyonce_catalog_gc does it hourly.
    """
    from onlyonce.operate import gc as collector

    there(settings.database_url)
    if given.pipeline:
        declared(given.pipeline)
    with progress("deletes what has been kept long enough"):
        report = collector.main(words)
    give(report, as_json)


@asking("maintain")
def maintain(given: Any, words: list[str], as_json: bool) -> None:
    """Compact the small files of old batches and closed windows in Delta tables, and remove what no reader needs: what
    the DAG onlyonce_compact_tables does."""
    from onlyonce.operate import compact as maintainer

    there(settings.database_url)
    if given.pipeline:
        declared(given.pipeline)
    with progress("compacts closed windows"):
        report = maintainer.main(words)
    give(report, as_json)


@asking("finalize")
def finalize(given: Any, words: list[str], as_json: bool) -> None:
    """Give the files of committed batches their final names: what the DAG onlyonce_finalize_files and the streams' own
    task do."""
    from onlyonce.sinks.files import finalize as finalizer

    there(settings.database_url)
    give(finalizer.main(words), as_json)


@asking("sweep")
def sweep(given: Any, words: list[str], as_json: bool) -> None:
    """List temporary files of sharded outputs that no attempt can need any more, and remove the old ones."""
    from onlyonce.sinks.files import sweep as sweeper

    there(settings.database_url)
    give(sweeper.main(words), as_json)


def incarnations(pipelines: OnlyOfFiles = None, as_json: Json = False) -> None:
    """List each incarnation of each query, with its state, its epoch and its last batch."""

    rows = only_declared(read(lambda views: views.rows("incarnations")), pipelines, "incarnation")
    give(rows, as_json, empty="no query has run yet")


def reset(
    target: Annotated[str, typer.Argument(metavar="INSTANCE/QUERY", help="Like flights/receive.")],
    from_kept: Annotated[
        bool,
        typer.Option(
            "--from-kept",
            help="If old records are removed (keep_events), begin with the kept records; also for a new output.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this it only says what it would do.")] = False,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Close the incarnation of a query whose checkpoint is lost or damaged; the next one starts from the log."""
    from onlyonce.run import reset as resetter

    there(settings.database_url)
    give(with_modules("reset", lambda: resetter.new(target, yes=yes, from_kept=from_kept)), as_json)
