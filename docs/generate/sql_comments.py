"""Read the comments of tables, views and columns from SQL scripts (COMMENT ON)."""

from __future__ import annotations

import re

COMMENT = re.compile(r"COMMENT ON (?:TABLE|VIEW|COLUMN) (\w+)\.([\w.\"]+)\s+IS\s+'((?:[^']|'')*)';")


def comments(sql: str, schema: str) -> dict[str, str]:
    """Return the comments of a schema's relations and columns, by their names, in the order of the script."""
    return {name.replace('"', ""): text.replace("''", "'") for of, name, text in COMMENT.findall(sql) if of == schema}
