"""What a team installs: one wheel, built from this checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from onlyonce.database import statements

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
    assert {
        "onlyonce/py.typed",
        "onlyonce/sql/views/1_batches.sql",
        "onlyonce/airflow/page/templates/base.html",
    } <= set(names)
    # Links in the checkout, what they lead to in the wheel.
    compose = zipfile.ZipFile(wheel).read("onlyonce/scaffold/templates/docker-compose.yml")
    assert compose == (ROOT / "docker-compose.yml").read_bytes()
    assert "onlyonce/scaffold/templates/pipelines.py.template" in names
    # What NOTICE says of the wheel: nothing in it is of others.
    ours = subprocess.run(
        ["git", "ls-files", "onlyonce", "sql"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    places = {name if name.startswith("onlyonce/") else f"onlyonce/{name}" for name in ours}
    assert {name for name in names if ".dist-info/" not in name} <= places


def test_the_metadata_lets_pip_choose_versions_that_run(wheel: Path) -> None:
    """pip must find one version of pyspark and pyspark-client, and a delta-spark whose jar exists: those of the lock,
    at most."""
    metadata = _metadata(wheel)
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


def test_the_metadata_says_what_is_installed(wheel: Path) -> None:
    """License, notice, types, and each Python that the metadata allows, where an index shows them."""
    metadata = _metadata(wheel)
    low, high = sorted(int(minor) for minor in re.findall(r"3\.(\d+)", metadata["Requires-Python"]))
    found = {one.removeprefix("Programming Language :: Python :: ") for one in metadata.get_all("Classifier", [])}

    assert (metadata["License-Expression"], metadata.get_all("License-File")) == ("Apache-2.0", ["LICENSE", "NOTICE"])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert {one for one in found if one.startswith("3.")} == {f"3.{minor}" for minor in range(low, high)}
    assert {"Typing :: Typed", "Framework :: Apache Airflow :: Provider"} <= found


@pytest.mark.parametrize(
    "done, told, expected",
    [
        ("git tag v9.8.7", "", r"9\.8\.7"),
        (
            "git tag v9.8.7 && git -c user.name=one -c user.email=one@example.org commit --quiet --allow-empty "
            "--message more",
            "",
            r"9\.8\.8\.dev1",
        ),
        ("true", "", r"0\.0\.0\.dev\d+"),
        ("rm -rf .git", "", r"0\.0\.0\.dev0"),
        ("rm -rf .git", "9.8.7", r"9\.8\.7"),
    ],
    ids=["tagged", "after a tag", "no tag", "no history", "told"],
)
def test_the_version_is_that_of_the_tag(done: str, told: str, expected: str, tmp_path: Path) -> None:
    """In a shallow clone too; where there is no history, as in an archive, it is a fallback or what docker/Dockerfile
    is told."""
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", "--no-tags", "--sparse", ROOT.as_uri(), clone], check=True
    )
    subprocess.run(done, cwd=clone, shell=True, check=True)

    build = "import sys; from hatchling.build import prepare_metadata_for_build_wheel as prepare; prepare(sys.argv[1])"
    environment = os.environ | {"SETUPTOOLS_SCM_PRETEND_VERSION": told}
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=clone, env=environment, capture_output=True, check=True
    )

    [made] = tmp_path.glob("*.dist-info")
    assert re.fullmatch(expected, Parser().parsestr((made / "METADATA").read_text())["Version"])


def test_a_release_needs_a_tag(tmp_path: Path) -> None:
    """Else it would be published as a version that no commit has."""
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", "--no-tags", ROOT.as_uri(), tmp_path / "clone"], check=True
    )
    done = subprocess.run(["sh", "docker/release.sh"], cwd=tmp_path / "clone", capture_output=True, text=True)

    assert (done.returncode, (tmp_path / "clone" / "dist").exists()) == (64, False)
    assert "no tag" in done.stderr


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        [name] = [one for one in opened.namelist() if one.endswith(".dist-info/METADATA")]
        return Parser().parsestr(opened.read(name).decode())


def _is_installed_by_users(wanted: Requirement) -> bool:
    return wanted.marker is None or "dev" not in str(wanted.marker)


def test_the_package_reads_its_data_from_a_zip(wheel: Path) -> None:
    """As executors do that get the wheel by `--py-files`."""
    asked = "from onlyonce import Pipeline; from onlyonce.database import statements; print(statements.FORMAT)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {asked}"],
        cwd=wheel.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == statements.FORMAT


def test_a_declaration_against_the_old_names_is_told_the_new_one_where_there_is_only_the_wheel(
    wheel: Path, tmp_path: Path
) -> None:
    """There is no folder `jobs` then, so it is another name that Python misses."""
    (tmp_path / "old.py").write_text("from jobs.model.declare import Pipeline\n")
    asked = "from onlyonce.api.load import load; from pathlib import Path; load([Path('old.py')])"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = [{str(wheel)!r}, *(p for p in sys.path if p not in ({str(ROOT)!r}, ''))]; " f"{asked}"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 1
    assert "from onlyonce import Pipeline, Output" in done.stderr
