"""The command `init`: makes a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onlyonce import tables
from onlyonce.cli.shell import Json
from onlyonce.model.report import Report

PANEL = "The platform"


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(rich_help_panel=PANEL)(init)


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the project, its package and its pipeline: like shop.")
    ],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A sample of the input: JSON lines, CSV, Parquet or Avro."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a project in a new folder: a declaration, a transform, its test, sample input, DAGs, a compose file.

    With a sample, its columns and types are declared, and guesses of record id and event time have their reason beside
    them.
    """
    from onlyonce.scaffold import project  # with it comes pyarrow, which no help needs

    written = project.make(name, Path.cwd(), source)
    if as_json:
        found = Report(
            f"{name}: made", "", {"folder": str(Path.cwd() / name)}, {"files": [{"file": str(f)} for f in written]}
        )
        typer.echo(tables.as_json(found))
        return
    out = tables.console()
    for path in written:
        out.print(f"  {path.relative_to(Path.cwd())}", style="dim", markup=False)
    out.print(f"{name}: made. Next: cd {name} && onlyonce run {name}", style="bold", markup=False)
