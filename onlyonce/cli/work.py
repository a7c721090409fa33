"""The commands that do something to the data, or judge it: run, land, deliver, backfill, finalize, audit, collect,
maintain, sweep, lineage."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onlyonce import asked, settings, tables
from onlyonce.cli.shell import Json, PlatformGroup, asking, declared, give, progress, read, started_database, there
from onlyonce.cli.watched import watched
from onlyonce.declare.sources.sources import PubSub

PANEL = "Work"

lineage_app = typer.Typer(help="The lives of the queries: list them, or start a new one.", cls=PlatformGroup)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (run, land, deliver, backfill, finalize, audit, collect, maintain, sweep):
        app.command(rich_help_panel=PANEL)(command)
    app.add_typer(lineage_app, name="lineage", rich_help_panel=PANEL)


@asking("run")
def run(given: Any, words: list[str], as_json: bool) -> None:
    """Take in what is there and write what is due, exactly once: what the DAG PIPELINE_stream does.

    Messages of Pub/Sub are landed first (onlyonce land), but for a dry run.
    """
    known = declared(given.pipeline, given.pipelines)  # a wrong name is refused before Spark starts
    started_database()
    if isinstance(known.source, PubSub) and not given.dry_run:
        from onlyonce.sources import land as before

        with watched(f"land-{given.pipeline}"):
            before.main(asked.words("land", vars(given)))

    from onlyonce.run import stream  # with it comes Spark, which no other command needs

    with watched(f"run-{given.pipeline}"):
        report = stream.main(words)
    give(report, as_json)


@asking("deliver")
def deliver(given: Any, words: list[str], as_json: bool) -> None:
    """Send what waits in the outbox to webhooks and BigQuery: what the task deliver of the DAG PIPELINE_stream does."""
    there(settings.database_url)

    # With it comes the database's driver, which help and completion do without.
    from onlyonce.sinks.outbox import deliver as job

    give(job.main(words), as_json)


@asking("land")
def land(given: Any, words: list[str], as_json: bool) -> None:
    """Pull a pipeline's Pub/Sub messages, write them to its inbox, and only then acknowledge them. No Spark."""
    declared(given.pipeline, given.pipelines)
    there(settings.database_url)

    from onlyonce.sources import land as job

    with watched(f"land-{given.pipeline}"):
        report = job.main(words)
    give(report, as_json)


@asking("backfill")
def backfill(given: Any, words: list[str], as_json: bool) -> None:
    """Recompute closed windows, now with their late rows, and replace the old results: what the DAG PIPELINE_backfill
    does."""
    declared(given.pipeline, given.pipelines)  # a wrong name is refused before anything starts
    there(settings.database_url)

    from onlyonce.outputs import backfill as job

    with watched(f"backfill-{given.pipeline}"):
        report = job.main(words)
    give(report, as_json)


@asking("audit")
def audit(given: Any, words: list[str], as_json: bool) -> None:
    """Check the log: every record has one fate, no batch was left unfinished, each output has read what was
    received."""
    there(settings.database_url)

    from onlyonce.operate import audit as auditor

    with progress("reads the log") as show:
        report = auditor.examine(given.grace, data=given.data, watch=show)
    give(report, as_json)
    if report.warnings:
        tables.show_error(auditor.broken(report), tables.console(stderr=True))
        raise typer.Exit(1)


@asking("collect")
def collect(given: Any, words: list[str], as_json: bool) -> None:
    """Remove record ids that are older than the dedup horizon, and say what was removed.

    The DAG onlyonce_collect does it hourly.
    """
    from onlyonce.operate import collect as collector

    there(settings.database_url)
    with progress("lets go what is kept long enough"):
        report = collector.main(words)
    give(report, as_json)


@asking("maintain")
def maintain(given: Any, words: list[str], as_json: bool) -> None:
    """Compact the small files of old batches and closed windows in Delta tables, and remove what no reader needs: what
    the DAG onlyonce_maintain does."""
    from onlyonce.operate import maintain as maintainer

    there(settings.database_url)
    with progress("compacts closed windows"):
        report = maintainer.main(words)
    give(report, as_json)


@asking("finalize")
def finalize(given: Any, words: list[str], as_json: bool) -> None:
    """Give the files of committed batches their final names: what the DAG onlyonce_finalize and the streams' own task
    do."""
    from onlyonce.sinks.files import finalize as finalizer

    there(settings.database_url)
    give(finalizer.main(words), as_json)


@asking("sweep")
def sweep(given: Any, words: list[str], as_json: bool) -> None:
    """List temporary files of sharded outputs that no attempt can need any more, and remove the old ones."""
    from onlyonce.sinks.files import sweep as sweeper

    there(settings.database_url)
    give(sweeper.main(words), as_json)


@lineage_app.command("list")
def list_lineages(as_json: Json = False) -> None:
    """Each life of each query, with its state, its epoch and its last batch."""

    give(read(lambda views: views.rows("lineages")), as_json, empty="no query has run yet")


@lineage_app.command("new")
def new_lineage(
    target: Annotated[str, typer.Argument(metavar="INSTANCE/QUERY", help="Like flights/receive.")],
    from_kept: Annotated[
        bool,
        typer.Option(
            "--from-kept",
            help="Where old records are removed (keep_events), begin with those that are kept; of a new output too.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this it only says what it would do.")] = False,
    as_json: Json = False,
) -> None:
    """Close the life of a query whose checkpoint is lost or damaged; the next one starts from the log."""
    from onlyonce.run import lineage

    there(settings.database_url)
    give(lineage.new(target, yes=yes, from_kept=from_kept), as_json)
