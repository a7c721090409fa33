"""The commands that try a user's own code: check, replay."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onlyonce import logs, settings
from onlyonce.cli.shell import (
    InstanceName,
    Json,
    Limit,
    PipelineFiles,
    declared,
    give,
    there,
)
from onlyonce.cli.watched import quiet
from onlyonce.declare import loading
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.report import Report
from onlyonce.model.run.isolation import refusal

PANEL = "Change"
Master = Annotated[
    str | None, typer.Option(help="Spark's master; by default local[1] for a check, ONLYONCE_MASTER else.")
]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (check, replay):
        app.command(rich_help_panel=PANEL)(command)


def check(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="A declared pipeline; by default all.")
    ] = None,
    master: Master = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Check declarations, types, functions and sinks before anything runs.

    Starts a local Spark only where something has changed.
    """
    chosen = [declared(pipeline, pipelines)] if pipeline else list(loading.load(pipelines).values())
    asked = checked(chosen, master)
    rows = [{"pipeline": one.name, "outputs": len(one.outputs), "asked Spark": one.name in asked} for one in chosen]
    give(
        Report("all that can be known before a run is right", "check", {"pipelines": len(rows)}, {"checked": rows}),
        as_json,
    )


def checked(chosen: list[Pipeline], master: str | None = None) -> list[str]:
    """Check pipelines; gives those for which Spark was asked. Raises Refused for the first that is wrong."""
    from onlyonce.check import look  # with it come Spark's modules and the database's driver

    logs.configure(job="check")
    with quiet("checks declarations and functions") as say:

        def session() -> Any:
            from onlyonce.session import session as sessions

            say("starts Spark: a function or declaration has changed")
            return sessions.start("onlyonce check", master or "local[1]")

        found = {one.name: look.check(one, session) for one in chosen}
    for one in found.values():
        if one.wrong:
            raise refusal(one.wrong)
    return [name for name, one in found.items() if one.asked_spark]


def replay(
    pipeline: InstanceName,
    batch: Annotated[
        int, typer.Argument(min=0, help="The number of a committed batch of receive, as `onlyonce batches` has it.")
    ],
    output: Annotated[str | None, typer.Option(help="Only this output; by default all.")] = None,
    limit: Limit = 20,
    master: Master = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Run the functions over the rows of one committed batch and show what they give. Writes nothing."""
    known = declared(pipeline, pipelines)
    there(settings.database_url)
    from onlyonce.check import replay as job  # with it comes Spark

    logs.configure(job="replay")
    with quiet("runs the functions over the batch"):
        report = job.replay(known, pipeline, batch, output, limit, master)
    give(report, as_json)
