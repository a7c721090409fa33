"""The format is frozen: what it describes, and the refusal of another one."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.frontier import Frontier
from onlyonce.database import statements
from onlyonce.receive import events
from tests.homes.frozen import BASELINE, BASELINES, HOMES, columns_of_views, described

NO_COLUMNS = ("OO_PREFIX", "OO_BYTES")
COLUMNS = Path(__file__).with_name("stored_columns.txt")
DIGEST = "a9c21f4635d03bca"
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
    found = {f"view {view}": " ".join(columns) for view, columns in columns_of_views().items()}
    for part in BASELINES:
        for table, body in TABLE.findall((BASELINE / f"{part}.sql").read_text()):
            found[f"{part} {table}"] = " ".join(COLUMN.findall(body))

    assert "".join(f"{name}: {columns}\n" for name, columns in found.items()) == COLUMNS.read_text()


def test_literals_of_columns_are_those_of_before() -> None:
    """A script that renames in all files renames in the list too: then its hash differs."""
    assert hashlib.sha256(COLUMNS.read_bytes()).hexdigest()[:16] == DIGEST


def test_format_describes_what_it_was_frozen_with() -> None:
    """Each format has a home in tests/homes, which a later version must open."""
    frozen = (HOMES / statements.FORMAT / "described.txt").read_text().strip()

    assert described() == frozen, (
        f"sql/migrations is not what format {statements.FORMAT} was frozen with: data of before can't be read. A change is a "
        "new format with a migration, never an edit. Before the first release: python -m tests.homes.make"
    )


def test_views_only_grow() -> None:
    """A view of format 1 keeps its name and its columns in their order; new columns come after them."""
    now = columns_of_views()
    for line in (HOMES / "1" / "views.txt").read_text().splitlines():
        view, columns = line.split(": ")
        assert now[view][: len(columns.split())] == columns.split(), f"the view {view} lost or moved columns"


@pytest.mark.parametrize("name", sorted(path.name for path in BASELINE.iterdir()))
def test_each_stored_file_changes_the_format(tmp_path: Path, name: str) -> None:
    """Including each baseline of a sink's own database."""
    changed = shutil.copytree(BASELINE, tmp_path / "migrations")
    (changed / name).write_text((changed / name).read_text() + "\n")

    assert described(changed) != described()


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

    assert (home / "format").read_text().strip() == statements.FORMAT
    assert {path.name for path in home.iterdir()} == {"format", "tables", *settings.FOLDERS}


@pytest.mark.parametrize("asked", range(5))
def test_home_that_another_process_makes_meanwhile_is_not_of_another_format(home: Path, asked: int) -> None:
    """The other process makes all of it before any one of the questions that this process asks the disk: three now."""
    left = iter(range(asked + 1))

    class Asked(type(home)):  # type: ignore[misc]
        """The home's path, or one below it; the home is made before question number `asked`."""

        def stat(self, **options: Any) -> Any:
            if next(left, None) == asked:
                statements.make_home()
            return super().stat(**options)

        def open(self, *args: Any, **options: Any) -> Any:
            if next(left, None) == asked:
                statements.make_home()
            return super().open(*args, **options)

    assert statements.of_home(Asked(home)) in {None, statements.FORMAT}
    assert (home / "data").exists() or asked > 2, "the other process has made the home"


@pytest.mark.parametrize(
    ("made", "newer"), [("dev-00000000", False), ("0", False), ("2", True), ("10", True), ("1 and 2", True)]
)
def test_home_of_another_format_is_refused(home: Path, made: str, newer: bool) -> None:
    """Its own format stays in it. The way on from a newer one is a newer version, not a new home."""
    (home / "data").mkdir(parents=True)
    (home / "format").write_text(made)
    with pytest.raises(Refused) as refusal:
        statements.make_home()

    assert settings.home() == home
    assert made in refusal.value.what
    assert statements.FORMAT in refusal.value.what
    assert "stay readable" in refusal.value.data
    assert "start-over.md" in refusal.value.hint
    assert ("a newer onlyonce made it" in refusal.value.hint) is newer
    assert ("start over with" in refusal.value.hint) is not newer
    assert (home / "format").read_text() == made
