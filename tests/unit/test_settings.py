"""Where the state is when nobody says so."""

from __future__ import annotations

import errno
import json
import os
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onlyonce import environment, settings, unexpected
from onlyonce.cli import app
from onlyonce.cli.platform import page
from onlyonce.core.errors import Refused


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own folder, and no ONLYONCE_HOME."""
    monkeypatch.delenv("ONLYONCE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    return tmp_path / "person"


def test_the_home_of_a_checkout_is_beside_it_and_of_a_package_the_users(
    person: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies among installed packages is deleted with them."""
    monkeypatch.setattr(settings, "ROOT", tmp_path / "site-packages")
    assert settings.home() == person / ".onlyonce"
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "pyproject.toml").touch()
    monkeypatch.setattr(settings, "ROOT", tmp_path / "checkout")
    assert settings.home() == tmp_path / "checkout" / ".onlyonce"


def test_a_platform_among_the_packages_is_told_and_never_taken_for_none(
    person: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version has made it there: moved, or named, it is found."""
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    (tmp_path / ".onlyonce").mkdir()
    with pytest.raises(Refused, match="among the installed packages"):
        settings.home()
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / ".onlyonce"))
    assert settings.home() == tmp_path / ".onlyonce"
    monkeypatch.delenv("ONLYONCE_HOME")
    person.mkdir()
    (tmp_path / ".onlyonce").rename(person / ".onlyonce")
    assert settings.home() == person / ".onlyonce"


def test_whatever_says_how_to_install_an_extra_names_our_distribution() -> None:
    """`onlyonce` in the package index is a stranger's."""
    named = tomllib.loads((settings.ROOT / "pyproject.toml").read_text())["project"]["name"]
    pages = [
        settings.ROOT / "README.md",
        *(settings.ROOT / "docs").rglob("*.md"),
        settings.ROOT / "pyproject.toml",
        *(settings.ROOT / "onlyonce").rglob("*.py"),
    ]
    found = {name for page in pages for name in re.findall(r"([\w-]*onlyonce[\w-]*)\[\w+", page.read_text())}

    assert found == {named} == {"onlyonce-pipelines"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without a file of settings."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is asked again when it changes; a path in the file is meant from the file's folder."""
    default = settings.keep_units_days()
    elsewhere = place / "etc" / "mine.toml"
    elsewhere.parent.mkdir()
    elsewhere.write_text('keep_units_days = 7\narchive = "old"\npipelines = ["a.py", "/b.py"]\n')
    monkeypatch.setenv("ONLYONCE_CONFIG", str(elsewhere))
    monkeypatch.delenv("ONLYONCE_PIPELINES", raising=False)
    assert (settings.keep_units_days(), settings.archive()) == (7, elsewhere.parent / "old")
    assert settings.pipeline_files() == [elsewhere.parent / "a.py", Path("/b.py")]
    monkeypatch.setenv("ONLYONCE_KEEP_UNITS_DAYS", "8")
    assert settings.keep_units_days() == 8
    monkeypatch.setenv("ONLYONCE_KEEP_UNITS_DAYS", "")
    assert settings.keep_units_days() == 7
    monkeypatch.delenv("ONLYONCE_CONFIG")
    assert settings.keep_units_days() == default
    (place / "onlyonce.toml").write_text("keep_units_days = 9\n")
    assert settings.keep_units_days() == 9


@pytest.mark.parametrize(
    ("file", "variable", "told"),
    [
        ("", "PG_PORT=high", ["ONLYONCE_PG_PORT is 'high'", "a whole number from 1 to 65535; without it: 54318"]),
        ("", "VACUUM_HOURS=2", ["ONLYONCE_VACUUM_HOURS is '2'", "a whole number from 24"]),
        ("", "SPARK_LOG=loud", ["ONLYONCE_SPARK_LOG is 'loud'", "DEBUG or INFO"]),
        ("", "SCHEDULE=foo", ["ONLYONCE_SCHEDULE is 'foo'", "a cron expression of five fields"]),
        ("", "DRIVER_MEMORY=much", ["ONLYONCE_DRIVER_MEMORY is 'much'", "a number with k, m, g or t"]),
        ("", "CONFIG=none.toml", ["ONLYONCE_CONFIG names", "none.toml"]),
        ("heartbeat = 0", "", ["heartbeat in", "onlyonce.toml is 0", "a number above 0"]),
        ("spark_ui = 'perhaps'", "", ["spark_ui in", "is 'perhaps'", "true or false"]),
        ("shedule = 'none'", "", ["onlyonce.toml has 'shedule'", "did you mean 'schedule'?"]),
        ("home = ", "", ["onlyonce.toml can't be read"]),
        ("database_url = 5", "", ["database_url in", "does not have the form that it needs"]),
    ],
)
def test_a_wrong_setting_is_told_in_three_lines(
    place: Path, monkeypatch: pytest.MonkeyPatch, file: str, variable: str, told: list[str]
) -> None:
    """Which variable or file, what stands there, what is allowed; and nothing of a secret."""
    (place / "onlyonce.toml").write_text(file)
    name, _, value = variable.partition("=")
    if name:
        monkeypatch.setenv(f"ONLYONCE_{name}", value)
    with pytest.raises(Refused) as refused:
        settings.home()

    text = str(refused.value)
    assert len(text.splitlines()) == 3
    assert [part for part in told if part not in text] == []


def test_the_command_tells_each_value_and_its_origin_and_no_secret(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "onlyonce.toml").write_text("keep_units_days = 7\n")
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://me:very-secret@there/log")
    result = CliRunner().invoke(app, ["settings", "--json"])
    found = {row["setting"]: (row["value"], row["from"]) for row in json.loads(result.stdout)}

    assert found["keep_units_days"] == ("7", str(place / "onlyonce.toml"))
    assert found["database_url"] == ("**********", "environment")
    assert found["keep_staged_days"] == ("1", "default")
    assert "very-secret" not in result.stdout


def test_the_page_of_the_settings_is_up_to_date() -> None:
    """`onlyonce settings --markdown > docs/reference/settings.md` makes it."""
    assert (settings.ROOT / "docs" / "reference" / "settings.md").read_text() == page()


def test_one_module_reads_the_environment() -> None:
    """But fail-points, which must need nothing, the suite that arms them, and the check before there is an
    environment."""
    exceptions = {
        "onlyonce/environment.py",
        "onlyonce/failpoints.py",
        "onlyonce/testing/scratch.py",
        "onlyonce/local/prerequisites.py",
    }
    files = [
        path for folder in ("onlyonce", "dags", "plugins", "jobs") for path in (settings.ROOT / folder).rglob("*.py")
    ]
    found = {
        str(path.relative_to(settings.ROOT))
        for path in files
        if re.search(r"os\.environ|getenv\(|import environ\b", path.read_text())
    }

    assert found == exceptions


@pytest.mark.parametrize(("there", "then"), [(None, "ours"), ("", "ours"), ("theirs", "theirs")])
def test_an_empty_variable_counts_as_missing(monkeypatch: pytest.MonkeyPatch, there: str | None, then: str) -> None:
    """For one that is read, and for one that is set if it is missing."""
    monkeypatch.setenv("THE_VARIABLE", there or "")
    if there is None:
        monkeypatch.delenv("THE_VARIABLE")
    assert (environment.variable("THE_VARIABLE") is None) is (then == "ours")
    environment.set_missing("THE_VARIABLE", "ours")

    assert environment.variable("THE_VARIABLE") == then


def test_a_home_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    """By the setting that names it."""
    (tmp_path / "file").touch()

    with pytest.raises(Refused, match="can't be made") as refused:
        settings.make_folder(tmp_path / "file" / "home")

    assert "ONLYONCE_HOME" in refused.value.hint


@pytest.mark.parametrize(
    "code, below, refused",
    [(errno.EACCES, True, True), (errno.EROFS, True, True), (errno.ENOENT, True, False), (errno.EACCES, False, False)],
)
def test_a_home_without_permission_is_refused_whatever_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, below: bool, refused: bool
) -> None:
    """Running the command again does not help; a file elsewhere may be the function's own."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    file = tmp_path / "home" / "tmp" if below else tmp_path / "elsewhere"

    found = unexpected.told(OSError(code, os.strerror(code), str(file)))

    assert (type(found) is Refused) == refused
    if refused:
        assert found.what == f"no permission for {file} in the platform's home: {os.strerror(code)}"
        assert "ONLYONCE_HOME" in found.hint
