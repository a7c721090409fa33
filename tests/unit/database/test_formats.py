"""The format: a hash of all that is stored."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from docs.generate.views import commented
from onlyonce import settings
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.frontier import Frontier
from onlyonce.database import statements
from onlyonce.receive import events
from tests.support.platform import ROOT

NO_COLUMNS = ("OO_PREFIX", "OO_BYTES")
BASELINE = ROOT / "sql" / "migrations"
COLUMNS = Path(__file__).with_name("stored_columns.txt")
DIGEST = "5d3a635ae787eef3"
TABLE = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?([\w.`]+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
COLUMN = re.compile(r"^ {4}`?([a-z_]+)`? +[a-zA-Z]", re.MULTILINE)


def test_stored_names_are_those_of_the_tables() -> None:
    """The schema of `events` has each of its names once, and so has the struct of the frontier."""
    plain = events.PLATFORM.replace(events.FRONTIER, "struct")
    columns = [column.split()[0] for column in plain.split(", ")]

    assert [*columns, stored_names.OO_WINDOW] == [
        value for name, value in vars(stored_names).items() if name.startswith("OO_") and name not in NO_COLUMNS
    ]
    assert [field.name for field in events.FRONTIER_ROW] == [field.name for field in fields(Frontier)]


def test_columns_of_tables_and_views_equal_their_literals() -> None:
    """A rename of a column is a change of the interface, of tables and of views."""
    found = {f"view {view}": " ".join(columns) for view, (_, columns) in sorted(_views().items())}
    for part in statements.BASELINES:
        for table, body in TABLE.findall((BASELINE / f"{part}.sql").read_text()):
            found[f"{part} {table}"] = " ".join(COLUMN.findall(body))

    assert "".join(f"{name}: {columns}\n" for name, columns in found.items()) == COLUMNS.read_text()


def test_literals_of_columns_are_those_of_before() -> None:
    """A script that renames in all files renames in the list too: then its hash differs."""
    assert hashlib.sha256(COLUMNS.read_bytes()).hexdigest()[:16] == DIGEST


def _views() -> dict[str, tuple[str, dict[str, str]]]:
    return commented("\n".join(path.read_text() for path in sorted((ROOT / "sql" / "views").glob("*.sql"))))


@pytest.mark.parametrize("name", sorted(path.name for path in BASELINE.iterdir()))
def test_each_stored_file_changes_the_format(tmp_path: Path, name: str) -> None:
    """Including each baseline of a sink's own database."""
    changed = shutil.copytree(BASELINE, tmp_path / "migrations")
    (changed / name).write_text((changed / name).read_text() + "\n")

    assert statements.described(changed) != statements.described(BASELINE)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is not there yet."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_new_home_holds_the_format(home: Path) -> None:
    """Result tables of an earlier home may lie there already."""
    (home / "tables" / "shop").mkdir(parents=True)
    statements.make_home()
    statements.make_home()

    assert (home / "format").read_text().strip() == statements.needed_format()
    assert {path.name for path in home.iterdir()} == {"format", "tables", *settings.FOLDERS}


@pytest.mark.parametrize("made", ["dev-00000000", "1"])
def test_home_of_another_format_is_refused(home: Path, made: str) -> None:
    """Its own format stays in it."""
    (home / "data").mkdir(parents=True)
    (home / "format").write_text(made)
    with pytest.raises(Refused) as refusal:
        statements.make_home()

    assert settings.home() == home
    assert made in refusal.value.what
    assert statements.needed_format() in refusal.value.what
    assert "stay readable" in refusal.value.data
    assert "start-over.md" in refusal.value.hint
    assert (home / "format").read_text() == made
