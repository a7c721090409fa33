"""The hooks that MkDocs calls: add the screenshots, order the navigation, draw the diagrams and turn links that leave
the site into text."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mkdocs.structure.files import File  # noqa: E402

from docs.generate import diagrams, specification  # noqa: E402
from tests.mutants import table  # noqa: E402

SECTIONS = {
    "How to": "how-to",
    "Reference": "reference",
    "Specification": "specification",
    "Explanation": "explanation",
    "Decisions": "decisions",
}
FIRST = {
    "how-to": [
        "which-part",
        "existing-airflow",
        "from-foreachbatch",
        "test-your-pipeline",
        "notebook",
        "errors",
        "kafka",
        "late-data",
        "backfill",
        "change-a-pipeline",
        "production",
        "stuck",
        "backup-restore-upgrade",
        "start-over",
    ],
    "reference": [
        "commands",
        "cli",
        "declarations",
        "sources",
        "windows",
        "sinks",
        "settings",
        "views",
        "errors",
    ],
    "specification": ["index", *specification.PROSE, *specification.ORDER, specification.OWNERSHIP, "fail-points"],
    "decisions": ["index"],
    "explanation": [
        "promises",
        "what-goes-wrong",
        "flow",
        "lives",
        "why",
        "known-limitations",
        "alternatives",
        "cost",
        "scale",
        "proofs",
        "model",
    ],
}
"""The pages that come first in each section; the other pages follow by their names."""
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the screenshots, and say in which order all pages stand."""
    for picture in (ROOT / "onlyonce" / "airflow" / "page" / "screenshots").glob("*.png"):
        files.append(File.generated(config, f"img/{picture.name}", abs_src_path=str(picture)))
    config.nav = navigation([file.src_uri for file in files.documentation_pages()])
    return files


def navigation(pages: list[str]) -> list[Any]:
    """The pages that are there, by section."""
    nav: list[Any] = [page for page in ("index.md", "tutorial.md", "questions.md") if page in pages]
    for title, folder in SECTIONS.items():
        of_folder = [page for page in pages if page.startswith(f"{folder}/")]
        nav.append({title: sorted(of_folder, key=lambda page: _rank(folder, page))})
    return nav


def _rank(folder: str, page: str) -> tuple[int, str]:
    name, first = page.removeprefix(f"{folder}/").removesuffix(".md"), FIRST[folder]
    return (first.index(name) if name in first else len(first), name)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Draw the diagrams, list the pages and count the mutants where a page asks for it, and keep readers on the
    site."""
    markdown = markdown.replace("<!-- pages -->", _pages(config.nav)).replace("<!-- mutants -->", table.total())
    return LINK.sub(lambda found: _inside(found, page.file.src_uri), diagrams.drawn(markdown))


def _pages(nav: list[Any]) -> str:
    """The first pages and each section as a list of links, by the titles of the pages."""
    parts = [f"- [{_title(page)}]({page})" for page in nav if isinstance(page, str) and page != "index.md"]
    for section in (part for part in nav if isinstance(part, dict)):
        for title, pages in section.items():
            parts += ["", f"**{title}**", "", *(f"- [{_title(page)}]({page})" for page in pages)]
    return "\n".join(parts)


def _title(page: str) -> str:
    return (ROOT / "docs" / page).read_text().split("\n", 1)[0].removeprefix("# ")


def _inside(found: re.Match[str], page: str) -> str:
    """A link to a file of the repository that is no page becomes its text."""
    place = (ROOT / "docs" / page).parent / found[2].partition("#")[0]
    if place.resolve().is_relative_to(ROOT / "docs"):
        return found[0]
    return found[1]
