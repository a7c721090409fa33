"""A test whose part the machine lacks fails in continuous integration. Elsewhere it is skipped, counted and named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from onlyonce import environment
from tests.support.platform import ROOT

CONFTEST = "from tests.support.needed import summarize as pytest_terminal_summary\n"
TESTS = """
import pytest
from tests.support.needed import missing

@pytest.mark.parametrize("n", range(2))
def test_one(n):
    missing("no Browser")

def test_other():
    pytest.skip("another reason")
"""
INSTALLED = {"mariadbd", "pgbouncer", "go", "chromium"}


def session(folder: Path, ci: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on TESTS with a value of CI."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_parts.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        f"--rootdir={folder}",
        str(folder),
    ]
    variables = environment.inherited() | {"CI": ci, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("ci", ["true", ""])
def test_missing_part_fails_in_ci_and_is_counted_elsewhere(tmp_path: Path, ci: str) -> None:
    """The last lines count the tests and name the part; a skip for another reason stays a skip."""
    done = session(tmp_path, ci)

    if ci:
        assert (done.returncode, "2 failed, 1 skipped" in done.stdout) == (1, True), done.stdout
    else:
        assert (done.returncode, "3 skipped" in done.stdout) == (0, True), done.stdout
        assert "2 tests did not run: no Browser" in done.stdout


def test_every_test_that_looks_for_a_program_fails_in_ci_without_it() -> None:
    """No test skips by itself for want of a program that .ci/run installs."""
    own = re.compile(r"pytest\.skip\([^)]*(?:Chromium|MariaDB|PgBouncer|MISSING|\bGo\b)")
    assert [
        path for path in ROOT.glob("tests/**/*.py") if path.name != "test_needed.py" and own.search(path.read_text())
    ] == []
    script = (ROOT / ".ci/run").read_text()
    assert {
        program for program in INSTALLED if re.search(rf"^    need .*\b{program}\b", script, re.MULTILINE)
    } == INSTALLED
