"""The folders at the top of the embedded home.

Only their owner may enter them, whatever permissions the files below them have.

PostgreSQL's account must reach its own folder through the home if the owner is root, so the home itself may be entered
(0711), not listed.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

PRIVATE = 0o700
ENTERED = 0o711
FOLDERS = ("airflow", "checks", "data", "files", "inbox", "logs", "run", "spark-warehouse", "tables", "tmp")
OF_SERVER = ("postgres", "server")
"""PostgreSQL's account enters these. What is secret below them is its own, or a file of mode 600."""


def make(home: Path, names: Sequence[str] = FOLDERS) -> None:
    """Make private folders that are missing, and the home.

    A folder that exists keeps its permissions; the doctor reports a wider one.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=ENTERED, exist_ok=True)
    for name in names:
        (home / name).mkdir(mode=PRIVATE, exist_ok=True)


def inside(home: Path, name: str, *below: str) -> Path:
    """Make a private folder of a home if it is missing, with a folder below it, and return that.

    Whichever command comes first makes it, `up` or not.
    """
    make(home, (name,))
    folder = home.joinpath(name, *below)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def wider(home: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield each folder of a home that other users may enter or read, with its permissions and those it should have."""
    if not home.is_dir():
        return
    below = sorted(
        path for path in home.iterdir() if path.is_dir() and not path.is_symlink() and path.name not in OF_SERVER
    )
    for path, allowed in [(home, ENTERED), *((one, PRIVATE) for one in below)]:
        found = stat.S_IMODE(path.stat().st_mode)
        if found & ~allowed & 0o077:
            yield path, found, allowed
