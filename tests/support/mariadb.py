"""The MariaDB that the tests of a session share, in a folder of its own; it hands out databases.

Debian has it as `mariadb-server`; `.ci/run` installs it. Without it the tests that need it are skipped, with the
reason; they fail in CI (`needed.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymysql

from onlyonce.local.processes import wait_until
from onlyonce.testing.scratch import free_port

SERVER = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin:/usr/libexec")
MISSING = "no MariaDB: apt-get install mariadb-server"
PATIENCE = 60.0
PLAIN = ["--innodb-use-native-aio=OFF", "--innodb-log-file-size=16M"]
"""A machine has only so many requests of the kernel's own asynchronous I/O for all servers on it."""
ACCOUNT = "CREATE USER IF NOT EXISTS 'writer'@'%' IDENTIFIED BY 'secret';\nGRANT ALL ON *.* TO 'writer'@'%';\n"


@dataclass
class MariaDB:
    """A server of tests. It waits for no disk: a test kills processes, never the machine."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert SERVER is not None
        arguments = [
            SERVER, "--no-defaults", f"--datadir={self.folder / 'data'}", f"--tmpdir={self.folder / 'tmp'}", f"--socket={self.folder / 's'}", f"--port={self.port}",
            "--bind-address=127.0.0.1", "--skip-name-resolve", f"--init-file={self.folder / 'accounts.sql'}",
            f"--pid-file={self.folder / 'pid'}", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0",
            "--performance-schema=OFF", *PLAIN, *_user(),
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as told:
            self.process = subprocess.Popen(arguments, stdout=told, stderr=told, start_new_session=True)
        wait_until(self._answers, PATIENCE, f"MariaDB: {self.folder / 'log'}")

    def kill(self) -> None:
        """SIGKILL, as when its machine goes."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def new_database(self) -> str:
        """A fresh database; gives its name. Its character set is not one of ours, as on many servers."""
        name = f"scratch_{uuid4().hex[:12]}"
        self.rows("", f"CREATE DATABASE {name} CHARACTER SET latin1 COLLATE latin1_swedish_ci")
        return name

    def url(self, database: str) -> str:
        """As a user writes it."""
        return f"mysql://writer:secret@127.0.0.1:{self.port}/{database}"

    def rows(self, database: str, statement: str, *parameters: Any) -> list[Any]:
        """The rows of a statement."""
        session = pymysql.connect(
            host="127.0.0.1", port=self.port, user="writer", password="secret", database=database or None, autocommit=True, charset="utf8mb4",
            init_command="SET time_zone = '+00:00'",
        )  # fmt: skip
        with closing(session), session.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with suppress(pymysql.Error):
            return self.rows("", "SELECT 1") == [(1,)]
        return False


@contextmanager
def server() -> Iterator[MariaDB]:
    """One that runs while it is entered."""
    with tempfile.TemporaryDirectory(prefix="onlyonce-mariadb-") as name:
        folder = Path(name)
        (folder / "accounts.sql").write_text(ACCOUNT)
        (folder / "tmp").mkdir()  # its own: a server that starts removes what others have in theirs
        made = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={folder / 'data'}",
            f"--tmpdir={folder / 'tmp'}",
            "--skip-test-db",
            *PLAIN,
            *_user(),
        ]
        told = subprocess.run(made, check=False, capture_output=True, text=True)
        assert told.returncode == 0, told.stdout[-1500:] + told.stderr[-1500:]
        started = MariaDB(folder, free_port())
        try:
            started.start()
            yield started
        finally:
            started.kill()


def _user() -> list[str]:
    return ["--user=root"] if os.getuid() == 0 else []
