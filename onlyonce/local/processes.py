"""Start, find and stop the platform's processes, and write its files with secrets.

Each process starts in its own session with the folder of its platform in its environment (`MARK`), and so does
everything that it starts. `ours` finds processes by this mark and not by a list of process ids. Ids are used again
after a reboot, and Airflow's tasks leave their parent's process group. A process that cleans its own environment can't
be found by the mark (PostgreSQL does; its module finds it by its data folder). Other users' processes are never
touched.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from onlyonce import settings
from onlyonce.core.errors import Refused, Retryable


def write_secret(path: Path, text: str) -> None:
    """Write the file in one step; at no moment can another user read it."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    unfinished.replace(path)


def read_or_make_secret(path: Path, make: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return the secrets in the file, which is made at the first call."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_secret(path, json.dumps(make()) + "\n")
    return dict(json.loads(path.read_text()))


MARK = "ONLYONCE_PLATFORM"

_LARGE_LOG = 20_000_000
# A title written over the environment would hide the mark; with this variable setproctitle leaves it alone.
_KEEP_ENVIRONMENT = {"SPT_NOENV": "1"}


def marked(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment with the mark of the platform at `home`."""
    return {**environment, **_KEEP_ENVIRONMENT, MARK: str(home)}


def spawn(name: str, argv: Sequence[str], environment: Mapping[str, str], home: Path) -> psutil.Process:
    """Start a process in its own session; its output is written to `<home>/logs/<name>.log`."""
    settings.make_folder(home, ("run",))
    with open_log(home, name) as log:
        started = subprocess.Popen(
            list(argv),
            env=marked(environment, home),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=home,
        )
    process = psutil.Process(started.pid)
    record = {"pid": process.pid, "create_time": process.create_time(), "since_boot": _since_boot(process)}
    _pid_file(name, home).write_text(json.dumps(record))
    return process


def open_log(home: Path, name: str) -> BinaryIO:
    """Open `<home>/logs/<name>.log` to append; rename it first if it has grown large."""
    path = settings.inside_home(home, "logs") / f"{name}.log"
    if path.exists() and path.stat().st_size > _LARGE_LOG:
        path.replace(path.with_suffix(".log.1"))
    return path.open("ab")


def last_line(log: Path) -> str:
    """Return the last line that a process wrote, for a message."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1][:300] if lines else f"no word in {log}"


def find(name: str, home: Path) -> psutil.Process | None:
    """Return the living process that `spawn` started under this name, or None."""
    try:
        record = json.loads(_pid_file(name, home).read_text())
        process = psutil.Process(record["pid"])
        if "since_boot" in record:
            # Another process may have this id, as long after another boot.
            same = abs(_since_boot(process) - record["since_boot"]) < 2 and _carries(process, home)
        else:  # of an older version
            same = abs(process.create_time() - record["create_time"]) < 2
        return process if same and is_alive(process) else None
    except (OSError, ValueError, KeyError, psutil.Error):
        return None


def _since_boot(process: psutil.Process) -> float:
    """Return how long after the boot a process was started: a step of the clock shifts both times alike.

    If the clock steps between the two questions, they are asked again.
    """
    while True:
        boot = psutil.boot_time()
        created = psutil.Process(process.pid).create_time()
        if psutil.boot_time() == boot:
            return created - boot


def environment_of(process: psutil.Process) -> dict[str, str]:
    """Return the environment with which a process was started; empty if that can't be known."""
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def listens_at(process: psutil.Process) -> set[int]:
    """Return the ports at which a process or one of its children accepts connections; empty if that can't be known."""
    found: set[int] = set()
    with contextlib.suppress(psutil.Error):
        for one in (process, *process.children(recursive=True)):
            found |= {here.laddr.port for here in one.net_connections("tcp") if here.status == psutil.CONN_LISTEN}
    return found


def has_ended(name: str, home: Path) -> bool:
    """Return whether a process was started under this name and has ended."""
    return _pid_file(name, home).exists() and find(name, home) is None


def forget(name: str, home: Path) -> None:
    """Remove the pid file."""
    _pid_file(name, home).unlink(missing_ok=True)


def is_alive(process: psutil.Process) -> bool:
    """Return whether the process runs; a zombie, which only waits for its parent to collect it, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def ours(home: Path) -> list[psutil.Process]:
    """Return every living process that carries the mark of this platform, except this one."""
    return [process for process in _visible() if process.pid != os.getpid() and _carries(process, home)]


def drivers(home: Path) -> list[psutil.Process]:
    """Return the Spark drivers (JVMs of spark-submit) among our processes."""
    return [process for process in ours(home) if _is_driver(process)]


@contextlib.contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM as on Ctrl-C, so that the caller ends what it started."""
    # Raised here, not sent on as SIGINT: a background job of a script ignores SIGINT.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def ask(processes: Iterable[psutil.Process]) -> None:
    """Ask the processes to end, and do not wait."""
    _signal(processes, signal.SIGTERM)


def stop(processes: Iterable[psutil.Process], patience: float) -> list[psutil.Process]:
    """Ask the processes to end, and kill them after `patience` seconds; return what still lives."""
    living = list(processes)
    for which, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 10)):
        _signal(living, which)
        living = still_alive_after(seconds, living)
    return living


def still_alive_after(seconds: float, processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait until the processes have ended, and return what still lives after so many seconds."""
    # Not psutil.wait_procs: it takes a zombie for alive, and in a container no process may collect zombies.
    end = time.monotonic() + seconds
    while (living := [process for process in processes if is_alive(process)]) and time.monotonic() < end:
        time.sleep(0.05)
    return living


def require_free_port(port: int, purpose: str, variable: str, host: str = "127.0.0.1") -> None:
    """Raise Refused if the port is taken, naming its owner if this user may see it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            taken = error.errno == errno.EADDRINUSE
            why = f"is taken by {_owner(port)}" if taken else "needs more rights than this user has"
            raise Refused(
                f"port {port} on {host}, wanted for {purpose}, {why}",
                data="nothing was started and nothing was changed",
                hint=f"stop the other program, or choose another port: {variable}=<port>",
            ) from error


@contextlib.contextmanager
def locked(path: Path, patience: float = 120) -> Iterator[None]:
    """Hold the lock of a file, so that two commands do not start or stop the same thing at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        wait_until(lambda: _try_lock(handle.fileno()), patience, f"the lock {path}")
        yield


def wait_until(condition: Callable[[], bool], patience: float, what: str) -> None:
    """Poll until the condition holds. Raise Retryable after `patience` seconds."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise Retryable(
                f"waited {patience:.0f} s for {what}, in vain",
                data="nothing is half done",
                hint="look for another onlyonce command that is running, then run the same command again",
            )
        time.sleep(0.1)


def _pid_file(name: str, home: Path) -> Path:
    return home / "run" / f"{name}.pid"


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _visible() -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        if is_alive(process):
            yield process


def _carries(process: psutil.Process, home: Path) -> bool:
    return environment_of(process).get(MARK) == str(home)


def _is_driver(process: psutil.Process) -> bool:
    try:
        return any("org.apache.spark.deploy.SparkSubmit" in part for part in process.cmdline())
    except psutil.Error:
        return False


def _signal(processes: Iterable[psutil.Process], which: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(which)


def _owner(port: int) -> str:
    """Return which program listens on the port, as far as this user may know."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if listens and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    return "another program (its owner cannot be seen by this user)"
