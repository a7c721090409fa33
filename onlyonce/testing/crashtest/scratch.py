"""A PostgreSQL of its own in a folder of its own, platforms on it, and their runs: whole, or killed at a fail-point.

Who calls it: `onlyonce.testing.crashtest.play` and the tests. Nothing here touches the platform of the environment.
Not promised: runs on a cluster; a kill reaches the processes of this machine only.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil
import psycopg2
from sqlalchemy.engine import make_url

from onlyonce.environment import inherited
from onlyonce.local import processes
from onlyonce.local.database import postgres
from onlyonce.model.storage.location import Location, location
from onlyonce.settings import ROOT, within

JOB_TIMEOUT = 300
NOT_OURS = ("ONLYONCE_ARCHIVE", "ONLYONCE_ADMIN_URL")
"""What a run of a scratch platform must not see: it would move files, or reach another server."""
ONE_BY_ONE = {"ONLYONCE_OUTPUTS_AT_ONCE": "1"}
"""In the order of the declaration, so that the nth pass of a fail-point is the same in each run."""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Server:
    """A PostgreSQL, by the folder of its platform."""

    folder: Path

    def url(self, role: str, database: str | None = None) -> str:
        """The URL of a role, for its own or another database."""
        url = (self.folder / "postgres" / f"{role}.url").read_text().strip()
        return url if database is None else make_url(url).set(database=database).render_as_string(hide_password=False)

    def new_database(self) -> str:
        """A fresh database, owned by the writer."""
        name = f"scratch_{uuid4().hex[:12]}"
        self._do(f'CREATE DATABASE "{name}" OWNER onlyonce_writer')
        return name

    def drop(self, name: str) -> None:
        """End a database with its sessions; what is dropped is not written to disk when the server stops."""
        self._do(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _do(self, statement: str) -> None:
        session = psycopg2.connect(self.url("admin").replace("+psycopg2", ""))
        session.autocommit = True
        session.cursor().execute(statement)
        session.close()


@contextmanager
def server(prefix: str, *, keep: bool = False) -> Iterator[Server]:
    """A server in a new folder, stopped and removed in the end; `keep` leaves the folder."""
    # Others may pass through it: as root the server is another account.
    folder = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    folder.chmod(0o711)
    home = {"ONLYONCE_HOME": str(folder), "ONLYONCE_PG_PORT": str(free_port())}
    try:
        with within(home):
            postgres.start()
        yield Server(folder)
    finally:
        with within(home):
            postgres.stop()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


MODULES = {"stream": "onlyonce.run.stream", "backfill": "onlyonce.outputs.backfill"}
"""The jobs that are killed, as Python starts them."""


@dataclass(frozen=True)
class ScratchPlatform:
    """A platform with a folder and a database of its own."""

    home: Path
    environment: dict[str, str]
    database: str = ""

    @property
    def data(self) -> Location:
        """Where its tables and checkpoints are: its folder, or a prefix of a store."""
        return location(self.environment.get("ONLYONCE_DATA") or str(self.home))

    def start(
        self, *arguments: str, job: str = "stream", master: str = "local[2]", **environment: str
    ) -> subprocess.Popen[str]:
        """Start a run (or another job) in a process and session of its own."""
        command = [sys.executable, "-m", MODULES[job], *arguments, "--master", master]
        ours = {name: value for name, value in inherited().items() if name not in NOT_OURS}
        return subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=ours | ONE_BY_ONE | self.environment | environment,
        )  # fmt: skip

    def run_whole(
        self, *arguments: str, master: str = "local[2]", timeout: float | None = JOB_TIMEOUT, **environment: str
    ) -> tuple[int, str]:
        """Run to the end in a process of its own; gives exit code and output. Raises subprocess.TimeoutExpired."""
        return _await(self.start(*arguments, master=master, **environment), timeout)

    def run_killed(
        self,
        point: str,
        *arguments: str,
        nth: int = 1,
        action: str = "kill",
        job: str = "stream",
        master: str = "local[2]",
        timeout: float | None = JOB_TIMEOUT,
    ) -> tuple[int, str]:
        """Run until a fail-point strikes at its nth pass in this run; gives exit code and output.

        Raises subprocess.TimeoutExpired, when the run was ended.
        """
        folder = self.home / "failpoints"
        folder.mkdir(exist_ok=True)
        (folder / point).unlink(missing_ok=True)
        armed = {"ONLYONCE_FAILPOINTS": f"{point}:{nth}:{action}", "ONLYONCE_FAILPOINT_DIR": str(folder)}
        return _await(self.start(*arguments, job=job, master=master, **armed), timeout)

    def struck(self, point: str) -> int:
        """How often a fail-point was passed by the last run that was to be killed there."""
        passes = self.home / "failpoints" / point
        return passes.stat().st_size if passes.exists() else 0

    def passes(
        self, *arguments: str, master: str = "local[2]", timeout: float | None = JOB_TIMEOUT
    ) -> tuple[list[str], int, str]:
        """The fail-points that an undisturbed run passes, in order, each as often as it does; its exit code and
        output."""
        record = self.home / "passes"
        code, output = self.run_whole(*arguments, master=master, timeout=timeout, ONLYONCE_FAILPOINT_RECORD=str(record))
        return record.read_text().split() if record.exists() else [], code, output


def _await(process: subprocess.Popen[str], timeout: float | None) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output
    finally:
        if process.poll() is None:  # too late, or Ctrl-C, which does not reach a session of its own
            _end(psutil.Process(process.pid))
            process.communicate()


def _end(driver: psutil.Process) -> None:
    # The JVM and the Python workers first: without their parent they could not be told from others.
    processes.stop([*driver.children(recursive=True), driver], patience=0)
