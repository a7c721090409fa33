"""Another user of the machine at the embedded home."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onlyonce import settings, unexpected
from onlyonce.cli import app, work
from onlyonce.database import statements
from onlyonce.local import airflow_server, platform, processes
from onlyonce.operate import doctor
from onlyonce.settings import ROOT
from tests.local.conftest import home  # noqa: F401 - a fixture
from tests.security.statements import states

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")


@states("No other user may enter the folders of `.onlyonce/` (inbox, tables, state, files, logs, tmp: mode 700)")
@needs_root
def test_another_user_reads_nothing_in_the_home(home: Path) -> None:  # noqa: F811
    """The server runs as an account of its own, and yet reaches its folder."""
    platform.database()
    for name in settings.FOLDERS:
        (home / name / "below").mkdir(mode=0o755)
        (home / name / "below" / "secret").write_text("u17")
    secrets = [*home.rglob("secret"), *home.glob("postgres/*.url"), *home.glob("postgres/*.json")]

    read = subprocess.run(
        ["cat", *secrets], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False
    )
    listed = subprocess.run(["ls", home], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False)

    assert len(secrets) >= len(settings.FOLDERS) + 5
    assert (read.stdout, listed.stdout) == (b"", b"")
    assert doctor.permissions() == []


@states(
    "`onlyonce doctor` reports data that belongs to `nobody`, with the commands that give it an account of its own."
)
@needs_root
def test_the_doctor_reports_the_account_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of another account is not reported."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.delenv("ONLYONCE_DATABASE_URL", raising=False)
    tmp_path.chmod(0o711)
    data = tmp_path / "postgres" / "data"
    data.mkdir(parents=True)
    assert doctor.permissions() == []
    os.chown(data, pwd.getpwnam("nobody").pw_uid, -1)

    [found] = doctor.permissions()

    assert "account nobody" in found.what
    assert f"chown --recursive postgres: {tmp_path / 'postgres'}" in str(found.repair.command)


READABLE = 'while read -r file; do [ -r "$file" ] && echo "$file"; done; true'


HOSTILE = "a\x1b]0;owned\x07b\x9b2J"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Ran:
    """A run of a pipeline in an embedded home, by the command, with the widest umask."""

    home: Path
    temporary: Path
    done: subprocess.CompletedProcess[str]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the platform."""
        return command(self.temporary, *arguments)


def command(temporary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command, with a temporary folder of its own."""
    environment = {**os.environ, "TMPDIR": str(temporary), "ONLYONCE_PIPELINES": str(ROOT / "jobs" / "pipelines.py")}
    program = str(Path(sys.executable).with_name("onlyonce"))
    return subprocess.run(
        [program, *arguments], env=environment, umask=0, capture_output=True, text=True, check=False, cwd=temporary
    )


@pytest.fixture(scope="module")
def ran(home: Path) -> Ran:  # noqa: F811
    """Run a pipeline over a good record and hostile ones, in a file with a hostile name."""
    platform.database()
    inbox, temporary = home / "inbox" / "flights", home.parent / "temporary"
    inbox.mkdir(parents=True)
    temporary.mkdir()
    good = (
        '{"carrier": "UA", "flight": 1, "origin": "EWR", "scheduled_departure": "2013-01-01T10:00:00Z", "arr_delay": 1}'
    )
    hostile = good.replace("UA", json.dumps(HOSTILE)[1:-1])
    (inbox / f"{HOSTILE}.jsonl").write_text(f"{good}\n{HOSTILE}\n{hostile}\n")
    return Ran(home, temporary, command(temporary, "run", "flights", "--close"))


@states(
    "Nothing that a run writes into `.onlyonce/` or into the system's temporary folder can be read by another "
    "user, whatever the umask."
)
@needs_root
@pytest.mark.spark
def test_another_user_reads_nothing_that_a_run_has_written(ran: Ran) -> None:
    """The driver, its JVM and its workers.

    The umask is left to the user, who may share a result table outside the home.
    """
    written = [
        path
        for path in (*ran.home.rglob("*"), *ran.temporary.rglob("*"))
        if path.is_file() and path.name != "format" and "postgres" not in path.parts
    ]
    names = "".join(f"{path}\n" for path in written if HOSTILE not in path.name)
    ran.temporary.chmod(0o1777)
    read = subprocess.run(
        ["sh", "-c", READABLE], input=names, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip

    assert ran.done.returncode == 0, ran.done.stderr
    assert len([path for path in written if path.suffix == ".parquet"]) > 2
    assert read.stdout == ""


@states(
    r"A control character of a record, a file name or an error is printed as `\x1b`, in tables, error lines, logs "
    r"and progress lines."
)
@pytest.mark.spark
@pytest.mark.parametrize(
    "asked",
    ["run", "invalid flights", "status", "outputs", "sql 'select * from onlyonce.invalid'", "trace flights nothing"],
)
def test_no_command_prints_a_control_character(ran: Ran, asked: str) -> None:
    """Of records and a file name that a running platform has taken in."""
    done = ran.done if asked == "run" else ran.command(*shlex.split(asked))

    assert CONTROLS.findall(done.stdout + done.stderr) == []
    assert asked != "invalid flights" or r"\x1b]0;owned" in done.stdout


WRITERS: dict[str, Callable[[Path], object]] = {
    "log of Spark": lambda at: work._spark_log().touch(),
    "log of a process": lambda at: processes.open_log(at, "airflow").close(),
    "traceback": lambda at: unexpected.keep(ValueError("u17")),
    "format": lambda at: statements.make_home(),
    "feed": lambda at: CliRunner().invoke(
        app, ["feed", "flights", "--files", "1", "--records", "5"], catch_exceptions=False
    ),
    "environment of Airflow": lambda at: airflow_server.environment(),
}


@states("Whichever command makes a folder of `.onlyonce/` makes it so, even one that runs before `up`.")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_command_before_up_makes_private_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    """With the umask of most shells. `up` leaves a folder that exists as it is."""
    at = tmp_path / "home"
    monkeypatch.setenv("ONLYONCE_HOME", str(at))
    monkeypatch.delenv("ONLYONCE_DATABASE_URL", raising=False)
    before = os.umask(0o022)
    try:
        with suppress(FileNotFoundError):  # there is no server yet
            WRITERS[writer](at)
    finally:
        os.umask(before)

    assert [*at.iterdir()] != []
    assert [*settings.wider_folders(at)] == []


@states(
    "So does a job whose database is one of your own, and so does `onlyonce init` with the inbox of a project, "
    "which gets a copy of your sample."
)
@pytest.mark.parametrize("made", ["home", "project"])
def test_data_outside_the_embedded_platform_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    """With the umask of most shells."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://u@nowhere.invalid/db")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample.jsonl").write_text('{"id": "a", "at": "2026-01-01T00:00:00Z", "n": 1}\n')
    before = os.umask(0o022)
    try:
        if made == "home":
            statements.make_home()
        else:
            subprocess.run(
                [Path(sys.executable).with_name("onlyonce"), "init", "shop", "--from", "sample.jsonl"],
                check=True,
                capture_output=True,
            )
    finally:
        os.umask(before)

    folders = (
        [tmp_path / "home" / name for name in settings.FOLDERS]
        if made == "home"
        else [one.parent for one in tmp_path.glob("*/inbox/*")]
    )
    assert {one: oct(one.stat().st_mode & 0o777) for one in folders} == dict.fromkeys(folders, "0o700") != {}


@states("`onlyonce doctor` reports a folder that is wider, with the command that closes it.")
def test_the_doctor_reports_a_wider_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that closes it."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.delenv("ONLYONCE_DATABASE_URL", raising=False)
    settings.make_folder(settings.home())
    tmp_path.chmod(0o711)
    before = doctor.permissions()
    (tmp_path / "inbox").chmod(0o750)
    tmp_path.chmod(0o755)

    found = doctor.permissions()

    assert before == []
    assert [one.repair.command for one in found] == [f"chmod 711 {tmp_path}", f"chmod 700 {tmp_path / 'inbox'}"]
