"""`make test-containers` on a machine without a container engine, and what its last result says."""

from __future__ import annotations

import os
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
