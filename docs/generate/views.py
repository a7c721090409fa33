"""The page of the views: what `sql/views` says of each with COMMENT ON, which is what `\\d+` shows in the database
too."""

from __future__ import annotations

from docs.generate.sql_comments import comments
from docs.generate.table_cells import cell

HEAD = """# Views

For people, in the schema `onlyonce` of the platform's database. `onlyonce sql "select …"` asks them, and so does any client
that logs in as `onlyonce_reader`, who can change nothing. The tables behind them are private and may change.
"""


def commented(sql: str) -> dict[str, tuple[str, dict[str, str]]]:
    """By view: what it is, and by column what that is, in the order of the files."""
    views: dict[str, tuple[str, dict[str, str]]] = {}
    for name, text in comments(sql, "onlyonce").items():
        view, _, column = name.partition(".")
        if column:
            views[view][1][column] = text
        else:
            views[view] = (text, {})
    return views


def page(sql: str) -> str:
    """Return the page, from the script of the views."""
    parts = [HEAD]
    for view, (text, columns) in sorted(commented(sql).items()):
        rows = [f"| `{column}` | {cell(meaning)} |" for column, meaning in columns.items()]
        parts += [f"## {view}\n", f"{text}\n", "| column | is |\n|---|---|", *rows, ""]
    return "\n".join(parts)
