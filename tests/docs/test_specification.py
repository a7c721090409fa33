"""The tables of the specification fit together, name what the code and the log have, and their pages are current."""

from __future__ import annotations

import ast
import re

import pytest

from docs.generate import specification
from docs.generate.specification import FOLDER, Machine, Step
from onlyonce.database import statements
from tests.support.platform import ROOT

MACHINES = specification.machines()
STEPS = [step for machine in MACHINES for step in machine.steps]
CITED = re.compile(r"\(`(\w+)`\)")


def test_pages_are_current() -> None:
    """`make spec` writes them. A page without a table is no page of the specification."""
    assert {path.name: path.read_text() for path in FOLDER.glob("*.md")} == specification.pages()
    assert {path.stem for path in FOLDER.glob("*.toml")} == {*specification.ORDER}


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
    there = "".join((ROOT / "sql" / "migrations" / name).read_text() for name in ("authority.sql", "platform.sql"))
    assert cited
    assert {name for name in cited if not re.search(rf"\b{name}\b", there)} == set()


@pytest.mark.parametrize("step", [step for step in STEPS if step.points], ids=lambda step: step.points[0])
def test_name_of_a_point_says_its_side(step: Step) -> None:
    """A point that is named `…-before-…` leaves the old state."""
    assert [point for point in step.after if "-before-" in point] == []
