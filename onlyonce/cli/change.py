"""The commands for a changed pipeline: plan, release."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import typer

from onlyonce import settings
from onlyonce.cli.checking import checked
from onlyonce.cli.shell import asking, declared, give, progress, there
from onlyonce.declare import loading
from onlyonce.model.errors import Refused

PANEL = "Change"


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (plan, release):
        app.command(rich_help_panel=PANEL)(command)


@asking("plan")
def plan(given: Any, words: list[str], as_json: bool) -> None:
    """Compare what is declared with what has run: what each difference needs, before anything runs."""
    if given.pipeline:
        declared(given.pipeline, given.pipelines)
    there(settings.database_url)
    if not given.apply:  # what is applied are runs, each of which checks
        known = loading.load(given.pipelines)
        checked([known[given.pipeline]] if given.pipeline else list(known.values()))

    from onlyonce.operate.change import plan as planner  # with it come the declared functions, and Spark's modules

    # What is applied are runs, which tell of themselves.
    with nullcontext() if given.apply else progress("compares what is declared with what has run"):
        report = planner.main(words)
    give(report, as_json)


@asking("release")
def release(given: Any, words: list[str], as_json: bool) -> None:
    """Take invalid or remnant rows in again after a correction, each set of rows once."""
    if given.invalid == given.remnant:
        raise Refused("which rows shall be released?", hint="say --invalid or --remnant, one of the two")
    declared(given.pipeline, given.pipelines)
    there(settings.database_url)

    from onlyonce.outputs.releases import release as releaser  # with it comes Spark

    give(releaser.main(words), as_json)
