"""The page of the command line, from the application itself: what `onlyonce COMMAND --help` says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docs.generate.table_cells import cell

HEAD = """# Command line

`onlyonce COMMAND --help` says the same at the shell. [What you want, and the command for it](commands.md) begins at the task.
Commands that read or change something take `--json`; standard output then has only JSON.
Without it, the first line on standard error names the database of the commit log that a command asks: host, port and name.
"""


def page(command: Any) -> str:
    """The page, from the application as a Click command."""
    import click

    parts, panel = [HEAD], None
    for name, part in _commands(command, click.Context(command, info_name="onlyonce")):
        if (now := getattr(part, "rich_help_panel", None)) and now != panel and isinstance(now, str):
            panel = now
            parts.append(f"## {panel}\n")
        parts.append(_one(name, part))
    return "\n".join(parts)


def _commands(group: Any, context: Any) -> Iterator[tuple[str, Any]]:
    """Each command with its whole name; those of a group instead of the group."""
    import click

    for name in group.list_commands(context):
        part = group.get_command(context, name)
        if part.hidden:
            continue
        inner = click.Context(part, info_name=name, parent=context)
        if hasattr(part, "list_commands"):
            yield from _commands(part, inner)
        else:
            yield inner.command_path, part


def _one(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([name, *(_argument(a) for a in arguments), *(["[OPTIONS]"] if options else [])])
    rows = [f"| `{_argument(a)}` | {_cell(getattr(a, 'help', '') or '')} |" for a in arguments]
    rows += [f"| `{_option(o)}` | {_cell(o.help or '')}{_default(o)} |" for o in options]
    table = ["", "| argument or option | is |", "|---|---|", *rows] if rows else []
    return "\n".join([f"### {name}\n", f"    {usage}\n", _cell((command.help or "").replace("\f", "")), *table, ""])


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).strip("[].")
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _default(option: Any) -> str:
    value = option.default
    shown = option.is_flag or value is None or value == () or callable(value)
    return "" if shown else f" By default `{value}`."


def _cell(text: str) -> str:
    return cell(text).replace("[bold]", "**").replace("[/bold]", "**")
