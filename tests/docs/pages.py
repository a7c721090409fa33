"""The pages that people read, and the blocks of code in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onlyonce.settings import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(
    r"^(?P<mark><!-- (?:not run: [^\n]+|run) -->\n\n?)?^ *```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of code, and where it begins.

    A block behind `<!-- not run: why -->` is left out by whoever runs blocks, and so is a sketch: Python in which …
    stands for code. One of shell commands behind `<!-- run -->` is run on the reference pipeline `flights`; the others
    are only taken apart.
    """

    page: Path
    line: int
    language: str
    text: str
    mark: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(language: str) -> list[Block]:
    """The blocks of a language that are to be run, in the order of the pages."""
    found = [block for page in PAGES for block in _of(page) if block.language == language]
    return [block for block in found if not block.mark.startswith("<!-- not") and not _sketch(block)]


def _sketch(block: Block) -> bool:
    try:
        ast.parse(block.text)
    except SyntaxError:
        return block.language == "python" and "…" in block.text
    return False


def _of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        yield Block(page, line, found["language"], found["text"], found["mark"] or "")
