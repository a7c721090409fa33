"""A person who reads what an erasure, a killed command or an error leaves."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from onlyonce import unexpected
from onlyonce.cli import work
from onlyonce.database.connect import transaction
from onlyonce.operate import erase_inputs
from tests.contract.conftest import Log, log, new_log  # noqa: F401 - fixtures
from tests.security.statements import states


@states("While a line is blanked, the copy of its file is readable by its owner only.")
def test_the_copy_of_a_blanked_file_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its first byte on, whatever the umask; then it has the permissions of the file."""
    file = tmp_path / "a.jsonl"
    file.write_text("one\ntwo\n")
    file.chmod(0o640)
    seen = []
    plain = os.fchmod

    def fchmod(descriptor: int, mode: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        plain(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", fchmod)
    before = os.umask(0)
    try:
        erase_inputs.blank_files(erase_inputs.Lines(file, [(0, 3)], (file.stat().st_size, file.stat().st_mtime_ns)))
    finally:
        os.umask(before)

    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("   \ntwo\n", 0o640)
    assert seen == [0o600]


@states(
    "What goes to the system's temporary folder has a name that no other user can guess, in a folder that no "
    "other user may enter."
)
def test_no_file_of_tmp_has_a_name_that_can_be_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the home can't be made: another user could have put a link at that name, and the output would go to the
    file that it names."""
    (tmp_path / "file").write_text("")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    files = [work._spark_log(), work._spark_log(), unexpected.keep(ValueError("u17"))]

    folders = {file.parent for file in files}
    assert len(folders) == len(files)
    assert all(folder.parent == temporary and stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in folders)


@states("An error of a database has no parameters in it: neither values of records nor the salt of an erasure.")
def test_an_error_has_no_parameters(log: Log) -> None:  # noqa: F811
    """SQLAlchemy would print them."""
    with pytest.raises(DBAPIError) as raised, transaction(log.database) as connection:
        connection.execute(text("SELECT 1 / CAST(:zero AS int), CAST(:value AS text)"), {"zero": 0, "value": "s3cret"})

    assert "s3cret" not in str(raised.value)
