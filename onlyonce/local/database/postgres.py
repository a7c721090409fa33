"""The embedded PostgreSQL 18: binaries from a wheel, data under the platform's folder, owned by us.

It listens on the loopback address only, without a Unix socket (whose path may be at most 107 bytes), and
asks every client for a password (scram). `fsync` stays on: it is the authority on what is committed.

    <home>/postgres/data            the cluster
    <home>/postgres/passwords.json  generated once, 0600
    <home>/postgres/writer.url      also reader.url, airflow.url, admin.url: follow the port, 0600
    <home>/logs/postgres.log

Who calls it: `onlyonce.local.platform` and the tests. Errors: Refused (a taken port, a folder that the
server's account may not enter), Retryable (it did not come up in time).
Not promised: protection from other processes of the same user, who may read the files above.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from onlyonce import settings
from onlyonce.local import processes
from onlyonce.local.database import accounts, cluster
from onlyonce.model.errors import Retryable

# Recovery after a crash replays the log since the last checkpoint: seconds as a rule, minutes at worst.
_START_PATIENCE = 600.0
_STOP_PATIENCE = 120
# PostgreSQL's own answer when leftovers of a killed postmaster still hold the shared memory.
_ORPHAN_PATIENCE = 20.0

SERVER_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",  # Airflow takes about 40, each Spark task one
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "jit": "off",  # our statements are short; compiling them costs more than it gains
    "max_parallel_workers_per_gather": "0",  # containers have 64 MB of shared memory, too few for it
    "log_lock_waits": "on",
    "log_line_prefix": "%m [%p] %u@%d ",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # A killed executor must not hold its locks until the kernel notices, which takes hours by default.
    "client_connection_check_interval": "5s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    # A unit's transaction is idle while Spark computes its rows, so this bound is wide.
    "idle_in_transaction_session_timeout": "1h",
}


def start(progress: Callable[[str], None] = lambda _: None) -> None:
    """Start the server and make what is missing; does nothing when it runs. Returns when it answers.

    `progress` gets a line of text now and then while a long recovery is under way.
    """
    home = settings.home()
    account = accounts.server_account()
    accounts.make_enterable(_folder(home))
    with processes.locked(_folder(home) / "lock"):
        if is_running():
            return
        require_port()
        binaries = accounts.reachable_binaries(account, _folder(home))
        cluster.create(_folder(home), account, binaries)
        server = _launch(home, account, binaries)
        _await_answer(server, home, account, binaries, progress)
        cluster.write_urls(_folder(home), settings.pg_port())
        cluster.provision(_folder(home))


def require_port() -> None:
    """Raises Refused when a stranger has the port; does nothing when our own server runs."""
    if is_running():
        return
    # First, since the sessions of a killed server hold its port for a moment.
    _clear_leftovers(_data(settings.home()))
    processes.require_free_port(settings.pg_port(), "the embedded PostgreSQL", "ONLYONCE_PG_PORT")


def stop() -> None:
    """Stop the server: sessions are ended, what is committed stays. Does nothing when it is not running."""
    home = settings.home()
    if not _data(home).exists():
        return
    with processes.locked(_folder(home) / "lock"):
        if not is_running():
            return
        account = accounts.server_account()
        binaries = accounts.reachable_binaries(account, _folder(home))
        command = ["pg_ctl", "stop", "-D", str(_data(home)), "-m", "fast", "-w", "-t", str(_STOP_PATIENCE)]
        done = accounts.run(account, binaries, command)
        if done.returncode and is_running():
            raise Retryable(
                f"PostgreSQL did not stop within {_STOP_PATIENCE} s: {done.stderr.strip()}",
                data="nothing is lost; it still runs",
                hint=f"look at {_log(home)}, then run the same command again",
            )


def is_running() -> bool:
    """Whether the server of this platform's folder runs (it may still be recovering)."""
    return _postmaster(_data(settings.home())) is not None


def last_resort_kill() -> list[int]:
    """Kill what `stop` could not end (for `down`). Returns the ids; the next start recovers by itself."""
    rest = _sessions(_data(settings.home()))
    processes.stop(rest, patience=0)
    return [process.pid for process in rest]


def _folder(home: Path) -> Path:
    return home / "postgres"


def _data(home: Path) -> Path:
    return _folder(home) / "data"


def _log(home: Path) -> Path:
    return home / "logs" / "postgres.log"


def _launch(home: Path, account: accounts.Account, binaries: Path) -> subprocess.Popen[bytes]:
    """The server as a child in a session of its own, so that Ctrl-C at the shell does not reach it."""
    options = {**SERVER_SETTINGS, "port": str(settings.pg_port())}
    arguments = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
    with processes.open_log(home, "postgres") as log:
        return subprocess.Popen(
            [str(binaries / "postgres"), "-D", str(_data(home)), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=accounts.ENVIRONMENT,
            cwd="/",
            **account.identity(),
        )


def _await_answer(
    server: subprocess.Popen[bytes],
    home: Path,
    account: accounts.Account,
    binaries: Path,
    progress: Callable[[str], None],
) -> None:
    began = time.monotonic()
    ready = ["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(settings.pg_port())]
    told = 0.0
    while accounts.run(account, binaries, ready).returncode:
        waited = time.monotonic() - began
        if server.poll() is not None or waited > _START_PATIENCE:
            raise Retryable(
                f"PostgreSQL did not start: {processes.last_line(_log(home))}",
                data="what was committed is still there",
                hint=f"look at {_log(home)}, then run the same command again",
            )
        if waited - told > 5:
            told = waited
            progress(f"PostgreSQL recovers after a crash ({waited:.0f} s): {processes.last_line(_log(home))}")
        time.sleep(0.05)


def _clear_leftovers(data: Path) -> None:
    """Wait for the sessions of a killed server to end, and drop a pid file that names a stranger."""
    end = time.monotonic() + _ORPHAN_PATIENCE
    while (rest := _sessions(data)) and time.monotonic() < end:
        time.sleep(0.1)
    if rest:
        # SIGTERM lets a session roll back; its parent is dead, so nobody else will ask it to.
        processes.stop(rest, patience=10)
    pid_file = data / "postmaster.pid"
    pid = _named_pid(pid_file)
    # PostgreSQL takes any living process of that id for its twin; after a reboot it may be anyone.
    if pid is not None and psutil.pid_exists(pid) and _postmaster(data) is None:
        pid_file.unlink(missing_ok=True)


def _postmaster(data: Path) -> psutil.Process | None:
    pid = _named_pid(data / "postmaster.pid")
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        return process if processes.is_alive(process) and str(data) in process.cmdline() else None
    except psutil.Error:
        return None


def _named_pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return None


def _sessions(data: Path) -> list[psutil.Process]:
    """Processes that work in the data folder: the server's own always do."""
    return [process for process in psutil.process_iter() if _works_in(process, data)]


def _works_in(process: psutil.Process, data: Path) -> bool:
    try:
        return processes.is_alive(process) and process.name() == "postgres" and process.cwd() == str(data)
    except (psutil.Error, OSError):
        return False
