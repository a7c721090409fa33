"""Read the settings for the package: where things are, and how it behaves.

The list of all settings, with types and defaults, is `onlyonce.configuration`; docs/reference/settings.md is made from
it. Executors import this module, and of its functions call only `database_patience`. pydantic is imported when the
first setting is read. Each function raises Refused if a setting is wrong.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onlyonce.core import stored_names
from onlyonce.core.database_url import address
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, check_folder, is_url, location, on_disk
from onlyonce.environment import why_missing, within

if TYPE_CHECKING:
    from pydantic import SecretStr

    from onlyonce.configuration import Configuration


__all__ = ["ROOT", "within"]

ROOT = Path(__file__).resolve().parent.parent


def _current() -> Configuration:
    from onlyonce import configuration  # imports pydantic, which executors do without

    return configuration.current()


def home() -> Path:
    """Return the folder of all state, absolute; it may not exist yet.

    Raise Refused for a URL, as the others do, and for state that lies among installed packages.
    """
    return _folder("ONLYONCE_HOME", _current().home) or _default_home(ROOT)


def _default_home(root: Path) -> Path:
    beside, own = root / ".onlyonce", Path.home() / ".onlyonce"
    if (root / "pyproject.toml").is_file():
        return beside.resolve()
    # Among the packages: creating the environment again would delete the commit log.
    if beside.exists() and not own.exists():
        raise Refused(
            f"there is a platform in {beside}, among the installed packages, which an update deletes",
            data="nothing was read or written",
            hint=f"stop what runs there, then move it: mv {beside} {own}; or name its place: ONLYONCE_HOME",
        )
    return own.resolve()


def inbox_location(pipeline: str, declared: str | None = None) -> Location:
    """Return the folder or prefix that a pipeline's file source lists: declared, or a folder in the home."""
    return location(declared) if declared else home() / stored_names.INBOX_FOLDER / pipeline


def inbox(pipeline: str, declared: str | None = None) -> Path:
    """Return `inbox_location`, for what works on a file system only.

    Raise Refused if it is in an object store.
    """
    return on_disk(inbox_location(pipeline, declared))


def resolved(at: Location) -> Location:
    """Return a location as it is the same however it is spelled: a path without links and dots."""
    return at.resolve() if isinstance(at, Path) else at


def data_root() -> Location:
    """Return where the data of all pipelines is: the home, or what ONLYONCE_DATA names.

    Raise Refused for a string that is not a URL.
    """
    named = _current().data
    if named is None:
        return home()
    return resolved(location(named, "ONLYONCE_DATA"))


def data_location(instance: str) -> Location:
    """Return the place of a pipeline's (or bounded run's) own data: events, manifest, checkpoints."""
    return data_root() / stored_names.DATA_FOLDER / instance


def tables_location() -> Location:
    """Return the place of the Delta tables that outputs write and people read."""
    return data_root() / stored_names.TABLES_FOLDER


def table_location(declared: str) -> Location:
    """Return the place of a table as a declaration names it.

    It is below `tables_location`, unless the name is an absolute path or a URL of the kind of store that all data is
    in. Raise Refused for a URL of another kind: Spark's session has the jars of that kind alone.
    """
    if not is_url(declared):
        return Path(declared) if declared.startswith("/") else tables_location() / declared
    at, root = location(declared, "Delta: path"), data_root()
    if isinstance(at, Path) or isinstance(root, Path) or at.scheme != root.scheme:
        raise Refused(
            f"Delta: path is {declared!r}, and the platform's data is in {root}",
            data="nothing was read or written",
            hint="a table in a store needs a platform whose data is in such a store: "
            "ONLYONCE_DATA=s3://bucket/prefix; or name a folder",
        )
    return at


def data_dir(instance: str) -> Path:
    """Return `data_location` of a platform whose data is on a disk. Raise Refused if it is in an object store."""
    return on_disk(data_location(instance))


def tables_dir() -> Path:
    """Return `tables_location` of a platform whose data is on disk. Raise Refused if it is in an object store."""
    return on_disk(tables_location())


def blocks_dir(instance: str) -> Path:
    """Return the folder of rows on their way from one Spark job to the next: on a disk, wherever the data is."""
    root = data_root()
    return (
        (root if isinstance(root, Path) else home()) / stored_names.DATA_FOLDER / instance / stored_names.BLOCKS_FOLDER
    )


def trials_location(instance: str) -> Location:
    """Return where a failed batch is tried again in parts, if driver and executors share no disk for `blocks_dir`."""
    return data_location(instance) / stored_names.TRIALS_FOLDER


def files_dir() -> Path:
    """Return the folder of the files that sharded outputs write and people read."""
    return home() / stored_names.RESULT_FILES_FOLDER


def root_of(folder: str) -> Location:
    """Return where the folders of one kind are: of files below the home, of all else where the data is."""
    return files_dir() if folder == stored_names.RESULT_FILES_FOLDER else data_root() / folder


def database_url() -> str:
    """Return the URL of the platform's database for the writer role. It holds a password: never log it.

    Raise FileNotFoundError if neither the setting exists nor the embedded server was set up.
    """
    return given_database_url() or (home() / "postgres" / "writer.url").read_text().strip()


def database_pooler() -> str | None:
    """Return the URL by which Spark's tasks reach the platform's database, if that is another one.

    It holds a password: never log it.
    """
    given = _current().database_url_pooler
    return given.get_secret_value() if given else None


def page_records() -> str:
    """Return which users of Airflow see values of records on its page, as the setting names them."""
    return _current().page_records


def given_database_url() -> str | None:
    """Return `database_url` if it is set; None: the embedded server. It holds a password: never log it."""
    given = _current().database_url
    return given.get_secret_value() if given else None


def embedded() -> bool:
    """Return whether the platform's database is this home's own server, which we may start, and not another one that a
    URL names."""
    return named_database() is None


def named_database() -> tuple[str, str] | None:
    """Return the variable that names another database than this home's own, and where that one is; None if none does.

    A container of Airflow's page has only the reader's URL.
    """
    own = {address(path.read_text().strip()) for path in home().glob("postgres/*.url")}
    given = {"ONLYONCE_DATABASE_URL": given_database_url(), "ONLYONCE_READER_URL": given_reader_url()}
    named = ((variable, address(url)) for variable, url in given.items() if url)
    return next(((variable, server) for variable, server in named if server not in own), None)


def reader_url() -> str:
    """Return the URL for the role that sees the views and can change nothing.

    Raise FileNotFoundError if neither the setting exists nor the embedded server was set up, and Refused if only the
    writer's URL is set: the embedded server is another platform then.
    """
    if given := given_reader_url():
        return given
    if given_database_url():
        raise Refused(
            "ONLYONCE_DATABASE_URL names a database, and ONLYONCE_READER_URL names no role that reads there",
            data="nothing was read or written",
            hint="set ONLYONCE_READER_URL to the same database with the login of a role that may read its views",
        )
    return (home() / "postgres" / "reader.url").read_text().strip()


def reading_url() -> str:
    """Return the URL by which commands of a person read: the reader's, or the writer's if only that one is set.

    Not for a statement that the person writes: it may end a read-only transaction. It holds a password: never log it.
    Raise FileNotFoundError if neither is set nor the embedded server was set up.
    """
    return given_reader_url() or given_database_url() or reader_url()


def given_reader_url() -> str | None:
    """Return `reader_url` if it is set; None: the embedded server's. It holds a password: never log it."""
    given = _current().reader_url
    return given.get_secret_value() if given else None


def admin_url() -> str:
    """Return the superuser's URL, by which `onlyonce.local.setup` makes roles and databases.

    Raise Refused if it is not set.
    """
    return _needed("ONLYONCE_ADMIN_URL", _current().admin_url)


def airflow_password() -> str:
    """Return the password of the UI's user in the real set-up. Raise Refused if it is not set."""
    return _needed("ONLYONCE_AIRFLOW_PASSWORD", _current().airflow_password)


@dataclass(frozen=True)
class AirflowLogin:
    """How to reach the Airflow that commands call; empty strings for what is not set. The secrets are never printed."""

    url: str
    user: str
    password: str = field(repr=False)
    token: str = field(repr=False)


def airflow_login() -> AirflowLogin:
    """Return the Airflow that pause, resume and stop call, with the login."""
    given = _current()
    password, token = (
        secret.get_secret_value() if secret else "" for secret in (given.airflow_password, given.airflow_token)
    )
    return AirflowLogin(given.airflow_url or "", given.airflow_user or "", password, token)


def _needed(name: str, given: SecretStr | None) -> str:
    if given is None:
        raise Refused(
            f"{name} {why_missing(name)}",
            data="nothing was read or written",
            hint="`onlyonce settings` says what it is",
        )
    return given.get_secret_value()


def database_patience() -> float:
    """Return how many seconds to wait for a database that is unreachable.

    An executor without pydantic has no settings, and takes the default.
    """
    try:
        import pydantic_settings  # noqa: F401
    except ModuleNotFoundError:
        return 60.0
    return _current().database_patience


def task_sessions() -> int:
    """Return how many database sessions the tasks of one executor have at once."""
    return _current().task_sessions


def pg_port() -> int:
    """Return the port of the embedded PostgreSQL on the loopback address."""
    return _current().pg_port


def airflow_port() -> int:
    """Return the port of Airflow's UI and API on the loopback address."""
    return _current().airflow_port


def master() -> str:
    """Return Spark's master."""
    return _current().master


def pipeline_files() -> list[Path]:
    """Return the files with declarations, in order."""
    listed = [path.expanduser().resolve() for path in _current().pipelines]
    return listed or [_of_project(Path.cwd()) or shipped()]


def shipped() -> Path:
    """Return the file of the pipelines that ship, which is read where no other is named."""
    return ROOT / "jobs" / "pipelines.py"


NO_PROJECTS = ("node_modules", "site-packages", "venv", "__pycache__")
"""Folders, in addition to hidden ones, in which no project is."""


def files_below(folder: Path, depth: int) -> list[Path]:
    """Return the files pipelines.py that are `depth` folders below a folder, in order of their paths.

    Hidden folders and folders of libraries are left out, and folders that can't be read.
    """
    found = [folder]
    for _ in range(depth):
        found = [inner for one in found for inner in _folders_in(one)]
    return sorted(file for one in found if (file := one / "pipelines.py").is_file())


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [one for one in folder.iterdir() if not _is_left_out(one.name) and one.is_dir()]
    except OSError:  # it may not be read
        return []


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name in NO_PROJECTS


def _of_project(folder: Path) -> Path | None:
    """Return the file of the project in the working folder, as `onlyonce init` makes it: directly, or in its one
    package."""
    own = folder / "pipelines.py"
    found = [own] if own.is_file() else files_below(folder, 1)
    from onlyonce import configuration

    if len(found) != 1:
        return None
    configuration.refuse_foreign(found[0])
    return found[0].resolve()


def schedule() -> str | None:
    """Return the cron expression of the stream DAGs, UTC; None: by hand only."""
    given = _current().schedule
    return None if given == "none" else given


def backfill_interval() -> str:
    """Return the cron expression of a backfill's data intervals, UTC."""
    return _current().backfill_interval


def spark() -> Configuration:
    """Return all settings, for the options of a Spark session, which need many of them."""
    return _current()


def log_format() -> str:
    """Return how log lines look: lines or json."""
    return _current().log


def log_limits() -> tuple[int, int]:
    """Return how many bytes the log file of a continuous run has before it is put aside, and how many such files are
    kept."""
    return _current().log_bytes, _current().log_files


def keep_units_days() -> int:
    """Return how many days the log keeps the units of committed batches."""
    return _current().keep_units_days


def keep_staged_days() -> int:
    """Return how many days the staged rows of committed batches stay."""
    return _current().keep_staged_days


def heartbeat_seconds() -> float:
    """Return how many seconds pass between two heartbeats of a continuous run's driver."""
    return _current().heartbeat


def in_driver_bytes() -> int:
    """Return below how many bytes the driver receives a batch itself; 0: never."""
    return _current().in_driver_bytes


def alert_hook() -> str | None:
    """Return the hook that gets alerts. A webhook's URL is a secret: never log it."""
    given = _current().alert_hook
    return given.get_secret_value() if given else None


def alert_lag_minutes() -> float:
    """Return how many minutes input may wait for a stage before it is an alert."""
    return _current().alert_lag_minutes


def ask_sources_minutes() -> int:
    """Return how many minutes lie between two requests to a source whose answers are stored."""
    return _current().ask_sources_minutes


def keep_temporaries_hours() -> float:
    """Return how many hours temporaries of sharded files stay, once no attempt can need them any more."""
    return _current().keep_temporaries_hours


def vacuum_hours() -> int:
    """Return how many hours files stay that are no longer part of a Delta table: longer than any query, at least a
    day."""
    return _current().vacuum_hours


def archive() -> Location | None:
    """Return where input files move once every batch that read them is committed: a folder or a prefix of a store.

    None: they stay where they are.
    """
    named = _current().archive
    return location(named, "ONLYONCE_ARCHIVE") if named and is_url(named) else _folder("ONLYONCE_ARCHIVE", named)


def jars() -> Path | None:
    """Return the folder with the jars of Delta and Kafka if one is named; None: the folder that `make env` fills."""
    return _folder("ONLYONCE_JARS", _current().jars)


def _folder(name: str, named: str | None) -> Path | None:
    check_folder(name, named)
    return Path(named).expanduser().resolve() if named else None


# The folders at the top of the embedded home. Only their owner may enter them, whatever permissions the files below
# them have. PostgreSQL's account must reach its own folder through the home if the owner is root, so the home itself
# may be entered (0711), not listed.


PRIVATE = 0o700
ENTERED = 0o711
FOLDERS = ("airflow", "checks", "data", "files", "inbox", "logs", "run", "spark-warehouse", "tables", "tmp")
OF_SERVER = ("postgres", "server")
"""PostgreSQL's account enters these. What is secret below them is its own, or a file of mode 600."""


def make_folder(home: Path, names: Sequence[str] = FOLDERS) -> None:
    """Make private folders that are missing, and the home.

    A folder that exists keeps its permissions; the doctor reports a wider one. Raise Refused if the system does not
    let this user make one.
    """
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir(mode=ENTERED, exist_ok=True)
        for name in names:
            (home / name).mkdir(mode=PRIVATE, exist_ok=True)
    except OSError as error:
        raise not_writable(home, error) from error


def not_writable(home: Path, error: OSError, data: str = "nothing was read or written") -> Refused:
    """Return the error for a home that can't be made, or in which this user may not write."""
    why = error.strerror or error
    return Refused(
        f"no permission for {error.filename} in the platform's home: {why}"
        if home.is_dir()
        else f"the platform's home {home} can't be made: {why}",
        data=data,
        hint="let ONLYONCE_HOME name a folder in which this user may write, or be the user who made this one",
    )


def inside_home(home: Path, name: str, *below: str) -> Path:
    """Make a private folder of a home if it is missing, with a folder below it, and return the lower one.

    The first command that needs it makes it, `up` or another.
    """
    make_folder(home, (name,))
    folder = home.joinpath(name, *below)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def wider_folders(home: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield each folder of a home that other users may enter or read, with its permissions and those it should have."""
    if not home.is_dir():
        return
    below = sorted(
        path for path in home.iterdir() if path.is_dir() and not path.is_symlink() and path.name not in OF_SERVER
    )
    for path, allowed in [(home, ENTERED), *((one, PRIVATE) for one in below)]:
        found = stat.S_IMODE(path.stat().st_mode)
        if found & ~allowed & 0o077:
            yield path, found, allowed
