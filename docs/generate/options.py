"""How declarations say their options becomes a table: an extension of Griffe, by which mkdocstrings reads the code.

Their docstrings name each option at the begin of a line and say its meaning in an indented block beside it. The table adds the
type and the default, which are in the code.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

OPTION = re.compile(r"^(?P<names>[a-z_]+(?:, [a-z_]+)*)(?:  +(?P<text>\S.*))?$")


def options(docstring: str) -> tuple[str, dict[str, str]]:
    """What stands before the options, and the meaning of each by its name."""
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
    """Writes the docstring of each declaration anew, with its options as a table."""

    def on_class(self, *, cls: Any, **_: Any) -> None:
        """Called by Griffe once a class and its attributes are known."""
        if cls.docstring is None:
            return
        before, found = options(cls.docstring.value)
        if rows := [_row(cls.members.get(name), name, text) for name, text in found.items()]:
            head = "| option | type | by default | is |\n|---|---|---|---|"
            cls.docstring.value = f"{before}\n\n{head}\n" + "\n".join(rows)


def _row(attribute: Any, name: str, text: str) -> str:
    kind = str(attribute.annotation) if attribute is not None and attribute.annotation else ""
    return f"| `{name}` | {_code(kind)} | {_code(_default(attribute))} | {_cell(text)} |"


def _default(attribute: Any) -> str:
    value = str(attribute.value) if attribute is not None and attribute.value is not None else ""
    if value.startswith("field("):
        inside = re.search(r"default(?:_factory)?=([^,]+(?:\([^)]*\))?)", value)
        return inside[1].rstrip(")") + (")" if "(" in inside[1] else "") if inside else ""
    return value


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
