"""Scratch platforms on their own PostgreSQL in a folder of its own, and their runs: whole, or killed at a fail-point.

The platform of the environment is never touched. Runs are on this machine only, since a kill reaches no cluster.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import psutil
import psycopg2
from sqlalchemy import RootTransaction
from sqlalchemy.engine import make_url
from tenacity import wait_none

from onlyonce import failpoints, settings
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.core.batch import Plan
from onlyonce.core.errors import OnlyonceError
from onlyonce.core.locations import Location, location
from onlyonce.database import connect, statements
from onlyonce.database.connect import Database, forget_connections
from onlyonce.database.migrate import migrate
from onlyonce.environment import inherited
from onlyonce.local import postgres, processes
from onlyonce.settings import ROOT, within

JOB_TIMEOUT = 300
NOT_OURS = ("ONLYONCE_ARCHIVE", "ONLYONCE_ADMIN_URL")
"""Variables that a run of a scratch platform must not see: with them it would move files, or reach another server."""
ONE_BY_ONE = {"ONLYONCE_OUTPUTS_AT_ONCE": "1"}
"""In the order of the declaration, so that the nth pass of a fail-point is the same in each run."""


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Server:
    """A PostgreSQL, by the folder of its platform."""

    folder: Path

    def url(self, role: str, database: str | None = None) -> str:
        """Return the URL of a role, for its own or another database."""
        url = (self.folder / "postgres" / f"{role}.url").read_text().strip()
        return url if database is None else make_url(url).set(database=database).render_as_string(hide_password=False)

    def new_database(self) -> str:
        """Create a fresh database, owned by the writer; return its name."""
        name = f"scratch_{uuid4().hex[:12]}"
        self._do(f'CREATE DATABASE "{name}" OWNER onlyonce_writer')
        return name

    def drop(self, name: str) -> None:
        """Drop a database with its sessions; a dropped database is not written to disk when the server stops."""
        self._do(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _do(self, statement: str) -> None:
        session = psycopg2.connect(self.url("admin").replace("+psycopg2", ""))
        session.autocommit = True
        session.cursor().execute(statement)
        session.close()


@contextmanager
def server(prefix: str, *, keep: bool = False) -> Iterator[Server]:
    """Yield a server in a new folder; stop and remove it in the end. `keep` leaves the folder."""
    # Others may pass through it: as root the server runs under another account.
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
        """Return where its tables and checkpoints are: its folder, or a prefix of a store."""
        return location(self.environment.get("ONLYONCE_DATA") or str(self.home))

    def start(
        self, *arguments: str, job: str = "stream", master: str = "local[2]", **environment: str
    ) -> subprocess.Popen[str]:
        """Start a run (or another job) in its own process and session."""
        command = [sys.executable, "-m", MODULES[job], *arguments, "--master", master]
        ours = {name: value for name, value in inherited().items() if name not in NOT_OURS}
        return subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=ours | ONE_BY_ONE | self.environment | environment,
        )  # fmt: skip

    def run_whole(
        self, *arguments: str, master: str = "local[2]", timeout: float | None = JOB_TIMEOUT, **environment: str
    ) -> tuple[int, str]:
        """Run to the end in its own process; return exit code and output. Raise subprocess.TimeoutExpired."""
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
        """Run until a fail-point strikes at its nth pass in this run; return exit code and output.

        Raise subprocess.TimeoutExpired after ending a run that takes too long.
        """
        folder = self.home / "failpoints"
        folder.mkdir(exist_ok=True)
        (folder / point).unlink(missing_ok=True)
        armed = {"ONLYONCE_FAILPOINTS": f"{point}:{nth}:{action}", "ONLYONCE_FAILPOINT_DIR": str(folder)}
        return _await(self.start(*arguments, job=job, master=master, **armed), timeout)

    def struck(self, point: str) -> int:
        """Return how often a fail-point was passed by the last run that should be killed there."""
        passes = self.home / "failpoints" / point
        return passes.stat().st_size if passes.exists() else 0

    def passes(
        self, *arguments: str, master: str = "local[2]", timeout: float | None = JOB_TIMEOUT
    ) -> tuple[list[str], int, str]:
        """Return the fail-points that an undisturbed run passes, in order, each as often as it does; its exit code
        and output."""
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
    # The JVM and the Python workers first: without their parent they could not be recognized.
    processes.stop([*driver.children(recursive=True), driver], patience=0)


# A platform's database for a test. The test changes it by the product's functions and reads it by plain SQL.


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Log:
    """One platform's database."""

    server: Server
    name: str
    database: Database = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "database", Database(self.url))

    @property
    def url(self) -> str:
        """Return the writer's URL."""
        return self.server.url("writer", self.name)

    def start(self, instance: str = "shop", query: str = "receive") -> Driver:
        """Start a driver: register instance and incarnation, bump the epoch."""
        Incarnations(self.database).add_instance(instance, instance.split("@")[0])
        incarnation = Incarnations(self.database).register(instance, query, uuid4())
        return Incarnations(self.database).bump(incarnation, "run")

    def restart(self, driver: Driver) -> Driver:
        """Start the next driver of the same incarnation."""
        instance, query, _ = driver.incarnation.rsplit("/", 2)
        return self.start(instance, query)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement by the writer, in its own session."""
        return ask(self.url, statement, *values)

    def multiset(self, statement: str) -> Counter[tuple[Any, ...]]:
        """Return the rows of a statement as a multiset."""
        return Counter(self.rows(statement))


def ask(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a statement in its own session, commit it, and return its rows."""
    session = psycopg2.connect(url.replace("+psycopg2", ""))
    try:
        with session, session.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []
    finally:
        session.close()


def plan_of(driver: Driver, batch_id: int = 0, **changed: Any) -> Plan:
    """Return what a driver intends to do in a batch."""
    plain: dict[str, Any] = {
        "incarnation": driver.incarnation, "batch_id": batch_id, "source_from": None,
        "source_to": {"version": batch_id}, "offsets_hash": f"hash {batch_id}", "partitions": 2,
        "ingestion_time": NOON, "bucket": 7,
        "settings": {"spark.sql.shuffle.partitions": "2"}, "mode": "exactly_once", "declaration_hash": "d1",
    }  # fmt: skip
    return Plan(**plain | changed)


@contextmanager
def platform(server: Server, home: Path) -> Iterator[Log]:
    """Yield a platform of its own on a server; the environment names it meanwhile."""
    log = Log(server, server.new_database())
    migrate(log.url)
    with settings.within({"ONLYONCE_HOME": str(home), "ONLYONCE_DATABASE_URL": log.url}):
        statements.make_home()
        yield log
    forget_connections()
    server.drop(log.name)


# Real processes for the conformance suite: forks of the test, killed or stopped at a fail-point; and lost answers.


Work = Callable[[], None]
PATIENCE = 20.0
LOOK_EVERY = 0.01
SESSIONS = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "
    "backend_type = 'client backend'"
)


class Processes:
    """Forks of this process, which have all modules already. Their passes are counted in a folder of this test."""

    def __init__(self, log: Log, folder: Path) -> None:
        self._log, self._folder, self._number = log, folder, 0

    def points(self, work: Work) -> list[str]:
        """Return the fail-points that a piece of work passes, each once, in their order."""
        record = self._folder / "points"
        record.unlink(missing_ok=True)
        with mock.patch.object(failpoints, "RECORD", str(record)):
            work()
        return list(dict.fromkeys(record.read_text().split()))

    def killed(self, work: Work, point: str) -> None:
        """Work in a process that is killed at a point; wait until PostgreSQL has ended its transaction."""
        _, status = os.waitpid(self.started(work, point, "kill-process"), 0)
        assert os.WIFSIGNALED(status), f"{point} was not passed: exit {os.waitstatus_to_exitcode(status)}"
        assert os.WTERMSIG(status) == signal.SIGKILL
        self._alone()

    def stopped(self, work: Work, point: str) -> int:
        """Work in a process that stops at a point; return its id."""
        child = self.started(work, point, "stop")
        _, status = os.waitpid(child, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"{point} was not passed"
        return child

    def ended_or_waiting(self, child: int) -> None:
        """Wait until a process has ended, or waits for a lock in PostgreSQL."""
        _await_end(lambda: self._has_ended(child) or self._waits(), "the twin neither ends nor waits")

    def ends(self, *children: int) -> list[int]:
        """Continue stopped processes and wait until they end; return their exit codes."""
        for child in children:
            os.kill(child, signal.SIGCONT)
        found = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        self._alone()
        return found

    def started(self, work: Work, point: str = "", action: str = "") -> int:
        """Work in a forked process, struck at a point or not; return its id."""
        self._number += 1
        if child := os.fork():
            return child
        try:
            counts = self._folder / f"{self._number}"
            counts.mkdir()
            os.environ["ONLYONCE_FAILPOINT_DIR"] = str(counts)
            failpoints._POINTS = {point: (1, action)} if point else {}
            work()
            os._exit(0)
        except OnlyonceError as error:
            os._exit(error.exit_code)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _has_ended(self, child: int) -> bool:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _waits(self) -> bool:
        return bool(self._log.rows(f"{SESSIONS} AND wait_event_type = 'Lock'"))

    def _alone(self) -> None:
        """Wait until no transaction of an ended process is open: its locks end with it."""
        _await_end(
            lambda: not self._log.rows(f"{SESSIONS} AND xact_start IS NOT NULL"), "a killed process left a transaction"
        )


def _await_end(condition: Callable[[], object], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(LOOK_EVERY)


def answers_lost() -> Iterator[AbstractContextManager[None]]:
    """Yield contexts in which the n-th COMMIT of a piece of work loses its answer, for each n, arrived or not.

    End when a piece has fewer commits.
    """
    for nth in range(1000):
        for arrived in (True, False):
            seen = [0]
            yield _lost(nth, arrived, seen)
            if seen[0] <= nth:
                return
    raise AssertionError("so many commits are not a unit")


@contextmanager
def _lost(nth: int, arrived: bool, seen: list[int]) -> Iterator[None]:
    commit = RootTransaction.commit

    def losing(self: RootTransaction) -> None:
        seen[0] += 1
        if seen[0] - 1 != nth:
            return commit(self)
        if arrived:
            commit(self)
        raise psycopg2.OperationalError("the answer was lost")

    no_pause = mock.patch.object(connect, "wait_exponential_jitter", return_value=wait_none())
    # A task may fail: it is tried again.
    with mock.patch.object(RootTransaction, "commit", losing), no_pause, suppress(OnlyonceError):
        yield
