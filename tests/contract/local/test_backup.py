"""A backup of one moment comes back without a finding; of two moments the doctor says which is the older.

The commands are those of the page `docs/how-to/backup-restore-upgrade.md`: pg_dump, pg_restore and tar, on the real
PostgreSQL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.database.connect import Database
from onlyonce.local import postgres
from onlyonce.operate import audit, doctor
from onlyonce.settings import ROOT
from tests.contract.conftest import Log
from tests.contract.shop import Shop, at, shop

__all__ = ["shop"]
PAGE = (ROOT / "docs" / "how-to" / "backup-restore-upgrade.md").read_text()
PACK = [
    "pg_dump --format=custom --file=backup/log.dump",
    'tar --format=posix -C "$ONLYONCE_HOME" -cf backup/home.tar data tables inbox format',
]
UNPACK = [
    'pg_restore --exit-on-error --no-owner --dbname="$PGDATABASE" backup/log.dump',
    'tar -C "$ONLYONCE_HOME" -xf backup/home.tar',
]
Restore = Callable[[Path, Path], set[str]]


def do(command: str, folder: Path, url: str) -> None:
    """A command of the page, in the folder that has `backup`."""
    assert command in PAGE
    place = make_url(url)
    known = {"PGHOST": place.host, "PGPORT": place.port, "PGUSER": place.username, "PGPASSWORD": place.password}
    environment = os.environ | {key: str(value) for key, value in known.items()} | {"PGDATABASE": str(place.database)}
    environment["PATH"] = f"{postgres._installed()}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def pack(folder: Path, url: str) -> Path:
    """A backup of now; gives the folder that holds `backup`."""
    (folder / "backup").mkdir(parents=True)
    for command in PACK:
        do(command, folder, url)
    return folder


@pytest.fixture
def two(shop: Shop, tmp_path: Path) -> tuple[Path, Path]:
    """Backups of two moments, between which the shop has worked."""
    (settings.home() / "inbox").mkdir(exist_ok=True)
    made = []
    for number in range(2):
        shop.receive((f"a{number}", at(number)), ('{"id"', "the line is no JSON object"))
        shop.output(closes=(at(number),))
        shop.die()
        made.append(pack(tmp_path.parent / f"{tmp_path.name}-{number}", shop.log.url))
    return made[0], made[1]


@pytest.fixture
def restore(shop: Shop, new_log: Callable[[], Log], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Restore:
    """Brings back the log of one backup and the folder of another; gives what the doctor finds."""
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)

    def bring(log: Path, home: Path) -> set[str]:
        fresh = new_log()
        fresh.rows("DROP SCHEMA onlyonce CASCADE; DROP SCHEMA onlyonce_private CASCADE")
        for folder in ("data", "tables", "inbox"):
            shutil.rmtree(settings.home() / folder)
        do(UNPACK[0], log, fresh.url)
        do(UNPACK[1], home, fresh.url)
        monkeypatch.setenv("ONLYONCE_DATABASE_URL", fresh.url)
        return {row["finding"] for row in doctor.main(["--grace=0"]).tables["findings"]}

    return bring


def test_a_backup_of_one_moment_comes_back_whole(two: tuple[Path, Path], restore: Restore) -> None:
    """Either one: no finding, and the rows of `events` are those that the log vouches for."""
    for one in two:
        assert restore(one, one) == set()
        found, _ = audit.examine_data(Database(settings.database_url()), declarations.load(), lambda _: None)
        assert [line for line in found if "events" in line] == []


def test_an_older_log_and_an_older_folder_are_told_apart(two: tuple[Path, Path], restore: Restore) -> None:
    """In the words of the page, which has the way out of each."""
    older, newer = two

    assert "log behind the tables" in restore(older, newer)
    assert {"tables behind the log", "checkpoint"} & restore(newer, older)
    for finding in ("log behind the tables", "tables behind the log", "checkpoint"):
        assert finding in PAGE
