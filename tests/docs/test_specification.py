"""The tables of the specification fit together, name what the code and the log have, and their pages are current."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generate import specification
from docs.generate.specification import FOLDER, Machine, Step
from onlyonce.database import statements
from tests.support.platform import ROOT

MACHINES = specification.machines()
STEPS = [step for machine in MACHINES for step in machine.steps]
MIGRATIONS = "".join((ROOT / "sql" / "migrations" / name).read_text() for name in ("authority.sql", "platform.sql"))
REFERENCE = re.compile(r"docs/specification/([\w-]+\.\w+)")
INVARIANT = re.compile(r"\((I\d+)\)")
NUMBERED = re.compile(r"(?<!master/)PROTOCOL\.md|[Pp]rotocol steps? \d")
LINK = re.compile(r"\]\(([\w./-]+\.md)#?([\w-]*)\)")
CITED = re.compile(r"\(`(\w+)`\)")


def test_pages_are_current() -> None:
    """`make spec` writes them. A page without a table is one of those that are written by hand."""
    by_hand = {f"{name}.md" for name in specification.PROSE}
    found = {path.name: path.read_text() for path in FOLDER.glob("*.md")}

    assert {name: page for name, page in found.items() if name not in by_hand} == specification.pages()
    assert by_hand <= {*found}
    assert {path.stem for path in FOLDER.glob("*.toml")} == {*specification.ORDER, specification.OWNERSHIP}


@pytest.mark.parametrize("name", specification.PROSE)
def test_page_says_what_holds(name: str) -> None:
    """It has its subject in one sentence first. Fail-points, tables and statements that it names exist."""
    page = (FOLDER / f"{name}.md").read_text()
    title, about = page.split("\n\n")[:2]
    points = {*re.findall(r"`([a-z]+(?:-[a-z]+)*-(?:before|after|mid)-[a-z-]+)`", page)}

    assert title.startswith("# ")
    assert not about.startswith(("#", "|", "-"))
    assert points <= {*specification.points()}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_states_are_connected(machine: Machine) -> None:
    """Each state is explained and used, each has a way on unless it is final, and no final one has a way from it
    alone."""
    left, entered = {step.state for step in machine.steps}, {step.next for step in machine.steps}
    assert {*machine.states} == left | entered
    assert {*machine.states} - {*machine.final} <= left
    assert {*machine.final} <= entered


@pytest.mark.parametrize("transaction", sorted({step.transaction for step in STEPS}))
def test_transaction_exists(transaction: str) -> None:
    """As a named statement, or a function of the product."""
    module, _, function = transaction.partition("::")
    if function:
        assert function in functions(module)
    else:
        file, _, name = transaction.partition(".")
        assert name in statements.queries(file)


def functions(module: str) -> set[str]:
    """The functions of a module, and the methods of its classes."""
    tree = ast.parse((ROOT / "onlyonce" / module).read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return found | {
        f"{one.name}.{node.name}" for one in classes for node in one.body if isinstance(node, ast.FunctionDef)
    }


def test_invariants_are_numbered() -> None:
    """One after the other, over all pages."""
    found = [one["id"] for machine in MACHINES for one in machine.invariants]
    assert found == [f"I{number}" for number in range(1, len(found) + 1)]


INVARIANTS = [one for machine in MACHINES for one in machine.invariants]


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda one: one["id"])
def test_invariant_is_held_and_tested(invariant: dict[str, Any]) -> None:
    """By a constraint of the migrations or a function of the product, and by tests of this repository."""
    assert invariant["held_by"]
    assert invariant["tests"]
    for holder in invariant["held_by"]:
        module, _, function = holder.partition("::")
        assert function in functions(module) if function else re.search(rf"\b{holder}\b", MIGRATIONS)
    for test in invariant["tests"]:
        path, _, function = test.partition("::")
        assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_ownership_names_tables_pages_and_points_that_exist() -> None:
    """A table of the log that is missing has nobody who writes it."""
    data, named = specification.ownership(), specification.titles()
    stored = " ".join(one["what"] for one in data["stored"])
    prefixes = {point for hop in data["hops"] for point in hop["points"]}

    assert {page for one in data["stored"] for page in one["pages"]} <= {*named}
    assert [name for name in specification.tables() if f"`{name}`" not in stored] == []
    assert [prefix for prefix in prefixes if not specification.points(prefix)] == []


def test_references_to_the_specification_exist() -> None:
    """Code, tests and SQL name a page by its path, and an invariant by its number. No step has a number of its own."""
    pages = {path.name for path in FOLDER.iterdir()}
    for path in _sources():
        text = path.read_text()
        assert {*REFERENCE.findall(text)} <= pages, path
        assert {*INVARIANT.findall(text)} <= {one["id"] for one in INVARIANTS}, path
        assert not NUMBERED.search(text), path


def test_links_of_the_specification_exist() -> None:
    """Also those to a heading."""
    for name in specification.PROSE:
        for page, anchor in LINK.findall((FOLDER / f"{name}.md").read_text()):
            target = FOLDER / page
            assert target.is_file(), f"{name}: {page}"
            headings = {
                line.lstrip("# ").lower().replace(" ", "-")
                for line in target.read_text().splitlines()
                if line[:1] == "#"
            }
            assert not anchor or anchor in headings, f"{name}: {page}#{anchor}"
        assert {*INVARIANT.findall((FOLDER / f"{name}.md").read_text())} <= {one["id"] for one in INVARIANTS}


def _sources() -> Iterator[Path]:
    for folder in ("onlyonce", "tests", "dags", "jobs", "plugins", "sql"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".sql", ".md", ".html") and path != Path(__file__):
                yield path


def test_each_table_of_the_log_is_on_one_page_at_most() -> None:
    """So that its columns are explained in one place."""
    found = [table for machine in MACHINES for table in machine.rows]
    assert len(found) == len({*found})
    assert {*found} <= {*specification.tables()}


def test_each_constraint_that_is_cited_exists() -> None:
    """In the migrations."""
    texts = [
        text
        for one in MACHINES
        for text in (*one.writer, *one.reader, *(invariant["text"] for invariant in one.invariants))
    ]
    cited = {name for text in texts for name in CITED.findall(text)}
    assert cited
    assert {name for name in cited if not re.search(rf"\b{name}\b", MIGRATIONS)} == set()


@pytest.mark.parametrize("step", [step for step in STEPS if step.points], ids=lambda step: step.points[0])
def test_name_of_a_point_says_its_side(step: Step) -> None:
    """A point that is named `…-before-…` leaves the old state."""
    assert [point for point in step.after if "-before-" in point] == []
