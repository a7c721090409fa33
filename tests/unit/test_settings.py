"""Where the state is when nobody says so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.model.errors import Refused


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
