"""The page of the views: what `sql/views` says of each with COMMENT ON, which is what `\\d+` shows in the database
too."""

from __future__ import annotations

import re

from docs.generate.table_cells import cell

COMMENT = re.compile(r"COMMENT ON (VIEW|COLUMN) onlyonce\.([\w.\"]+)\s+IS\s+'((?:[^']|'')*)';")
HEAD = """# Views

For people, in the schema `onlyonce` of the platform's database. `onlyonce sql "select …"` asks them, and so does any client
that logs in as `onlyonce_reader`, who can change nothing. The tables behind them are private and may change.
"""


def commented(sql: str) -> dict[str, tuple[str, dict[str, str]]]:
    """By view: what it is, and by column what that is, in the order of the files."""
    views: dict[str, tuple[str, dict[str, str]]] = {}
    for kind, name, text in COMMENT.findall(sql):
        view, _, column = name.replace('"', "").partition(".")
        if kind == "VIEW":
            views[view] = (text.replace("''", "'"), {})
        else:
            views[view][1][column] = text.replace("''", "'")
    return views


def page(sql: str) -> str:
    """Return the page, from the script of the views."""
    parts = [HEAD]
    for view, (text, columns) in sorted(commented(sql).items()):
        rows = [f"| `{column}` | {cell(meaning)} |" for column, meaning in columns.items()]
        parts += [f"## {view}\n", f"{text}\n", "| column | is |\n|---|---|", *rows, ""]
    return "\n".join(parts)
