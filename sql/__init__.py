"""Named queries. A file `sql/<name>.sql` holds queries, each under a line `-- query_name --`.

`queries("units")["claim"]` is the text of one; the line of comment below the name says what it is for.
Parameters are SQLAlchemy's (`:lineage`). Standard library only.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def queries(name: str) -> dict[str, str]:
    """The queries of one file, by name; raises FileNotFoundError."""
    parts = _NAME.split((FOLDER / f"{name}.sql").read_text())
    return dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))
