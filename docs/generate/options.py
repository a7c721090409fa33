"""Turn the options in the docstrings of declarations into tables: an extension of Griffe, with which mkdocstrings reads
the code.

A docstring names each option at the begin of a line and explains it in an indented block. The table adds the type and
the default, which are in the code.
"""

from __future__ import annotations

import re
from dataclasses import MISSING
from datetime import timedelta
from typing import Any

from griffe import Extension

import onlyonce

SEVERAL = re.compile(r"Several\[(\w+)\]")
OPTION = re.compile(r"^(?P<names>[a-z_]+(?:, [a-z_]+)*)(?:  +(?P<text>\S.*))?$")


def options(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text before the options, and the meaning of each option by its name."""
    before: list[str] = []
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in docstring.split("\n"):
        if (begins := OPTION.match(line)) and (begins["text"] or found or "," in begins["names"]):
            names = begins["names"].split(", ")
            found |= {name: [begins["text"] or ""] for name in names}
        elif names and line.startswith("  "):
            for name in names:
                found[name].append(line.strip())
        else:
            names = []
            before.append(line)
    return "\n".join(before).strip(), {name: " ".join(text).strip() for name, text in found.items()}


class OptionTables(Extension):
    """Write the options in the docstring of each declaration as a table."""

    def on_class(self, *, cls: Any, **_: Any) -> None:
        """Called by Griffe once a class and its attributes are known."""
        if cls.docstring is None:
            return
        before, found = options(cls.docstring.value)
        declared = getattr(onlyonce, cls.name, None)
        if declared and (rows := [_row(declared, cls.members.get(name), name, text) for name, text in found.items()]):
            head = "| option | is |\n|---|---|"
            cls.docstring.value = f"{before}\n\n{head}\n" + "\n".join(rows)


def _row(declared: Any, attribute: Any, name: str, text: str) -> str:
    kind = str(attribute.annotation) if attribute is not None and attribute.annotation else ""
    kind = SEVERAL.sub(r"\1 | tuple[\1, ...]", kind)
    default = _default(declared, name)
    shown = f"`{name}`" + (f" = `{default}`" if default else "") + (f"<br>{kind}" if kind else "")
    return f"| {_cell(shown)} | {_cell(text)} |"


def _default(declared: Any, name: str) -> str:
    option = declared.__dataclass_fields__.get(name)
    if option is None or (option.default is MISSING and option.default_factory is MISSING):
        return ""
    value = option.default if option.default_factory is MISSING else option.default_factory()
    return _length(value) if isinstance(value, timedelta) else f"{value!r}"


def _length(value: timedelta) -> str:
    """`timedelta(hours=1)`, as a declaration writes it."""
    for unit, seconds in (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1)):
        if value and value % timedelta(seconds=seconds) == timedelta(0):
            return f"timedelta({unit}={value // timedelta(seconds=seconds)})"
    return "timedelta(0)"


def _cell(text: str) -> str:
    return re.sub(r"<(?!br>)", "&lt;", text.replace("|", "\\|"))
