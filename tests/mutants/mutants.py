"""The mutants: builds with one thing broken, and the tests that must fail on each. README.md says how to add one."""

from __future__ import annotations

from functools import reduce

from tests.mutants.cases import TOPICS
from tests.mutants.mutant import Mutant


def changed(mutant: Mutant, text: str) -> str:
    """Return the broken text of the mutant's file. Raise NotFound if the file no longer has the named code."""
    return reduce(lambda broken, operator: operator.apply(broken), mutant.operators, text)


_ALL = [mutant for topic in TOPICS for mutant in topic.MUTANTS]
MUTANTS = {mutant.name: mutant for mutant in _ALL}
assert len(MUTANTS) == len(_ALL), "two mutants have one name"
