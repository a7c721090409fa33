"""Each mutant breaks code that exists, its tests exist, and results.json has a verdict only of mutants that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import results
from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS, changed
from tests.mutants.operators import Delete, Negate, NotFound, Replace, ReplaceSql
from tests.support.platform import ROOT

README = Path(__file__).with_name("README.md")

CODE = """
BOUND = 1

class Writer:
    def write(self, rows):
        if len(rows) > BOUND:  # a comment
            self.count( rows,
                        'a' )
            return rows
        return None

def write(rows):
    return rows
"""


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda m: m.name)
def test_a_mutant_breaks_the_code_as_it_is(mutant: Mutant) -> None:
    """Its scope and code are found once, and the outcome is still a program; its tests are there."""
    text = (ROOT / mutant.file).read_text()
    broken = changed(mutant, text)

    assert broken != text
    if mutant.is_python:
        compile(broken, mutant.file, "exec")
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert f"def {name.split('[')[0]}" in (ROOT / path).read_text()


def test_an_operator_ignores_layout_and_other_functions() -> None:
    """Code is compared as a tree within the named function, and everything else stays as it is."""
    broken = Delete("Writer.write", 'self.count(rows, "a")\nreturn rows').apply(CODE)
    assert broken == CODE.replace("self.count( rows,\n                        'a' )\n            return rows", "pass")
    assert Negate("Writer.write", "len(rows) > (BOUND)").apply(CODE).count("if (not (len(rows) > (BOUND))):") == 1
    assert "BOUND = (2)" in Replace("", "1", "2").apply(CODE)
    assert "WHERE a = 2" in ReplaceSql("one", "WHERE a = 1", "WHERE a = 2").apply(
        "-- one --\nWHERE a\n  = 1\n-- two --\nWHERE a = 1\n"
    )


@pytest.mark.parametrize(
    "operator",
    [
        Delete("Writer.read", "return rows"),
        Delete("Writer", "return"),
        Replace("Writer.write", "rows", "None"),
        Replace("", "len(rows)", "0"),
        ReplaceSql("two", "WHERE b", "WHERE c"),
    ],
    ids=["no such function", "no such code", "many times", "in a function", "no such statement"],
)
def test_an_operator_refuses_code_that_is_not_there_once(operator: Delete | Replace | ReplaceSql) -> None:
    """A rename or a change in the product shows here, in `make check`."""
    with pytest.raises(NotFound):
        operator.apply(CODE)


def test_verdicts_are_of_mutants_that_exist() -> None:
    """An equivalent mutant has its argument; a mutant that is alive is repaired before it is committed."""
    for name, result in results.load().items():
        assert name in MUTANTS
        assert result["verdict"] in ("caught", "equivalent"), f"{name} is {result['verdict']}: {result['why']}"
        assert result["commit"]
        assert result["at"]
        assert result["why"]


def test_the_table_lists_every_mutant() -> None:
    """README.md has the table of these data: `python -m tests.mutants.table` writes it."""
    from tests.mutants.table import text

    assert README.read_text() == text()
