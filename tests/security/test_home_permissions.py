"""Another user of the machine at the embedded home."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.local import platform
from onlyonce.operate import disk_state
from onlyonce.settings import home_folders
from tests.local.conftest import home  # noqa: F401 - a fixture
from tests.security.statements import states

NOBODY = 65534


@states("No other user may enter the folders of `.onlyonce/` (inbox, tables, state, files, logs, tmp: mode 700)")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")
def test_another_user_reads_nothing_in_the_home(home: Path) -> None:  # noqa: F811
    """The server runs as an account of its own, and yet reaches its folder."""
    platform.database()
    for name in home_folders.FOLDERS:
        (home / name / "below").mkdir(mode=0o755)
        (home / name / "below" / "secret").write_text("u17")
    secrets = [*home.rglob("secret"), *home.glob("postgres/*.url"), *home.glob("postgres/*.json")]

    read = subprocess.run(["cat", *secrets], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False)
    listed = subprocess.run(["ls", home], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False)

    assert len(secrets) >= len(home_folders.FOLDERS) + 5
    assert (read.stdout, listed.stdout) == (b"", b"")
    assert disk_state.permissions() == []


@states("`onlyonce doctor` reports a folder that is wider, with the command that closes it.")
def test_the_doctor_reports_a_wider_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that closes it."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.delenv("ONLYONCE_DATABASE_URL", raising=False)
    home_folders.make(settings.home())
    tmp_path.chmod(0o711)
    before = disk_state.permissions()
    (tmp_path / "inbox").chmod(0o750)
    tmp_path.chmod(0o755)

    found = disk_state.permissions()

    assert before == []
    assert [one.repair.command for one in found] == [f"chmod 711 {tmp_path}", f"chmod 700 {tmp_path / 'inbox'}"]
