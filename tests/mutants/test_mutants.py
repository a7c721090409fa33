"""Each deliberately broken build is noticed by the tests that are named for it; without it the same tests pass."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.fault import ledger
from tests.mutants.mutants import MUTANTS, Mutant, changed
from tests.support.platform import ROOT

SITE = Path(__file__).with_name("site")
README = Path(__file__).with_name("README.md")
TIMEOUT = 900

QUICK = [m for m in MUTANTS.values() if not m.spark]
SPARK = [m for m in MUTANTS.values() if m.spark]


def outcomes(tests: Iterable[str], folder: Path, mutant: str = "") -> tuple[dict[str, set[str]], str]:
    """Run tests in a process of their own: by test (without parameters) what came of it, and what pytest said."""
    report = folder / "report.xml"
    environment = os.environ | {
        "ONLYONCE_TEST_MUTANT": mutant, "PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}",
    }  # fmt: skip
    environment.pop(ledger.VARIABLE, None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, f"--timeout={TIMEOUT // 3}", *sorted(set(tests))], cwd=ROOT, env=environment, capture_output=True,
        text=True, timeout=TIMEOUT,
    )  # fmt: skip
    found: dict[str, set[str]] = {}
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["classname"].replace(".", "/") + ".py::" + case.attrib["name"].split("[")[0]
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"} or {"passed"}
        found.setdefault(name, set()).update(kinds)
    return found, done.stdout[-3000:]


def is_caught(found: dict[str, set[str]], tests: Iterable[str]) -> bool:
    """Whether each of the named tests (or one of a named file) has failed by itself, not by an error around it."""
    return all(any("failure" in kinds for name, kinds in found.items() if name.startswith(test)) for test in tests)


def check(mutant: Mutant, folder: Path) -> None:
    """The named tests fail on it."""
    found, told = outcomes(mutant.tests, folder, mutant.name)
    caught = is_caught(found, mutant.tests)
    ledger.caught(mutant.name, mutant.tests, is_caught=caught)
    assert caught, f"{mutant.name} ({mutant.broken}) lives on: {found}\n{told}"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", QUICK, ids=lambda m: m.name)
def test_a_broken_build_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    """Each test that is named for it fails."""
    check(mutant, tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("mutant", SPARK, ids=lambda m: m.name)
def test_a_broken_build_is_caught_on_spark(mutant: Mutant, tmp_path: Path) -> None:
    """Each test that is named for it fails."""
    check(mutant, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("group", [QUICK, pytest.param(SPARK, marks=pytest.mark.spark)], ids=["quick", "spark"])
def test_the_whole_build_passes_the_same_tests(group: list[Mutant], tmp_path: Path) -> None:
    """So that a failure above is the mutant's."""
    found, told = outcomes((test for mutant in group for test in mutant.tests), tmp_path)
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
        assert f"def {name}" in (ROOT / path).read_text()


def test_the_table_tells_of_every_mutant() -> None:
    """README.md has the table that these data give: `python -m tests.mutants.table` writes it."""
    from tests.mutants.table import text

    assert README.read_text() == text()
