"""Each deliberately broken build is noticed by the tests that are named for it; without it the same tests pass."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fault import ledger
from tests.mutants.mutants import MUTANTS, Mutant, changed
from tests.mutants.nursery import Nursery
from tests.support.platform import ROOT, Server

README = Path(__file__).with_name("README.md")
TIMEOUT = 1000
HANG = "from pytest-timeout"
"""A test that hangs has noticed nothing."""

QUICK = [m for m in MUTANTS.values() if not m.spark]
SPARK = [m for m in MUTANTS.values() if m.spark]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Forks the processes under mutation."""
    with Nursery() as started:
        yield started


@dataclass(frozen=True)
class Bench:
    """Where mutants are tried: the process that forks them, and the PostgreSQL that their tests share."""

    nursery: Nursery
    server: Server
    folder: Path

    def outcomes(self, tests: Iterable[str], mutant: str = "") -> tuple[dict[str, set[str]], str]:
        """Run tests in a process of their own: by test what came of it, and what pytest said."""
        report, told = self.folder / "report.xml", self.folder / "told"
        arguments = [
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            f"--timeout={TIMEOUT}",
            *sorted(set(tests)),
        ]
        self.nursery.pytest(mutant, arguments, told, ONLYONCE_TEST_SERVER=str(self.server.folder))
        assert report.exists(), told.read_text()[-3000:]
        found: dict[str, set[str]] = {}
        for case in ElementTree.parse(report).iter("testcase"):
            name = case.attrib["classname"].replace(".", "/") + ".py::" + case.attrib["name"]
            found.setdefault(name, set()).update(_kinds(case))
        return found, told.read_text()[-3000:]


def _kinds(case: ElementTree.Element) -> set[str]:
    found = [child for child in case if child.tag in ("failure", "error", "skipped")]
    return {"hung" if HANG in one.attrib.get("message", "") else one.tag for one in found} or {"passed"}


@pytest.fixture
def bench(nursery: Nursery, server: Server, tmp_path: Path) -> Bench:
    """A place for one run."""
    return Bench(nursery, server, tmp_path)


def is_caught(found: dict[str, set[str]], tests: Iterable[str]) -> bool:
    """Whether each of the named tests (one of its parameters, one of a named file) has failed by itself, not by an error around it."""
    return all(any("failure" in kinds for name, kinds in found.items() if name.startswith(test)) for test in tests)


def check(mutant: Mutant, bench: Bench) -> None:
    """The named tests fail on it."""
    found, told = bench.outcomes(mutant.tests, mutant.name)
    caught = is_caught(found, mutant.tests)
    ledger.caught(mutant.name, mutant.tests, is_caught=caught)
    assert caught, f"{mutant.name} ({mutant.broken}) lives on: {found}\n{told}"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", QUICK, ids=lambda m: m.name)
def test_a_broken_build_is_caught(mutant: Mutant, bench: Bench) -> None:
    """Each test that is named for it fails."""
    check(mutant, bench)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("mutant", SPARK, ids=lambda m: m.name)
def test_a_broken_build_is_caught_on_spark(mutant: Mutant, bench: Bench) -> None:
    """Each test that is named for it fails."""
    check(mutant, bench)


@pytest.mark.slow
@pytest.mark.parametrize("group", [QUICK, pytest.param(SPARK, marks=pytest.mark.spark)], ids=["quick", "spark"])
def test_the_whole_build_passes_the_same_tests(group: list[Mutant], bench: Bench) -> None:
    """So that a failure above is the mutant's."""
    found, told = bench.outcomes(test for mutant in group for test in mutant.tests)
    assert {kind for kinds in found.values() for kind in kinds} == {"passed"}, told


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda m: m.name)
def test_a_mutant_breaks_the_code_as_it_is(mutant: Mutant) -> None:
    """The text that it changes is there once, and what comes out is still a program; its tests are there."""
    text = (ROOT / mutant.file).read_text()
    broken = changed(mutant, text)

    assert broken != text
    if not mutant.is_sql:
        compile(broken, mutant.file, "exec")
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert f"def {name.split('[')[0]}" in (ROOT / path).read_text()


def test_the_table_tells_of_every_mutant() -> None:
    """README.md has the table that these data give: `python -m tests.mutants.table` writes it."""
    from tests.mutants.table import text

    assert README.read_text() == text()
