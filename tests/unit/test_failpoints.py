"""No fail-point is untested: a run has recorded a strike at it and its test passed (`tests/fault/strikes.json`); else a
test names it, for now."""

from __future__ import annotations

import json
import re

import pytest

from docs.generate import specification
from tests.fault import strikes
from tests.support.platform import ROOT

PASSING = re.compile(r'passing\(f?"([^"]+)"\)')
STRUCK: dict[str, dict[str, str]] = json.loads(strikes.FILE.read_text())
BY_PREFIX = re.compile(r'f"([a-z-]+-)\{')
"""How a test names a family of points: a prefix, and what follows it elsewhere in the same file."""
FROM_TABLES = re.compile(r'specification\.points\("([a-z-]+-)"\)')
"""How a test takes a family of points from the specification."""
RECORDED = 100
"""So many points have a record at least; it is to grow to all of them."""
NOT_THEIRS = ("tests/mutants", "tests/unit/test_failpoints.py", "tests/fault/results.json")


def in_code() -> set[str]:
    """The names in the product; one that is put together is there for each of its beginnings."""
    found = {name for path in ROOT.glob("onlyonce/**/*.py") for name in PASSING.findall(path.read_text())}
    of_reference = {name for name in found if "{points}" in name}
    begins = {
        name
        for path in ROOT.glob("onlyonce/sinks/**/*.py")
        for name in re.findall(r'reference\(.*"(\w+)"\)', path.read_text())
    }
    return found - of_reference | {name.replace("{points}", one) for name in of_reference for one in begins}


def named() -> set[str]:
    """What the tests name."""
    found: set[str] = set()
    for path in ROOT.glob("tests/**/*.py"):
        if not str(path.relative_to(ROOT)).startswith(NOT_THEIRS):
            text = path.read_text()
            words = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', text))
            found |= words | {prefix + word for prefix in BY_PREFIX.findall(text) for word in words}
            found |= {point for prefix in FROM_TABLES.findall(text) for point in specification.points(prefix)}
    return found


def test_each_fail_point_has_one_row() -> None:
    """In the tables of the specification, and each row's points are in the code."""
    assert sorted(specification.points()) == sorted(in_code())


def test_each_fail_point_is_struck_by_a_test() -> None:
    """One that nobody strikes is a step whose kill nobody has seen."""
    there = set(specification.points())
    assert len(there & set(STRUCK)) > RECORDED
    assert there - set(STRUCK) - named() == set()


@pytest.mark.parametrize("point", STRUCK)
def test_the_test_that_struck_is_there(point: str) -> None:
    """By its file and name; the point is still passed."""
    path, _, name = STRUCK[point]["test"].partition("::")
    assert point in specification.points()
    assert f"def {name.split('[')[0]}(" in (ROOT / path).read_text()
