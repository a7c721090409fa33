"""Start and stop the whole embedded platform.

up    prerequisites, ports, the format, PostgreSQL, tables, Airflow
down  continuous runs of shells, drivers, Airflow, PostgreSQL: no process remains, nothing is lost
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil
from rich.console import Console

from onlyonce import console as onlyonce_console
from onlyonce import settings
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.local import airflow_server, postgres, prerequisites, processes

if TYPE_CHECKING:
    from onlyonce.database.connect import Database

T = TypeVar("T")

# Starting may include a long recovery of PostgreSQL: a second command waits that long.
_LOCK_PATIENCE = 900
_RUN_PATIENCE = 60.0


@dataclass(frozen=True)
class Login:
    """Where the Airflow UI is, and the user who may log in.

    `new` if this start has made the password; it is stored in `file`.
    """

    url: str
    user: str
    password: str
    file: Path
    new: bool = False

    def __str__(self) -> str:
        """Return a line for people. A password that was shown once is only named by its file."""
        return f"Airflow: {self.url}   user: {self.user}   password: {self.password if self.new else f'in {self.file}'}"


def up(console: Console | None = None, *, replaces: bool = False) -> Login:
    """Start everything that does not run; quick if everything runs.

    Return the way to the UI. Raise Refused if another platform is named, or if the DAGs of another project would be
    lost (`airflow_server.refuse_other_project`); not the latter if `replaces`.
    """
    _refuse_named()
    if named := airflow_server.named():
        variable, url = named
        raise Refused(
            f"{variable} names the Airflow at {url}, and `up` would start a second one",
            data="nothing was started",
            hint=f"unset {variable} for a platform of this home; or start PostgreSQL alone: onlyonce up --no-airflow",
        )
    home = settings.home()
    postgres.make_enterable(home)
    settings.make_folder(home, ("run",))
    with processes.locked(home / "run" / "lock", _LOCK_PATIENCE), _shown(console) as progress:
        if not (postgres.is_running() and airflow_server.is_running()):
            _require_machine()
        if not (replaces or processes.find("dag-processor", home)):
            airflow_server.refuse_other_project()
        # All ports first: nothing is started if one of them is taken.
        postgres.require_port()
        airflow_server.require_port()
        new = not airflow_server.password_file().exists()
        _tables(progress)
        airflow_server.start(progress)
    return replace(login(), new=new)


def database(console: Console | None = None) -> None:
    """Start PostgreSQL, and create the tables of a new database, without Airflow: what a run at the shell needs.

    Do nothing if it runs. Raise Refused if another platform is named.
    """
    _refuse_named()
    if postgres.is_running():
        return
    home = settings.home()
    postgres.make_enterable(home)
    settings.make_folder(home, ("run",))
    with processes.locked(home / "run" / "lock", _LOCK_PATIENCE), _shown(console) as progress:
        _require_machine()
        postgres.require_port()
        if console and not (home / "postgres").exists():
            say(f"a platform is made in {home}; `onlyonce down` stops it", console)
        _tables(progress)


def down(console: Console | None = None) -> None:
    """Stop everything; do nothing if nothing runs. Raise Retryable if a process does not end."""
    home = settings.home()
    if not home.exists():
        say(f"nothing runs: there is no platform in {home}", console)
        return
    with processes.locked(home / "run" / "lock", _LOCK_PATIENCE), _shown(console) as progress:
        database_runs = postgres.is_running()
        if not (database_runs or processes.ours(home)):
            say(f"nothing runs of the platform in {home}", console)
        _stop_runs_of_shells(progress)
        airflow_server.stop(progress)
        for instance in _by_log(_at_work):
            say(
                f"! a run of {instance} is at work: without this database it ends, with exit code 75. What it has "
                "committed stays; after `onlyonce up` the same command continues",
                console,
            )
        if database_runs:
            progress("PostgreSQL stops")
        postgres.stop()
        postgres.last_resort_kill()


def _stop_runs_of_shells(progress: Callable[[str], None]) -> None:
    """Ask the continuous runs of shells to stop, as `onlyonce stop` does, and wait for their ends.

    They are no processes of the platform, and without its database each would wait for it and fail.
    """
    ours = {process.pid for process in processes.ours(settings.home())}  # Airflow runs those again after `up`

    def ask(database: Database) -> list[psutil.Process]:
        from onlyonce.commitlog.drivers import LongRuns

        runs, found = LongRuns(database), []
        for instance, pid in runs.alive().items():
            if pid not in ours and psutil.pid_exists(pid) and runs.ask_stop(instance):
                progress(f"the continuous run of {instance} (process {pid}) stops after its current batch")
                found.append(psutil.Process(pid))
        return found

    processes.still_alive_after(_RUN_PATIENCE, _by_log(ask))


def _at_work(database: Database) -> list[str]:
    from onlyonce.commitlog.health import Views

    return [str(row["instance"]) for row in Views(database).rows("at_work")]


def _by_log(work: Callable[[Database], list[T]]) -> list[T]:
    """Return what the log of this home's own server says; nothing if it does not answer, or has another format."""
    if not (settings.embedded() and postgres.is_running()):
        return []
    from sqlalchemy.exc import SQLAlchemyError

    from onlyonce.database.connect import Database

    with settings.within({"ONLYONCE_DATABASE_PATIENCE": "2"}), contextlib.suppress(OnlyonceError, SQLAlchemyError):
        return work(Database(settings.database_url(), "onlyonce-down", any_format=True))
    return []


def is_up() -> bool:
    """Return whether all processes of the platform live."""
    return postgres.is_running() and airflow_server.is_running()


def without_effect(*, airflow: bool) -> Iterator[str]:
    """Yield a remark for each variable of this shell that the running platform does not follow."""
    if port := postgres.other_port():
        yield (
            f"PostgreSQL of {settings.home()} runs at port {port}, and ONLYONCE_PG_PORT is {settings.pg_port()}: every "
            "command uses the running one; to change its port: `onlyonce down`, then `onlyonce up`"
        )
    if names := airflow_server.without_effect() if airflow else []:
        own = " (its port is ONLYONCE_AIRFLOW_PORT)" if "AIRFLOW__API__PORT" in names else ""
        yield f"the embedded Airflow does not follow {', '.join(names)}: `onlyonce up` sets that itself{own}"


def login() -> Login:
    """Return the address of the Airflow UI and its only user."""
    return Login(
        airflow_server.own_url(), airflow_server.USER, airflow_server.password(), airflow_server.password_file()
    )


def _refuse_named() -> None:
    """Raise Refused if a URL names another platform's database: a server of this home would be a second platform."""
    named = settings.named_database()
    if named is not None:
        variable, where = named
        raise Refused(
            f"{variable} names the platform at {where}, and `up` would start a second one",
            data="nothing was started",
            hint=f"start that platform where it runs (in containers: docker compose up); or unset {variable} for a "
            "platform of this home",
        )


def _require_machine() -> None:
    home = str(settings.home())
    problems = [prerequisites.java_problem(), prerequisites.disk_problem(home, prerequisites.DISK_TO_RUN)]
    for problem in filter(None, problems):
        what, _, way_out = problem.partition(". ")
        raise Refused(what, data="nothing was started", hint=way_out.removeprefix("Get it: ").rstrip("."))


def _tables(progress: Callable[[str], None]) -> None:
    """Start PostgreSQL, and create the tables of a new database.

    The home gets its format before anything else: a home with state but without a format is refused.
    """
    from onlyonce.database import statements  # only `up` needs SQLAlchemy's weight
    from onlyonce.database.migrate import migrate

    statements.make_home()
    if not postgres.is_running():
        progress("PostgreSQL starts")
        postgres.start(progress)
    progress("the platform's tables are checked, and made if they are missing")
    migrate(settings.database_url())


def say(text: str, console: Console | None) -> None:
    """Print a line that stays, next to the present step."""
    (console or onlyonce_console.console(stderr=True)).print(text, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def _shown(console: Console | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the present step: on a terminal as a live line, in a log as one line for each
    step."""
    console = console or onlyonce_console.console(stderr=True)
    last = ""

    def plain(text: str) -> None:
        nonlocal last
        if text != last:
            console.print(text, style="dim", highlight=False)
        last = text

    if not console.is_terminal:
        yield plain
        return
    with console.status("onlyonce") as status:
        yield status.update
