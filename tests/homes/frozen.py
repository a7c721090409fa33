"""What a format describes, as it was when its home was made."""

from __future__ import annotations

import hashlib
from pathlib import Path

from docs.generate.views import commented

ROOT = Path(__file__).resolve().parents[2]
HOMES = Path(__file__).parent
BASELINE = ROOT / "sql" / "migrations"
BASELINES = ("authority", "platform", "mysql")
STORED_NAMES = "stored_names.txt"
"""The names outside the databases that a stored byte depends on."""


def described(folder: Path = BASELINE) -> str:
    """Hash the baselines and the stored names of a folder."""
    files = [*(f"{part}.sql" for part in BASELINES), STORED_NAMES]
    return hashlib.sha256("\0".join((folder / name).read_text() for name in files).encode()).hexdigest()


def columns_of_views() -> dict[str, list[str]]:
    """Return the columns of each view, in order."""
    script = "\n".join(path.read_text() for path in sorted((ROOT / "sql" / "views").glob("*.sql")))
    return {view: list(columns) for view, (_, columns) in sorted(commented(script).items())}


def freeze(home: Path) -> None:
    """Note beside a home what its format describes, and the views of then."""
    (home / "described.txt").write_text(described() + "\n")
    views = "".join(f"{view}: {' '.join(columns)}\n" for view, columns in columns_of_views().items())
    (home / "views.txt").write_text(views)
