"""`make compose-env`: secrets are made once, nobody else may read them, and no second call changes one."""

from __future__ import annotations

import base64
import os
import re
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.compose.composed import ENV_SCRIPT, ROOT, VARIABLE, load, strings, written_by_compose_env


def make(file: Path) -> subprocess.CompletedProcess[str]:
    """One call, under a mask that would let everybody read."""
    return subprocess.run(
        ["sh", "-c", 'umask 000; exec sh "$0" "$1"', str(ENV_SCRIPT), str(file)],
        capture_output=True,
        text=True,
        check=False,
    )


def secrets_of(file: Path) -> dict[str, str]:
    """The variables of a file."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_each_secret_is_there_and_of_its_own(tmp_path: Path) -> None:
    """All that the compose file asks for is written; long, distinct, and another one at the next machine."""
    assert make(tmp_path / "a").returncode == 0
    assert make(tmp_path / "b").returncode == 0
    first, second = secrets_of(tmp_path / "a"), secrets_of(tmp_path / "b")
    assert set(first) == set(written_by_compose_env())
    asked = {m["name"] for _, text in strings(load()) for m in VARIABLE.finditer(text) if m["kind"] == "?"}
    assert asked == set(first)
    assert len({*first.values(), *second.values()}) == 2 * len(first)
    assert min(map(len, first.values())) >= 24


def test_secrets_fit_where_they_are_put(tmp_path: Path) -> None:
    """A password goes through a URL unchanged, and the Fernet key is one."""
    make(tmp_path / ".env")
    secrets = secrets_of(tmp_path / ".env")
    for name in (name for name in secrets if name.endswith("PASSWORD")):
        assert make_url(f"postgresql://role:{secrets[name]}@host/db").password == secrets[name]
        assert re.fullmatch("[0-9a-f]+", secrets[name])
    assert len(base64.urlsafe_b64decode(secrets["AIRFLOW_FERNET_KEY"])) == 32


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """The file has mode 600 whatever the mask of the shell, and nothing else is left beside it."""
    make(tmp_path / ".env")
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [".env"]  # noqa: PTH208 - hidden files too, and in one list


def test_a_second_call_changes_nothing(tmp_path: Path) -> None:
    """A file that is there stays as it is, to the byte."""
    make(tmp_path / ".env")
    before = (tmp_path / ".env").read_bytes()
    again = make(tmp_path / ".env")
    assert (again.returncode, (tmp_path / ".env").read_bytes()) == (0, before)
    assert "not changed" in again.stdout


def test_a_file_that_lacks_a_secret_is_named_and_not_changed(tmp_path: Path) -> None:
    """An old file, or one with an empty secret: what is missing is said, and the file stays."""
    (tmp_path / ".env").write_text("ONLYONCE_ADMIN_PASSWORD=kept\nONLYONCE_WRITER_PASSWORD=\n")
    done = make(tmp_path / ".env")
    assert done.returncode == 1
    assert "ONLYONCE_WRITER_PASSWORD" in done.stderr
    assert "AIRFLOW_JWT_SECRET" in done.stderr
    assert "ONLYONCE_ADMIN_PASSWORD" not in done.stderr
    assert (tmp_path / ".env").read_text() == "ONLYONCE_ADMIN_PASSWORD=kept\nONLYONCE_WRITER_PASSWORD=\n"


def test_of_calls_at_once_one_makes_the_file(tmp_path: Path) -> None:
    """Many calls at the same time: one set of secrets, whole, that all find."""
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: make(tmp_path / ".env"), range(8)))
    assert [call.returncode for call in done] == [0] * 8
    assert sum("with new secrets" in call.stdout for call in done) == 1
    assert os.listdir(tmp_path) == [".env"]  # noqa: PTH208 - hidden files too, and in one list


@pytest.mark.parametrize("file", [".gitignore", ".dockerignore"])
def test_the_file_is_kept_out(file: str) -> None:
    """Neither git nor the builder takes the file."""
    lines = (ROOT / file).read_text().splitlines()
    assert ".env" in lines or "*" in lines
    assert "!.env" not in lines
