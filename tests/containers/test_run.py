"""`make test-containers` on a machine without a container engine, and what its last result says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.run import RESULT
from tests.support.platform import ROOT

MUTE = "#!/bin/sh\nexit 1\n"


@pytest.mark.parametrize("engine", ["missing", "silent"])
def test_without_an_engine_it_reports_that_it_did_not_run(tmp_path: Path, engine: str) -> None:
    """No program, or one that does not answer: not green, and the last result stays."""
    if engine == "silent":
        (tmp_path / "docker").write_text(MUTE)
        (tmp_path / "docker").chmod(0o755)
    before = RESULT.read_bytes() if RESULT.exists() else None
    environment = {key: value for key, value in os.environ.items() if key != "ONLYONCE_ENGINE"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.containers.run"], cwd=ROOT, capture_output=True, text=True, check=False,
        env=environment | {"PATH": str(tmp_path)}, timeout=120,
    )  # fmt: skip

    assert done.returncode == 69, done.stdout + done.stderr
    happened, data, _ = done.stderr.splitlines()
    assert happened.startswith("test-containers did not run: no container engine with compose answers")
    assert data == "nothing was built, started or stored"
    assert (RESULT.read_bytes() if RESULT.exists() else None) == before


@pytest.mark.parametrize(
    "result", [RESULT, ROOT / "tests" / "packaging" / "result.md"], ids=lambda path: path.parent.name
)
def test_commits_that_a_result_names_are_in_the_history(result: Path) -> None:
    """A reader can check them out: a commit that was rewritten later is not named any more."""
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() == "true":
        pytest.skip("a shallow clone does not have the history")
    named = re.findall(r"commit ([0-9a-f]{7,40})\b", result.read_text())

    assert [one for one in named if _git("merge-base", "--is-ancestor", one, "HEAD").returncode] == []


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
