"""The commands that do something to the data, or judge it: run, land, deliver, backfill, finalize, audit, collect, maintain, sweep, lineage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onlyonce import settings, tables
from onlyonce.cli.shell import (
    Json,
    PipelineFiles,
    PipelineName,
    PlatformGroup,
    declared,
    give,
    options,
    progress,
    read,
    started_database,
    there,
)
from onlyonce.cli.watched import watched
from onlyonce.declare.sources import PubSub
from onlyonce.model.report import Report

PANEL = "Work"

lineage_app = typer.Typer(help="The lives of the queries: list them, or start a new one.", cls=PlatformGroup)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (run, land, deliver, backfill, finalize, audit, collect, maintain, sweep):
        app.command(rich_help_panel=PANEL)(command)
    app.add_typer(lineage_app, name="lineage", rich_help_panel=PANEL)


def run(
    pipeline: PipelineName,
    close: Annotated[
        bool, typer.Option("--close", help="Declare the input ended: all windows with data close.")
    ] = False,
    bounded: Annotated[
        bool,
        typer.Option("--bounded", help="A run of its own over all input, with targets of its own; nothing is late."),
    ] = False,
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="With --bounded, of a topic: from this message time.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="With --bounded, of a topic: before this message time.")
    ] = None,
    forever: Annotated[
        bool, typer.Option("--forever", help="Take in what comes, until `onlyonce stop`, SIGTERM or Ctrl-C.")
    ] = False,
    every: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="With --forever: between two looks; by default 5.")
    ] = None,
    max_files: Annotated[int | None, typer.Option(min=1, help="How many files one batch takes.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be read; write nothing.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark's master; by default ONLYONCE_MASTER or local[*].")] = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Take in what is there and write what is due, exactly once: what the DAG stream_PIPELINE does.

    Messages of Pub/Sub are landed first (onlyonce land), but for a dry run.
    """
    known = declared(pipeline, pipelines)  # a wrong name is refused before Spark starts
    started_database()
    if isinstance(known.source, PubSub) and not dry_run:
        with watched(f"land-{pipeline}"):
            _land(pipeline, pipelines)
    argv = [pipeline]
    flags = (("--close", close), ("--bounded", bounded), ("--forever", forever), ("--dry-run", dry_run))
    argv += [flag for flag, on in flags if on]
    argv += [] if every is None else ["--every", str(every)]
    argv += [f"--from={start}"] if start else []
    argv += [f"--to={end}"] if end else []
    argv += ["--max-files", str(max_files)] if max_files else []
    argv += options(master, pipelines)

    from onlyonce.run import stream  # with it comes Spark, which no other command needs

    with watched(f"run-{pipeline}"):
        report = stream.main(argv)
    give(report, as_json)


def deliver(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline, or a bounded run of it; by default all.")
    ] = None,
    output: Annotated[str | None, typer.Option(help="Only this output.")] = None,
    retry_dead: Annotated[
        bool, typer.Option("--retry-dead", help="Send dead letters and rejected rows again too.")
    ] = False,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Send what waits in the outbox to webhooks and BigQuery: what the task deliver of the DAG stream_PIPELINE does."""
    there(settings.database_url)
    argv = [pipeline] if pipeline else []
    argv += ["--retry-dead"] if retry_dead else []
    argv += [f"--output={output}"] if output else []
    argv += options(pipelines=pipelines)

    from onlyonce.sinks.outbox import (
        deliver as job,  # with it comes the database's driver, which help and completion do without
    )

    give(job.main(argv), as_json)


def land(pipeline: PipelineName, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """Pull a pipeline's Pub/Sub messages, write them to its inbox, and only then acknowledge them. No Spark."""
    declared(pipeline, pipelines)
    there(settings.database_url)
    with watched(f"land-{pipeline}"):
        report = _land(pipeline, pipelines)
    give(report, as_json)


def _land(pipeline: str, pipelines: list[Path] | None) -> Report:
    from onlyonce.sources import land as job

    return job.main([pipeline, *(f"--pipelines={file.resolve()}" for file in pipelines or [])])


def backfill(
    pipeline: PipelineName,
    start: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="Windows that start here or later: 2013-01-31, or with 05:00Z."),
    ],
    stop: Annotated[str, typer.Option("--to", metavar="TIME", help="And before this. Without a zone a time is UTC.")],
    output: Annotated[
        str | None, typer.Option(help="Only this output, with those made from it; by default all with windows.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which windows, and what each sink would do; write nothing.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark's master; by default ONLYONCE_MASTER or local[*].")] = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Recompute closed windows, late rows folded in, and put them in place of the old: what the DAG backfill_PIPELINE does."""
    declared(pipeline, pipelines)  # a wrong name is refused before anything starts
    there(settings.database_url)
    argv = [pipeline, f"--from={start}", f"--to={stop}"]
    argv += [f"--output={output}"] if output else []
    argv += ["--dry-run"] if dry_run else []
    argv += options(master, pipelines)

    from onlyonce.outputs import (
        backfill as job,  # with it comes the database's driver, which help and completion do without
    )

    with watched(f"backfill-{pipeline}"):
        report = job.main(argv)
    give(report, as_json)


def audit(
    grace: Annotated[
        int, typer.Option(help="Minutes without a sign of life after which unfinished work counts as left behind.")
    ] = 15,
    data: Annotated[
        bool, typer.Option("--data", help="Count the rows of the tables too, against the log. Reads every row once.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the log: every record has one fate, no batch was left behind, each output has read what was received."""
    there(settings.database_url)

    from onlyonce.operate import audit as auditor

    with progress("reads the log") as show:
        report = auditor.examine(grace, data=data, watch=show)
    give(report, as_json)
    if report.warnings:
        tables.show_error(auditor.broken(report), tables.console(stderr=True))
        raise typer.Exit(1)


def collect(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline with its bounded runs; by default all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let record ids go that are older than the dedup horizon; says what went. The DAG onlyonce_collect does it hourly."""
    from onlyonce.operate import collect as collector

    there(settings.database_url)
    with progress("lets go what is kept long enough"):
        report = collector.main([pipeline] if pipeline else [])
    give(report, as_json)


def maintain(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline; by default all.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")] = False,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Compact the small files of closed windows in Delta tables, and remove what no reader needs: what the DAG onlyonce_maintain does."""
    from onlyonce.sinks import maintain as maintainer

    there(settings.database_url)
    argv = [pipeline] if pipeline else []
    argv += ["--dry-run"] if dry_run else []
    argv += options(pipelines=pipelines)
    with progress("compacts closed windows"):
        report = maintainer.main(argv)
    give(report, as_json)


def finalize(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline with its bounded runs; by default all.")
    ] = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Give the files of committed batches their final names: what the DAG onlyonce_finalize and the streams' own task do."""
    from onlyonce.sinks.files import finalize as finalizer

    there(settings.database_url)
    argv = [pipeline] if pipeline else []
    argv += options(pipelines=pipelines)
    give(finalizer.main(argv), as_json)


def sweep(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List them; remove nothing.")] = False,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="HOURS", help="By default ONLYONCE_KEEP_TEMPORARIES_HOURS, or 24.")
    ] = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """List the temporaries of sharded files that no attempt can want any more, and remove the old ones."""
    from onlyonce.sinks.files import sweep as sweeper

    there(settings.database_url)
    argv = ["--dry-run"] if dry_run else []
    argv += [f"--older-than={older_than}"] if older_than is not None else []
    argv += options(pipelines=pipelines)
    give(sweeper.main(argv), as_json)


@lineage_app.command("list")
def list_lineages(as_json: Json = False) -> None:
    """Each life of each query, with its state, its epoch and its last batch."""
    from onlyonce.commitlog import views

    give(read(lambda conn: views.rows(conn, "lineages")), as_json, empty="no query has run yet")


@lineage_app.command("new")
def new_lineage(
    target: Annotated[str, typer.Argument(metavar="INSTANCE/QUERY", help="Like flights/receive.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this it only says what it would do.")] = False,
    as_json: Json = False,
) -> None:
    """Close the life of a query whose checkpoint is lost or damaged; the next one starts from the log."""
    from onlyonce.run import lineage

    there(settings.database_url)
    give(lineage.new(target, yes=yes), as_json)
