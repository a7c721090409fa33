"""Named queries, and the views. A file `sql/statements/<name>.sql` holds queries, each under a line `-- query_name --`.

`queries("units")["claim"]` is the text of one; the line of comment below the name says what it is for. Parameters are
SQLAlchemy's (`:lineage`). Standard library only. In a wheel the files are data of the package; they can be read from a
zip.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_PACKED = files("onlyonce") / "sql"
FOLDER: Traversable = _PACKED if _PACKED.is_dir() else Path(__file__).parents[2] / "sql"
"""The wheel puts the folder into the package; in a checkout it lies beside it."""
_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def queries(name: str) -> dict[str, str]:
    """The queries of one file, by name; raises FileNotFoundError."""
    parts = _NAME.split((FOLDER / "statements" / f"{name}.sql").read_text())
    return dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))


def views(folder: Traversable = FOLDER) -> str:
    """Return the script that makes all views: the files of `views/` in the order of their names, since views read
    earlier ones."""
    files = sorted((folder / "views").iterdir(), key=lambda file: file.name)
    return "\n".join(file.read_text() for file in files)
