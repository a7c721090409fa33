"""The steps of docker/Dockerfile, done in an empty folder as its builder does them, for machines without a builder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compose import image
from tests.compose.composed import ROOT
from tests.compose.image import Image

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

STAGE = "AS packages"
OF_DEBIAN = "apt-get"
"""A step of Debian's own packages: what it brings is here."""


def of_stages(steps: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the steps of the stages that make the environment, and then the code."""
    froms = [n for n, (word, _) in enumerate(steps) if word == "FROM"]
    begins = next(n for n in froms if steps[n][1].endswith(STAGE))
    return [step for step in steps[begins : froms[-1]] if step[0] != "FROM"]


def copy(of: Image, source: str, target: Path) -> None:
    """What the builder gets of a source: without what .dockerignore keeps out, and with what the checkout has in
    git."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", source],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in filter(of.allowed, tracked):
        inner = Path(name).relative_to(source) if (ROOT / source).is_dir() else Path(Path(name).name)
        (target / inner).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / inner)


def test_each_step_has_what_it_needs_and_the_result_runs(tmp_path: Path) -> None:
    """With the files that are copied and no others the environment is made, and has the programs that the services
    start."""
    of, made = image.load(), tmp_path / "opt"
    made.mkdir()
    kept = ("PATH", "JAVA_HOME", "IVY_SETTINGS_XML", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    given = {k: v for k, v in os.environ.items() if k in kept or k.lower().endswith(("_proxy", "_index_url"))}
    given["HOME"] = str(tmp_path)
    for word, rest in of_stages(of.steps()):
        if word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(of, source, made / target)
        elif word == "ENV":
            given |= dict([rest.split("=", 1)])
        elif word == "RUN" and OF_DEBIAN not in rest:
            done = subprocess.run(["sh", "-c", rest], cwd=made, env=given, capture_output=True, text=True)
            assert done.returncode == 0, f"{rest}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    programs = made / ".venv" / "bin"
    for program in ("python", "onlyonce", "airflow", "spark-class", "spark-submit"):
        assert os.access(programs / program, os.X_OK), f"the image has no {program}"
    bare = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    where = (
        "from onlyonce import settings; from onlyonce.database import statements; print(settings.__file__); "
        "print(statements.FOLDER)"
    )
    for program, *arguments in (["onlyonce", "--help"], ["python", "-c", where]):
        told = subprocess.run(
            [str(programs / program), *arguments], cwd=tmp_path, env=bare, capture_output=True, text=True
        )
        assert told.returncode == 0, told.stderr
    assert told.stdout.split() == [str(made / "onlyonce" / "settings.py"), str(made / "sql")]
    assert list((made / ".venv" / "jars").glob("delta-spark*.jar"))
