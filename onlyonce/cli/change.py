"""The commands about what changes in a living pipeline: plan, release."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from onlyonce import settings
from onlyonce.cli.checking import checked
from onlyonce.cli.shell import Json, PipelineFiles, PipelineName, declared, give, options, progress, there
from onlyonce.declare import loading
from onlyonce.model.errors import Refused

PANEL = "Change"
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this it only says what it would do.")]
Master = Annotated[str | None, typer.Option(help="Spark's master; by default ONLYONCE_MASTER or local[*].")]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (plan, release):
        app.command(rich_help_panel=PANEL)(command)


def plan(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="A declared pipeline; by default all.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do what the changes need: new lives, a run, backfills.")
    ] = False,
    yes: Yes = False,
    master: Master = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Compare what is declared with what has run: what each difference needs, before anything runs."""
    if pipeline:
        declared(pipeline, pipelines)
    there(settings.database_url)
    if not apply:  # what is applied are runs, each of which checks
        checked([declared(pipeline, pipelines)] if pipeline else list(loading.load(pipelines).values()))
    argv = [pipeline] if pipeline else []
    argv += [flag for flag, on in (("--apply", apply), ("--yes", yes)) if on]

    from onlyonce.operate import plan as planner  # with it come the declared functions, and Spark's modules

    # What is applied are runs, which tell of themselves.
    with nullcontext() if apply else progress("compares what is declared with what has run"):
        report = planner.main([*argv, *options(master, pipelines)])
    give(report, as_json)


def release(
    pipeline: PipelineName,
    invalid: Annotated[bool, typer.Option("--invalid", help="Lines that were no record.")] = False,
    remnant: Annotated[bool, typer.Option("--remnant", help="Records from before the dedup horizon.")] = False,
    batch: Annotated[int | None, typer.Option(min=0, help="Only of this receive batch.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only with this text in their reason.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be released; write nothing.")] = False,
    yes: Yes = False,
    master: Master = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Take rows of `invalid` or `remnant` in again after a correction, each set of them once."""
    if invalid == remnant:
        raise Refused("which rows shall be released?", hint="say --invalid or --remnant, one of the two")
    declared(pipeline, pipelines)
    there(settings.database_url)
    argv = [pipeline, "--invalid" if invalid else "--remnant"]
    argv += ["--batch", str(batch)] if batch is not None else []
    argv += ["--reason", reason] if reason else []
    argv += [flag for flag, on in (("--dry-run", dry_run), ("--yes", yes)) if on]

    from onlyonce.outputs import release as releaser  # with it comes Spark

    give(releaser.main([*argv, *options(master, pipelines)]), as_json)
