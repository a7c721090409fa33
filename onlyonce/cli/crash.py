"""The commands that test a user's pipeline: `crashtest` kills its runs at every step, `conform` tests its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from onlyonce import tables
from onlyonce.cli.shell import Json, PipelineFiles, PipelineName, asking, declared, give, note

PANEL = "Work"


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (crashtest, conform):
        app.command(rich_help_panel=PANEL)(command)


@asking("conform")
def conform(given: Any, words: list[str], as_json: bool) -> None:
    """Test a pipeline's source: read at once, in batches, and again, it must give the same records with the same ids.

    Exit code 0: it does.
    """
    declared(given.pipeline, given.pipelines)

    from onlyonce.testing import conform as job  # with it comes Spark

    found = job.main(words)
    give(found, as_json)
    if found.warnings:
        raise typer.Exit(1)


def crashtest(
    pipeline: PipelineName,
    folder: Annotated[
        Path,
        typer.Option(
            "--input", metavar="DIR", exists=True, file_okay=False, help="Files as in the inbox; a copy is read."
        ),
    ],
    points: Annotated[
        list[str] | None,
        typer.Option(
            "--points",
            metavar="POINT[:NTH]",
            help="Kill here only, at its first or nth pass; may be repeated, or 'a,b'.",
        ),
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="This many of the kills, by chance.")] = None,
    seed: Annotated[int, typer.Option(help="Which pass of each point, and which sample.")] = 1,
    chain: Annotated[
        int,
        typer.Option(min=1, help="How many kills one copy of the input goes through before the results are compared."),
    ] = 6,
    every: Annotated[bool, typer.Option("--all", help="Go on after the first difference.")] = False,
    max_files: Annotated[int | None, typer.Option(min=1, help="How many files one batch takes.")] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(metavar="OUTPUT.COLUMN", help="Don't compare this column; may be repeated.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the scratch folder, to look into.")] = False,
    master: Annotated[str, typer.Option(help="Spark's master: local[…] only.")] = "local[2]",
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Kill a pipeline at every step, over a copy of real input, and say whether its results stayed the same.

    Exit code 0: they did.
    """
    declared(pipeline, pipelines)  # a wrong name is refused before anything starts

    from onlyonce.local.processes import sigterm_like_ctrl_c
    from onlyonce.testing.crashtest import play, report  # with them come Delta and the database's driver

    named = [part for text in points or [] for part in text.split(",") if part]
    asked = report.Asked(
        pipeline, folder, [file.resolve() for file in pipelines or []], named, sample, seed, chain, every, max_files,
        leave_out or [], master, keep,
    )  # fmt: skip
    with sigterm_like_ctrl_c(), _shown() as tell:  # its server must not go on alone
        found = play.play(asked, tell)
    give(found, as_json)
    if not found.facts["all held"]:
        raise typer.Exit(1)


@contextmanager
def _shown() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal; in a log one line for each step."""
    out = tables.console(stderr=True)
    if not out.is_terminal:
        yield lambda done, of, text: note(f"{done} of {of}: {text}" if of else text)
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        BarColumn(20),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, transient=True) as progress:
        bar = progress.add_task("", total=None)

        def tell(done: int, of: int, text: str) -> None:
            # Steps beside the kills have no count of their own: the bar stays as it is.
            if of:
                progress.update(bar, completed=done, total=of, description=text)
            else:
                progress.update(bar, description=text)

        yield tell
