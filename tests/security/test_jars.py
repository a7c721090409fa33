"""A repository that gives other jars than ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onlyonce.settings import ROOT
from tests.security.statements import states

JARS = Path(sys.prefix) / "jars"


def compared(folder: Path) -> int:
    """Return the exit code of the comparison that set-up makes after it has got the jars."""
    command = ["make", "--silent", "--file=-", "jar-hashes", f"JARS={folder}"]
    return subprocess.run(
        command, cwd=ROOT, input=(ROOT / "Makefile").read_text(), text=True, capture_output=True, check=False
    ).returncode


@states(
    "Set-up refuses jars that differ from our own hashes (`docker/*.sha256`), and `make jar-hashes` compares them "
    "again."
)
@pytest.mark.parametrize("change", ["changed", "more", "missing"])
def test_other_jars_are_refused(tmp_path: Path, change: str) -> None:
    """One that is changed, one more, or one less."""
    for jar in JARS.glob("*.jar"):
        (tmp_path / jar.name).symlink_to(jar)
    assert compared(tmp_path) == 0

    one = next(tmp_path.glob("delta-spark*.jar"))
    if change != "more":
        one.unlink()
    if change != "missing":
        (one if change == "changed" else tmp_path / "more.jar").write_bytes(b"other")
    assert compared(tmp_path) != 0


def _hashes() -> list[Path]:
    return sorted((ROOT / "docker").glob("*.sha256"))


@states("Python packages are installed by the hashes of `requirements.lock`.")
def test_each_package_has_a_hash() -> None:
    """The installer is asked for hashes, and each list of jars that is shipped has its own."""
    assert "--require-hashes $(LOCK)" in (ROOT / "Makefile").read_text()
    assert {path.stem for path in _hashes()} >= {"ivy", "s3", "gcs", "broker"}
