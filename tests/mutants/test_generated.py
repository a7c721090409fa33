"""Mutants that are generated: of which code, under which names, and that each verdict is of one that exists."""

from __future__ import annotations

import pytest

from tests.mutants import generated
from tests.mutants.hook import mutant_of
from tests.mutants.mutants import changed
from tests.support.platform import ROOT


@pytest.mark.parametrize("file", ["onlyonce/sinks/iceberg/sink_iceberg.py", "onlyonce/sinks/outbox/deliver.py"])
def test_a_module_has_mutants_that_break_it(file: str) -> None:
    """Each has a name of its own by which a process finds it, and its tests are there."""
    made = generated.of(file)

    assert len(made) >= 8
    assert mutant_of(made[-1].name) is made[-1]
    assert changed(made[-1], (ROOT / file).read_text()) != (ROOT / file).read_text()
    assert all((ROOT / test).exists() for test in generated.MODULES[file])


def test_conditions_comparisons_and_statements_are_broken() -> None:
    """A fail-point, a log line, a docstring, and code that a function has twice are left alone."""
    code = (
        'def write(rows):\n    """Write."""\n    passing("here")\n    if rows and len(rows) == 2:\n        '
        'log.info("x")\n'
        "        store(rows)\n    same()\n    same()\n"
    )
    assert sorted(generated.names_of(code)) == [
        "write: if not rows and len(rows) == 2", "write: len(rows) != 2", "write: without store(rows)",
    ]  # fmt: skip


def test_verdicts_of_generated_mutants_are_of_mutants_that_exist() -> None:
    """A change of the code takes its verdicts along: run `python -m tests.mutants.generated` on its file."""
    verdicts = generated.verdicts()
    files = {name.removeprefix(generated.PREFIX).split(":", 1)[0] for name in verdicts}
    assert set(verdicts) <= {mutant.name for file in files for mutant in generated.of(file)}
