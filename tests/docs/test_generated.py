"""What of the site is made from the code says what the code says."""

from __future__ import annotations

import re

import pytest
import typer

from docs.generate import commands, diagrams, options, reference, views
from onlyonce.api import pipeline, sources
from onlyonce.cli import app
from onlyonce.core import windows
from onlyonce.database import statements
from tests.docs.pages import Block, blocks
from tests.support.platform import ROOT

ARM_OF = {"l": (-1, 0, "r"), "r": (1, 0, "l"), "u": (0, -1, "d"), "d": (0, 1, "u")}


def test_each_command_has_its_options() -> None:
    """On the page of the command line, with those of commands in groups."""
    page = commands.page(typer.main.get_command(app))
    sections = dict(part.split("\n", 1) for part in page.split("\n### ")[1:])

    assert {"onlyonce run", "onlyonce reset", "onlyonce sql"} <= {*sections}
    assert "`--close`" in sections["onlyonce run"]
    assert "onlyonce sql [STATEMENT] [OPTIONS]" in sections["onlyonce sql"]


def test_each_comment_of_a_view_is_on_its_page() -> None:
    """The same number as statements in the file, so none is overlooked for its form."""
    sql = statements.views()
    found = views.commented(sql)
    commented = len(re.findall(r'COMMENT ON (?:VIEW|COLUMN) onlyonce\.[\w"]', sql))

    assert len(found) + sum(len(columns) for _, columns in found.values()) == commented
    current = {view for view, (text, _) in found.items() if not text.startswith("Deprecated")}
    assert {*re.findall(r"^## (\w+)$", views.page(sql), re.MULTILINE)} == current


@pytest.mark.parametrize("name", ["cli.md", "views.md", "values.md"])
def test_page_of_the_reference_is_current(name: str) -> None:
    """`make spec` writes it."""
    assert (reference.FOLDER / name).read_text() == reference.pages()[name]


@pytest.mark.parametrize(
    "declared",
    [
        *sources.Source.__args__,
        *pipeline.Sink.__args__,
        pipeline.Pipeline,
        pipeline.Output,
        windows.Fixed,
        windows.Sliding,
        windows.Session,
    ],
)
def test_each_option_of_a_declaration_is_explained(declared: type) -> None:
    """By the block of its docstring that the page makes a table of."""
    _, found = options.options("\n".join(line.removeprefix("    ") for line in (declared.__doc__ or "").split("\n")))
    assert {*found} == {*declared.__dataclass_fields__}, declared  # type: ignore[attr-defined]
    assert all(found.values())


@pytest.mark.parametrize("block", blocks("diagram"), ids=str)
def test_the_lines_of_a_diagram_meet(block: Block) -> None:
    """Each corner and junction goes on where it points to: a box that is not closed is seen by no spelling check."""
    rows = block.text.split("\n")
    signs = {(x, y): sign for y, row in enumerate(rows) for x, sign in enumerate(row)}
    for (x, y), sign in signs.items():
        for arm in diagrams.ARMS.get(sign, "") if sign not in "─│" else "":
            dx, dy, back = ARM_OF[arm]
            beside = signs.get((x + dx, y + dy), " ")
            assert back in diagrams.ARMS.get(beside, "") or beside in diagrams.TIPS, (
                f"{block}, line {y + 1}, sign {x + 1}"
            )


def test_a_drawing_is_a_picture_and_the_rest_of_the_page_stays() -> None:
    """Words keep their cells, whatever the reader's font."""
    drawn = diagrams.drawn("before\n\n```diagram two\n┌──┐\n│ab│─▶\n└──┘\n```\n\nafter")
    assert drawn.startswith("before\n\n<div")
    assert drawn.endswith("</div>\n\nafter")
    assert 'textLength="16"' in drawn
    assert ">ab<" in drawn


def test_the_list_of_questions_is_that_of_the_files() -> None:
    """sql/README.md has each file with its first line."""
    wanted = [
        f"| [{file.name}](cookbook/{file.name}) | {file.read_text().splitlines()[0].removeprefix('-- ')} |"
        for file in sorted((ROOT / "sql" / "cookbook").glob("*.sql"))
    ]
    assert [line for line in (ROOT / "sql" / "README.md").read_text().splitlines() if "(cookbook/" in line] == wanted
    assert len(wanted) == 15
