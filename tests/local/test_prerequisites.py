"""One clear line for each thing that is missing: what, and how to get it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onlyonce.local import prerequisites

SCRIPT = Path(prerequisites.__file__)


def fake(folder: Path, name: str, prints: str, code: int = 0) -> str:
    """A program that prints a text, as java and python do with their versions."""
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{prints}\nEOF\nexit {code}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("prints", "problem"),
    [
        ('openjdk version "17.0.15" 2025-04-15', ""),
        ('openjdk version "21" 2023-09-19', ""),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ('java version "1.8.0_292"', "is Java 8"),
        ("The operation couldn't be completed.", "does not run"),
    ],
)
def test_java(tmp_path: Path, prints: str, problem: str) -> None:
    fake(tmp_path, "java", prints)
    line = prerequisites.java_problem({"PATH": str(tmp_path / "bin") + os.pathsep + os.defpath})  # type: ignore[arg-type]
    assert problem in line
    assert bool(problem) == bool(line)
    if line:
        assert line.startswith("Java 17 or later is missing")
        assert "Get it: " in line
        assert "\n" not in line


def test_no_java(tmp_path: Path) -> None:
    assert "no java on the PATH" in prerequisites.java_problem({"PATH": str(tmp_path)})  # type: ignore[arg-type]


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    fake(tmp_path, "java", 'openjdk version "11.0.2"')
    line = prerequisites.java_problem({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})  # type: ignore[arg-type]
    assert "JAVA_HOME names this one" in line


def test_an_old_python_is_passed_over_for_a_newer_one(tmp_path: Path) -> None:
    old, new = fake(tmp_path, "old", "3.10"), fake(tmp_path, "new", "3.12")
    assert prerequisites.find_python([old, new]) == (new, "")


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_a_python_that_does_not_fit_is_named(tmp_path: Path, version: str) -> None:
    python, line = prerequisites.find_python([fake(tmp_path, "python3", version), "no-such-python"])
    assert python is None
    assert line.startswith("Python 3.11, 3.12 or 3.13 is missing")
    assert f"python3 is {version}" in line


def test_a_python_without_its_modules(tmp_path: Path) -> None:
    python, line = prerequisites.find_python([fake(tmp_path, "python3", "3.12\nModuleNotFoundError: ensurepip", 1)])
    assert python is None
    assert "python3.12-venv" in line


def test_too_little_disk(tmp_path: Path) -> None:
    assert prerequisites.disk_problem(str(tmp_path / "not" / "there"), 0) == ""
    assert "Too little disk" in prerequisites.disk_problem(str(tmp_path / "not" / "there"), 1e9)


def test_the_script_says_all_at_once_and_fails(tmp_path: Path) -> None:
    # The disk as well, whatever this machine has free: the line about it is one of the three.
    script = tmp_path / SCRIPT.name
    script.write_text(SCRIPT.read_text().replace("DISK_TO_INSTALL = 4.0", "DISK_TO_INSTALL = 1e9"))
    environment = {"PYTHON": fake(tmp_path, "python3", "3.10"), "PATH": "/usr/bin:/bin", "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-I", str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line.split()[0] for line in lines] == ["Python", "Java", "Too"]


def test_the_script_runs_on_old_pythons_and_alone() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= sys.stdlib_module_names
    assert "annotations" not in SCRIPT.read_text()  # `from __future__ import annotations` came with 3.7
