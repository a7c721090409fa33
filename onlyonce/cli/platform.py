"""The commands about the platform itself: up, down, demo, feed."""

from __future__ import annotations

from typing import Annotated

import typer

from onlyonce import tables
from onlyonce.cli.shell import Json, PipelineName, give
from onlyonce.declare.sources.ranges import Growing
from onlyonce.declare.sources.sources import Kafka, PubSub
from onlyonce.model.errors import Refused
from onlyonce.model.report import Report
from onlyonce.model.storage.location import on_disk
from onlyonce.settings import home_folders

PANEL = "The platform"


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (demo, up, down, feed):
        app.command(rich_help_panel=PANEL)(command)


def up(
    no_airflow: Annotated[
        bool, typer.Option("--no-airflow", help="Only PostgreSQL and its tables: enough for runs at the shell.")
    ] = False,
) -> None:
    """Start PostgreSQL, make the tables of a new database, start Airflow. Quick when all of it runs."""
    from onlyonce.local import platform

    if no_airflow:
        platform.database(tables.console(stderr=True))
        return
    login = platform.up(tables.console(stderr=True))
    tables.console().print(str(login), markup=False, soft_wrap=True)


def down() -> None:
    """Stop everything that `up` started. No process stays behind, nothing is lost."""
    from onlyonce.local import platform

    platform.down(tables.console(stderr=True))


def demo(
    stop: Annotated[bool, typer.Option("--exit", help="Stop the platform at the end, instead of at Ctrl-C.")] = False,
) -> None:
    """Start everything, feed real data, run both pipelines through Airflow, show what came of each record."""
    from onlyonce.local import demo as flow

    raise typer.Exit(flow.main(leave=stop))


def feed(
    pipeline: PipelineName,
    duplicates: Annotated[float, typer.Option(help="Re-deliveries for each record.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Which re-deliveries (and which made-up events).")] = 1,
    files: Annotated[int | None, typer.Option(help="How many files; by default the data set's own number.")] = None,
    records: Annotated[int | None, typer.Option(help="How many records at most; by default all.")] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="All but whole files: records a second; by default as fast as it goes."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put a data set into a pipeline's source, in arrival order with re-deliveries: files, lines that are appended to
    growing files, or messages of Pub/Sub or Kafka.

    Into an inbox the same call again adds nothing; a topic gets all of it again, as new messages.
    """
    from dataclasses import asdict

    from onlyonce import settings
    from onlyonce.declare import loading as declarations
    from onlyonce.local.feed import deliver, grow, produce, publish

    declared = declarations.load().get(pipeline)
    if declared and isinstance(declared.source, PubSub):
        sent = publish.feed(
            pipeline, declared.source, duplicates=duplicates, seed=seed, files=files, records=records, rate=rate
        )
        give(Report(f"{pipeline}: published", "", asdict(sent)), as_json)
        return
    if declared and isinstance(declared.source, Kafka):
        written = produce.feed(
            pipeline, declared.source, duplicates=duplicates, seed=seed, files=files, records=records, rate=rate
        )
        give(Report(f"{pipeline}: in the topic", "", asdict(written)), as_json)
        return
    if declared and declared.source.format != "json":
        raise Refused(
            f"a feed writes JSON lines, and {pipeline} reads {declared.source.layout()}",
            hint="feed an inbox of another pipeline, and make your input of its files",
        )
    # The inbox that the declaration names, or the default; `feed` itself refuses a name without data.
    inbox = settings.inbox_location(pipeline, declared.source.inbox if declared else None)
    if inbox == settings.inbox_location(pipeline):
        home_folders.make(settings.home(), ("inbox",))
    if declared and isinstance(declared.source, Growing):
        grown = grow.feed(
            pipeline, on_disk(inbox), duplicates=duplicates, seed=seed, files=files, records=records, rate=rate
        )
        give(Report(f"{pipeline}: appended", "", {**asdict(grown), "inbox": str(inbox)}), as_json)
        return
    fed = deliver.feed(pipeline, inbox, duplicates=duplicates, seed=seed, files=files, records=records)
    give(Report(f"{pipeline}: in the inbox", "", {**asdict(fed), "inbox": str(inbox)}), as_json)
