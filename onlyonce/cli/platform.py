"""The commands about the platform itself: init, up, down, demo, feed, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from onlyonce import console
from onlyonce import settings as onlyonce_settings
from onlyonce.api.sources import Growing, Kafka, PubSub
from onlyonce.cli.shell import Json, PipelineFiles, PipelineName, give, there
from onlyonce.core.errors import Refused
from onlyonce.core.locations import on_disk
from onlyonce.core.runs import Report

PANEL = "The platform"


def add_init_commands(app: typer.Typer) -> None:
    """Register the command `init`."""
    app.command(rich_help_panel=PANEL)(init)


def init(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The name of the project, its package and its pipeline, for example shop."),
    ],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A sample of the input: JSON lines, CSV, Parquet or Avro."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a project in a new or empty folder: declaration, transform, its test, sample input, DAGs, a compose file.

    With a sample, its columns and types are declared, and guesses of record id, event time and watermark delay are
    commented with their reason. The sample is copied into the project's inbox, so the first run takes it in.
    """
    from onlyonce.scaffold import project  # imports pyarrow, which no help needs

    written, remarks = project.make(name, Path.cwd(), source)
    if as_json:
        found = Report(
            f"{name}: made",
            "",
            {"folder": str(Path.cwd() / name)},
            {"files": [{"file": str(f)} for f in written], "remarks": [{"remark": remark} for remark in remarks]},
        )
        typer.echo(console.as_json(found))
        return
    out = console.console()
    for path in written:
        out.print(f"  {path.relative_to(Path.cwd())}", style="dim", markup=False)
    for remark in remarks:
        out.print(remark, markup=False)
    out.print(f"{name}: made. Next: cd {name} && {_up()}onlyonce run {name}", style="bold", markup=False)


def _up() -> str:
    """Return the command that starts a platform, to put before another one; empty if a platform is up."""
    try:
        there(onlyonce_settings.database_url)
    except Refused:
        return "onlyonce up --no-airflow && "
    return ""


# The settings: every setting with its value and the value's origin, or the reference page of settings.


PAGE = """# Settings

Made by `onlyonce settings --markdown` from `onlyonce/configuration.py`; a test holds the two together.

A setting is an environment variable or a line of a TOML file. The variable wins. The file is the one that
`ONLYONCE_CONFIG` names, else `onlyonce.toml` in the working folder:

```toml
home = "/var/lib/onlyonce"
pipelines = ["pipelines.py"]     # paths are meant from the file's folder
keep_units_days = 30
```

Airflow's processes and `spark-submit` have working folders of their own: set `ONLYONCE_CONFIG` there. Secrets belong
into the environment, or in Airflow into the connection. `onlyonce settings` shows every setting, its value and where it
comes from, secrets masked. A value that is not allowed, and a name in the file that is not a setting, is an error of
three lines before anything is read or written. An empty variable counts as not set. An executor reads no setting: what
it needs travels to it.

| in the file | variable | allowed | default | meaning |
|---|---|---|---|---|
{rows}

A declaration may name variables of its own for secrets (`connection=`, `authorization=`, Kafka's `env:`); those are not
listed here. For tests of the platform itself there are `ONLYONCE_FAILPOINTS`, `ONLYONCE_FAILPOINT_DIR`,
`ONLYONCE_FAILPOINT_RECORD` and `ONLYONCE_FAILPOINT_STRIKES` (`onlyonce/failpoints.py`); never set them elsewhere.
"""


def add_settings_commands(app: typer.Typer) -> None:
    """Register the command `settings`."""
    app.command(rich_help_panel=PANEL)(settings)


def settings(
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown", help="Print the reference page of all settings, without the values of this machine."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show every setting with its value, and where that comes from: the environment, a file, or the default.

    Secrets are masked.
    """
    from onlyonce import configuration  # imports pydantic, which help and completion do without

    if markdown:
        typer.echo(page(), nl=False)
        return
    rows = [
        {
            "setting": one.setting,
            "value": one.value,
            "from": one.origin,
            "variable": one.variable,
            "meaning": one.meaning,
        }
        for one in configuration.shown()
    ]
    give(rows, as_json)


def page() -> str:
    """Return the text of docs/reference/settings.md."""
    from onlyonce import configuration

    rows = [
        f"| `{name}` | `{variable}` | {configuration.allowed(name)} | {_code(configuration.default_of(name))} | "
        f"{field.description} |"
        for (name, variable), field in zip(configuration.VARIABLES.items(), configuration.FIELDS.values(), strict=True)
    ]
    return PAGE.replace("{rows}", "\n".join(rows))


def _code(default: str) -> str:
    return f"`{default}`" if default else ""


# Start and stop, demo and feed.


def add_platform_commands(app: typer.Typer) -> None:
    """Register the commands `up`, `down`, `demo` and `feed`."""
    for command in (demo, up, down, feed):
        app.command(rich_help_panel=PANEL)(command)


def up(
    no_airflow: Annotated[
        bool, typer.Option("--no-airflow", help="Only PostgreSQL and its tables: enough for runs at the shell.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Serve this project's DAGs alone, though another's were served until now."),
    ] = False,
) -> None:
    """Start PostgreSQL, make the tables of a new database, start Airflow. Quick when all of it runs."""
    from onlyonce.local import platform, postgres

    out = console.console(stderr=True)
    home = onlyonce_settings.home()
    if no_airflow:
        runs = postgres.is_running()
        platform.database(out)
        if runs:
            platform.say(f"PostgreSQL of the platform in {home} runs already", out)
        _remark(out, airflow=False)
        return
    runs = platform.is_up()
    login = platform.up(out, replaces=replace)
    if runs:
        platform.say(f"the platform in {home} runs already", out)
    _remark(out, airflow=True)
    console.console().print(str(login), markup=False, soft_wrap=True)


def _remark(out: Console, *, airflow: bool) -> None:
    """Say what this shell names and the running platform does not follow: variables, and pipelines of another
    project."""
    from onlyonce.local import airflow_server, platform

    for remark in platform.without_effect(airflow=airflow):
        platform.say(f"! {remark}", out)
    if airflow and (unread := airflow_server.unread()):
        console.show_error(unread, out)


def down() -> None:
    """Ask continuous runs to stop, then stop all that `up` started. No process keeps running, and nothing is lost."""
    from onlyonce.local import platform

    platform.down(console.console(stderr=True))


def demo(
    stop: Annotated[bool, typer.Option("--exit", help="Stop the platform at the end, instead of at Ctrl-C.")] = False,
) -> None:
    """Start everything, feed real data, run both pipelines through Airflow, show what came of each record."""
    from onlyonce.local import demo as flow

    raise typer.Exit(flow.main(leave=stop))


def feed(
    pipeline: PipelineName,
    duplicates: Annotated[float, typer.Option(metavar="NUMBER", help="Re-deliveries for each record.")] = 0.05,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Seed of the random choice of re-deliveries (and of invented events).")
    ] = 1,
    files: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Number of files; by default as many as the data set has.")
    ] = None,
    records: Annotated[int | None, typer.Option(metavar="NUMBER", help="Most records to send; by default all.")] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            min=0.001,
            help="Records per second, for all inputs except whole files; by default as fast as possible.",
        ),
    ] = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Put a data set into a pipeline's source, in arrival order with re-deliveries: files, lines that are appended to
    growing files, or messages of Pub/Sub or Kafka.

    Into an inbox the same call again adds nothing; a topic gets all of it again, as new messages.
    """
    from dataclasses import asdict

    from onlyonce import settings
    from onlyonce.api import load as declarations
    from onlyonce.local import feed as local_feed
    from onlyonce.local import feed_messages

    declared = declarations.load().get(pipeline)
    if declared and isinstance(declared.source, PubSub):
        sent = feed_messages.feed_pubsub(
            pipeline, declared.source, duplicates=duplicates, seed=seed, files=files, records=records, rate=rate
        )
        give(Report(f"{pipeline}: published", "", asdict(sent)), as_json)
        return
    if declared and isinstance(declared.source, Kafka):
        written = feed_messages.feed_kafka(
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
        onlyonce_settings.make_folder(settings.home(), ("inbox",))
    if declared and isinstance(declared.source, Growing):
        grown = local_feed.feed_growing(
            pipeline, on_disk(inbox), duplicates=duplicates, seed=seed, files=files, records=records, rate=rate
        )
        give(Report(f"{pipeline}: appended", "", {**asdict(grown), "inbox": str(inbox)}), as_json)
        return
    fed = local_feed.feed_files(pipeline, inbox, duplicates=duplicates, seed=seed, files=files, records=records)
    give(Report(f"{pipeline}: in the inbox", "", {**asdict(fed), "inbox": str(inbox)}), as_json)
