"""The command line `onlyonce`.

`app` is the entry point. The commands are in `begin` (init), `platform` (up, down, demo, feed), `work` (run, deliver,
finalize, audit, lineage), `crash` (crashtest, conform), `change` (plan, release), `operate` (doctor, pause, resume),
`look` (everything that only reads) and `settings`. Errors of the platform are printed as three lines on standard error,
and the process ends with the error's exit code; `onlyonce/model/errors.py` lists them. Standard output has only the
result, so `--json` may be piped.
"""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from onlyonce.cli import begin, change, checking, crash, look, operate, platform, settings, work
from onlyonce.cli.shell import PlatformGroup

HELP = """Exactly-once pipelines on Airflow, Spark, PostgreSQL and Delta.

Start with [bold]onlyonce demo[/bold], or your own: [bold]init[/bold] and [bold]run[/bold]. Then look: \
[bold]status[/bold], [bold]sql[/bold], [bold]late[/bold], [bold]audit[/bold].

Exit codes: 0 done; 1 the audit, the doctor, the crash test or the conformance suite \
found something, or no such record \
was seen; 64 the request is wrong; 69 another driver is at work; \
70 a person must look; 75 run the same command again.
"""

app = typer.Typer(
    name="onlyonce", help=HELP, cls=PlatformGroup, no_args_is_help=True, rich_markup_mode="rich",
    pretty_exceptions_show_locals=False, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        typer.echo(metadata.version("onlyonce-pipelines"))
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and nothing else.")
    ] = False,
) -> None:
    """The options of every command."""


for part in (begin, platform, work, crash, change, checking, operate, look, settings):
    part.add_to(app)
