"""The pages of the reference that the code writes: the command line, the views, the values.

`make spec` writes the pages, which are committed.
"""

from __future__ import annotations

from pathlib import Path

import typer

from docs.generate import commands, values, views
from onlyonce.cli import app
from onlyonce.database import statements

FOLDER = Path(__file__).resolve().parents[1] / "reference"


def pages() -> dict[str, str]:
    """Return each page by the name of its file."""
    return {
        "cli.md": commands.page(typer.main.get_command(app)),
        "views.md": views.page(statements.views()),
        "values.md": values.page(),
    }


if __name__ == "__main__":
    for name, content in pages().items():
        (FOLDER / name).write_text(content)
