"""What a team installs: one wheel, built from this checkout."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from onlyonce.database import formats

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as `pip wheel` makes it, by the build backend that the environment has."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    [made] = folder.glob("*.whl")
    return made


def test_the_wheel_has_one_package_and_its_data(wheel: Path) -> None:
    """Names like jobs, dags and plugins are those of a team's own folders."""
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"onlyonce"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert {"onlyonce/py.typed", "onlyonce/sql/views/1_batches.sql", "onlyonce/airflow/page/templates/base.html"} <= set(names)
    # Links in the checkout, what they lead to in the wheel.
    compose = zipfile.ZipFile(wheel).read("onlyonce/scaffold/templates/docker-compose.yml")
    assert compose == (ROOT / "docker-compose.yml").read_bytes()
    assert "onlyonce/scaffold/templates/pipelines.py.template" in names


def test_the_metadata_lets_pip_choose_versions_that_run(wheel: Path) -> None:
    """pip must find one version of pyspark and pyspark-client, and a delta-spark whose jar exists: those of the lock, at most."""
    with zipfile.ZipFile(wheel) as opened:
        [name] = [one for one in opened.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(opened.read(name).decode())
    locked = dict(re.findall(r"^([a-z-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE))
    wanted = [Requirement(one) for one in metadata.get_all("Requires-Dist", [])]
    spark = {one.name: one.specifier for one in wanted if one.name in ("pyspark", "pyspark-client", "delta-spark")}

    assert spark["pyspark"] == spark["pyspark-client"]
    for package, allowed in spark.items():
        major, minor, patch = locked[package].split(".")
        assert locked[package] in allowed
        assert f"{major}.{minor}.{int(patch) + 1}" not in allowed, (
            "run make test-packaging with the newer version first"
        )
    # `pip install` at the lowest allowed versions can only be tried if each has a lower bound.
    unbounded = [
        str(one)
        for one in wanted
        if one.name != "onlyonce-pipelines" and not one.specifier and _is_installed_by_users(one)
    ]
    assert unbounded == []
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]


def _is_installed_by_users(wanted: Requirement) -> bool:
    return wanted.marker is None or "dev" not in str(wanted.marker)


def test_the_package_reads_its_data_from_a_zip(wheel: Path) -> None:
    """As executors do that get the wheel by `--py-files`."""
    asked = "from onlyonce import Pipeline; from onlyonce.database import formats; print(formats.needed())"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {asked}"],
        cwd=wheel.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == formats.needed()


def test_a_declaration_against_the_old_names_is_told_the_new_one_where_there_is_only_the_wheel(
    wheel: Path, tmp_path: Path
) -> None:
    """There is no folder `jobs` then, so it is another name that Python misses."""
    (tmp_path / "old.py").write_text("from jobs.model.declare import Pipeline\n")
    asked = "from onlyonce.declare.loading import load; from pathlib import Path; load([Path('old.py')])"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = [{str(wheel)!r}, *(p for p in sys.path if p not in ({str(ROOT)!r}, ''))]; {asked}"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 1
    assert "from onlyonce import Pipeline, Output" in done.stderr
