"""No fail-point is untested: a test names each one that the product passes, or records it and strikes it by number."""

from __future__ import annotations

import re

import pytest

from tests.support.platform import ROOT

PASSING = re.compile(r'passing\(f?"([^"]+)"\)')
BY_PREFIX = re.compile(r'f"([a-z-]+-)\{')
"""How a test names a family of points: a prefix, and what follows it elsewhere in the same file."""
NOT_THEIRS = ("tests/mutants", "tests/unit/test_failpoints.py", "tests/fault/results.json")
OF_THE_SUITE = {"files-unit-before-claim": "tests/contract/sinks/test_conformance.py"}
"""The suite kills a sink at each point that it passes, whatever its name."""


def points() -> set[str]:
    """The names in the product; one that is put together is there for each of its beginnings."""
    found = {name for path in ROOT.glob("onlyonce/**/*.py") for name in PASSING.findall(path.read_text())}
    of_witness = {name for name in found if "{points}" in name}
    begins = {name for path in ROOT.glob("onlyonce/sinks/**/*.py") for name in re.findall(r'witness\(.*"(\w+)"\)', path.read_text())}
    return found - of_witness | {name.replace("{points}", one) for name in of_witness for one in begins}


def named() -> set[str]:
    """What the tests name."""
    found: set[str] = set()
    for path in ROOT.glob("tests/**/*.py"):
        if not str(path.relative_to(ROOT)).startswith(NOT_THEIRS):
            text = path.read_text()
            words = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', text))
            found |= words | {prefix + word for prefix in BY_PREFIX.findall(text) for word in words}
    return found


def test_each_fail_point_is_struck_by_a_test() -> None:
    """One that nobody strikes is a step whose kill nobody has seen."""
    there = points()
    assert len(there) > 100
    assert {"iceberg-unit-after-claim", "delta-before-deletes", "anew-before-clear"} <= there
    assert there - named() - set(OF_THE_SUITE) == set()


@pytest.mark.parametrize("point", OF_THE_SUITE)
def test_what_the_suite_strikes_is_a_point(point: str) -> None:
    """And is not named elsewhere by now."""
    assert point in points() - named()
