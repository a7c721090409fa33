"""The command `settings`: shows every setting, its value and where the value comes from, or makes the reference page of
settings."""

from __future__ import annotations

from typing import Annotated

import typer

from onlyonce.cli.shell import Json, give

PANEL = "The platform"

PAGE = """# Settings

Made by `onlyonce settings --markdown` from `onlyonce/settings/configuration.py`; a test holds the two together.

A setting is an environment variable or a line of a TOML file. The variable wins. The file is the one that
`ONLYONCE_CONFIG` names, else `onlyonce.toml` in the working folder:

```toml
home = "/var/lib/onlyonce"
pipelines = ["pipelines.py"]     # paths are meant from the file's folder
keep_units_days = 30
```

Airflow's processes and `spark-submit` have working folders of their own: set `ONLYONCE_CONFIG` there. Secrets belong
into the environment, or in Airflow into the connection. `onlyonce settings` shows every setting, its value and where it
comes from, secrets masked. A value that is not allowed, and a name in the file that is no setting, is an error of three
lines before anything is read or written. An empty variable counts as not set. An executor reads no setting: what it
needs travels to it.

| in the file | variable | allowed | default | meaning |
|---|---|---|---|---|
{rows}

A declaration may name variables of its own for secrets (`connection=`, `authorization=`, Kafka's `env:`); those are not
listed here. For tests of the platform itself there are `ONLYONCE_FAILPOINTS`, `ONLYONCE_FAILPOINT_DIR`,
`ONLYONCE_FAILPOINT_RECORD` and `ONLYONCE_FAILPOINT_STRIKES` (`onlyonce/failpoints.py`); never set them elsewhere.
"""


def add_to(app: typer.Typer) -> None:
    """Register the command of this module."""
    app.command(rich_help_panel=PANEL)(settings)


def settings(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page of the reference: no values of this place.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Every setting with its value, and where that comes from: the environment, a file, or the default.

    Secrets are masked.
    """
    from onlyonce.settings import configuration  # with it comes pydantic, which help and completion do without

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
    """docs/reference/settings.md."""
    from onlyonce.settings import configuration

    rows = [
        f"| `{name}` | `{variable}` | {configuration.allowed(name)} | {_code(configuration.default_of(name))} | "
        f"{field.description} |"
        for (name, variable), field in zip(configuration.VARIABLES.items(), configuration.FIELDS.values(), strict=True)
    ]
    return PAGE.replace("{rows}", "\n".join(rows))


def _code(default: str) -> str:
    return f"`{default}`" if default else ""
