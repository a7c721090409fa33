"""Puts a benchmark's table into a page of the docs, between the two marks of its name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "explanation"


def table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]], page: Path = DOCS / "cost.md") -> None:
    """Write the table anew, and below it how busy the machine was.

    Raises ValueError where the page has no marks of this name.
    """
    text = page.read_text()
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, after = text.index(begin) + len(begin), text.index(end)
    lines = [head, ["---"] * len(head), *rows]
    told = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    busy = f"The machine has {os.cpu_count()} cores; its load as this ended was {os.getloadavg()[1]:.0f}."
    page.write_text(f"{text[:before]}{told}\n\n{busy}\n{text[after:]}")
