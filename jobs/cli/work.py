"""The commands that do something to the data, or judge it: run, land, backfill, audit, collect, lineage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jobs import settings, tables
from jobs.cli.shell import Json, PipelineFiles, PipelineName, PlatformGroup, declared, give, read, there
from jobs.model.report import Report
from jobs.model.sources import PubSub

PANEL = "Work"

lineage_app = typer.Typer(help="The lives of the queries: list them, or start a new one.", cls=PlatformGroup)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (run, land, backfill, audit, collect):
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
    there(settings.database_url)
    if isinstance(known.source, PubSub) and not dry_run:
        _land(pipeline, pipelines)
    argv = [pipeline]
    argv += [flag for flag, on in (("--close", close), ("--bounded", bounded), ("--dry-run", dry_run)) if on]
    argv += ["--max-files", str(max_files)] if max_files else []
    argv += ["--master", master] if master else []
    for file in pipelines or []:
        argv += ["--pipelines", str(file.resolve())]

    from jobs import stream  # with it comes Spark, which no other command needs

    give(stream.main(argv), as_json)


def land(pipeline: PipelineName, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """Pull a pipeline's Pub/Sub messages, write them to its inbox, and only then acknowledge them. No Spark."""
    declared(pipeline, pipelines)
    there(settings.database_url)
    give(_land(pipeline, pipelines), as_json)


def _land(pipeline: str, pipelines: list[Path] | None) -> Report:
    from jobs import land as job

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
    argv += ["--master", master] if master else []
    for file in pipelines or []:
        argv += ["--pipelines", str(file.resolve())]

    from jobs import backfill as job  # with it comes the database's driver, which help and completion do without

    give(job.main(argv), as_json)


def audit(
    grace: Annotated[
        int, typer.Option(help="Minutes without a sign of life after which unfinished work counts as left behind.")
    ] = 15,
    as_json: Json = False,
) -> None:
    """Check the log: every record has one fate, no batch was left behind, each output has read what was received."""
    from jobs import audit as auditor

    report = auditor.examine(grace)
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
    """Let record ids go that are older than the dedup horizon; says what went. The DAG collect does it hourly."""
    from jobs import collect as collector

    there(settings.database_url)
    give(collector.main([pipeline] if pipeline else []), as_json)


@lineage_app.command("list")
def list_lineages(as_json: Json = False) -> None:
    """Each life of each query, with its state, its epoch and its last batch."""
    from jobs.commitlog import views

    give(read(lambda conn: views.rows(conn, "lineages")), as_json, empty="no query has run yet")


@lineage_app.command("new")
def new_lineage(
    target: Annotated[str, typer.Argument(metavar="INSTANCE/QUERY", help="Like flights/receive.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this it only says what it would do.")] = False,
    as_json: Json = False,
) -> None:
    """Close the life of a query whose checkpoint is lost or damaged; the next one starts from the log."""
    from jobs import lineage

    there(settings.database_url)
    give(lineage.new(target, yes=yes), as_json)
