"""The command line `onlyonce`. `app` is the entry point.

The commands are in `platform` (init, up, down, demo, feed, settings), `work` (run, deliver, finalize, audit, reset),
`checking` (check, crashtest, conform, plan, reprocessing), `operate` (doctor, pause, resume, and everything that only
reads). Errors of the platform are printed as three lines on standard error, and the process ends with the error's exit
code; `onlyonce/core/errors.py` lists them. Standard output has only the result, so `--json` may be piped.
"""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from onlyonce.cli import checking, operate, platform, work
from onlyonce.cli.shell import PlatformGroup

HELP = """Exactly-once pipelines on Airflow, Spark, PostgreSQL and Delta.

Start with [bold]onlyonce demo[/bold], or your own: [bold]init[/bold] and [bold]run[/bold]. Then look: \
[bold]status[/bold], [bold]sql[/bold], [bold]late[/bold], [bold]audit[/bold].

Exit codes: 0 done; 1 the audit, the doctor, the crash test or the conformance suite \
found something, or no such record was seen; 64 the request is wrong; 69 another driver is running; \
70 a person must look; 75 run the same command again; 130 Ctrl-C.
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
    """Take the options of every command."""


platform.add_init_commands(app)
platform.add_platform_commands(app)
work.add_work_commands(app)
checking.add_crash_commands(app)
checking.add_check_commands(app)
checking.add_change_commands(app)
operate.add_operate_commands(app)
operate.add_look_commands(app)
platform.add_settings_commands(app)
