"""The format: a hash of all that is stored."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.database import formats
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.frontier import Frontier
from onlyonce.receive import event_files, events
from onlyonce.settings import home_folders
from tests.support.platform import ROOT

NO_COLUMNS = ("OO_PREFIX", "OO_BYTES")
BASELINE = ROOT / "sql" / "migrations"


def test_stored_names_are_those_of_the_tables() -> None:
    """The schema of `events` has each of its names once, and so has the struct of the frontier."""
    plain = events.PLATFORM.replace(events.FRONTIER, "struct")
    columns = [column.split()[0] for column in plain.split(", ")]

    assert [*columns, stored_names.OO_WINDOW] == [
        value for name, value in vars(stored_names).items() if name.startswith("OO_") and name not in NO_COLUMNS
    ]
    assert [field.name for field in event_files.FRONTIER] == [field.name for field in fields(Frontier)]


@pytest.mark.parametrize("name", sorted(path.name for path in BASELINE.iterdir()))
def test_each_stored_file_changes_the_format(tmp_path: Path, name: str) -> None:
    """Including each baseline of a sink's own database."""
    changed = shutil.copytree(BASELINE, tmp_path / "migrations")
    (changed / name).write_text((changed / name).read_text() + "\n")

    assert formats.described(changed) != formats.described(BASELINE)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is not there yet."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_new_home_holds_the_format(home: Path) -> None:
    """Result tables of an earlier home may lie there already."""
    (home / "tables" / "shop").mkdir(parents=True)
    formats.make_home()
    formats.make_home()

    assert (home / "format").read_text().strip() == formats.needed()
    assert {path.name for path in home.iterdir()} == {"format", "tables", *home_folders.FOLDERS}


@pytest.mark.parametrize("made", ["dev-00000000", "1"])
def test_home_of_another_format_is_refused(home: Path, made: str) -> None:
    """Its own format stays in it."""
    (home / "data").mkdir(parents=True)
    (home / "format").write_text(made)
    with pytest.raises(Refused) as refusal:
        formats.make_home()

    assert settings.home() == home
    assert made in refusal.value.what
    assert formats.needed() in refusal.value.what
    assert "stay readable" in refusal.value.data
    assert "start-over.md" in refusal.value.hint
    assert (home / "format").read_text() == made
