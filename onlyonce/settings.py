"""Where things are: the one place that reads the environment, and sets it for a while. No other effects, no imports of the edges.

| variable                | meaning                                          | default                      |
|-------------------------|--------------------------------------------------|------------------------------|
| ONLYONCE_HOME           | the one folder of all state                      | .onlyonce beside this checkout; of an installed package ~/.onlyonce |
| ONLYONCE_DATABASE_URL   | the platform's PostgreSQL (SQLAlchemy's URL)     | the embedded server          |
| ONLYONCE_READER_URL     | the same for the role that only reads            | the embedded server          |
| ONLYONCE_ADMIN_URL      | the same for the superuser: `onlyonce.local.setup`   | none                         |
| ONLYONCE_AIRFLOW_PASSWORD | the UI's password: `onlyonce.local.setup`          | none                         |
| ONLYONCE_PIPELINES      | files with declarations, separated by ':'        | pipelines.py in the working folder, or in one folder of it; else jobs/pipelines.py |
| ONLYONCE_SCHEDULE       | cron of the stream DAGs, UTC; 'none': by hand    | */10 * * * *                 |
| ONLYONCE_BACKFILL_INTERVAL | cron of a backfill's data intervals, UTC         | 0 0 * * *                    |
| ONLYONCE_PG_PORT        | port of the embedded PostgreSQL                  | 54318                        |
| ONLYONCE_AIRFLOW_PORT   | port of Airflow's UI and API                     | 8080                         |
| ONLYONCE_MASTER         | Spark's master                                   | local[*]                     |
| ONLYONCE_DRIVER_HOST    | the address at which executors of a remote master find the driver | local: the loopback; spark://: this machine's on the way to the master |
| ONLYONCE_KEEP_UNITS_DAYS | how long the log keeps units of committed batches | 90                          |
| ONLYONCE_KEEP_STAGED_DAYS | how long staged rows of committed batches stay  | 1                            |
| ONLYONCE_HEARTBEAT      | seconds between two heartbeats of a long run     | 5                            |
| ONLYONCE_IN_DRIVER_BYTES | a batch of fewer bytes, all plain lines, needs no Spark job; 0: never | 4194304    |
| ONLYONCE_ALERT_HOOK     | 'module:function' or a webhook's URL             | none: alerts are only kept   |
| ONLYONCE_ALERT_LAG_MINUTES | input that waits for longer is an alert       | 60                           |
| ONLYONCE_KEEP_TEMPORARIES_HOURS | how long temporaries of sharded files stay that nobody can want | 24 |
| ONLYONCE_ARCHIVE        | folder for input files that are committed        | none: they stay in the inbox |
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from onlyonce.model.errors import Refused
from onlyonce.model.folders import check_folder

ROOT = Path(__file__).resolve().parent.parent


def home() -> Path:
    """The folder of all state, absolute; it may not exist yet. Raises Refused for a URL, as the others do, and for
    state that lies among installed packages."""
    named = os.environ.get("ONLYONCE_HOME")
    check_folder("ONLYONCE_HOME", named)
    return Path(named).expanduser().resolve() if named else _default_home(ROOT)


def _default_home(root: Path) -> Path:
    beside, own = root / ".onlyonce", Path.home() / ".onlyonce"
    if (root / "pyproject.toml").is_file():
        return beside.resolve()
    # Among the packages: to make the environment anew would delete the commit log.
    if beside.exists() and not own.exists():
        raise Refused(
            f"there is a platform in {beside}, among the installed packages, which an update deletes",
            data="nothing was read or written",
            hint=f"stop what runs there, then move it: mv {beside} {own}; or name its place: ONLYONCE_HOME",
        )
    return own.resolve()


def inbox(pipeline: str, declared: str | None = None) -> Path:
    """The folder that the file source of a pipeline lists: the one its declaration names, or one in the home."""
    return Path(declared).expanduser() if declared else home() / "inbox" / pipeline


def data_dir(instance: str) -> Path:
    """The folder of a pipeline's (or bounded run's) own data: events, registry, checkpoints."""
    return home() / "data" / instance


def tables_dir() -> Path:
    """The folder of the Delta tables that outputs write and people read."""
    return home() / "tables"


def files_dir() -> Path:
    """The folder of the files that sharded outputs write and people read."""
    return home() / "files"


def database_url() -> str:
    """The URL of the platform's database for the writer role. It holds a password: never log it.

    Raises FileNotFoundError when neither the variable is set nor the embedded server was set up.
    """
    from_environment = os.environ.get("ONLYONCE_DATABASE_URL")
    return from_environment or (home() / "postgres" / "writer.url").read_text().strip()


def embedded() -> bool:
    """Whether the platform's database is the embedded server, which we may start, and not one that a URL names."""
    return not os.environ.get("ONLYONCE_DATABASE_URL")


def reader_url() -> str:
    """The URL for the role that sees the views and can change nothing."""
    from_environment = os.environ.get("ONLYONCE_READER_URL")
    return from_environment or (home() / "postgres" / "reader.url").read_text().strip()


def admin_url() -> str:
    """The superuser's URL, where `onlyonce.local.setup` makes roles and databases. Raises KeyError when it is not set."""
    return os.environ["ONLYONCE_ADMIN_URL"]


def airflow_password() -> str:
    """The password of the UI's user in the real set-up. Raises KeyError when it is not set."""
    return os.environ["ONLYONCE_AIRFLOW_PASSWORD"]


def pg_port() -> int:
    """The port of the embedded PostgreSQL on the loopback address."""
    return int(os.environ.get("ONLYONCE_PG_PORT", "54318"))


def airflow_port() -> int:
    """The port of Airflow's UI and API on the loopback address."""
    return int(os.environ.get("ONLYONCE_AIRFLOW_PORT", "8080"))


def master() -> str:
    """Spark's master."""
    return os.environ.get("ONLYONCE_MASTER", "local[*]")


def pipeline_files() -> list[Path]:
    """The files with declarations, in order."""
    listed = os.environ.get("ONLYONCE_PIPELINES", "")
    named = [Path(part).expanduser().resolve() for part in listed.split(os.pathsep) if part]
    return named or [_of_project(Path.cwd()) or ROOT / "jobs" / "pipelines.py"]


def _of_project(folder: Path) -> Path | None:
    """The file of the project that a person works in, as `onlyonce init` makes it: beside, or in its one package."""
    own = folder / "pipelines.py"
    found = [own] if own.is_file() else list(folder.glob("*/pipelines.py"))
    return found[0].resolve() if len(found) == 1 else None


def keep_units_days() -> int:
    """How long the log keeps the units of committed batches."""
    return int(os.environ.get("ONLYONCE_KEEP_UNITS_DAYS", "90"))


def keep_staged_days() -> int:
    """How long the staged rows of committed batches stay."""
    return int(os.environ.get("ONLYONCE_KEEP_STAGED_DAYS", "1"))


def heartbeat_seconds() -> float:
    """How often the driver of a long run gives a sign of life."""
    return float(os.environ.get("ONLYONCE_HEARTBEAT", "5"))


def in_driver_bytes() -> int:
    """Below which size the driver takes in a batch itself; 0: never."""
    return int(os.environ.get("ONLYONCE_IN_DRIVER_BYTES", str(4 << 20)))


def alert_hook() -> str | None:
    """Who is told of alerts. A webhook's URL is a secret: never log it."""
    return os.environ.get("ONLYONCE_ALERT_HOOK") or None


def alert_lag_minutes() -> float:
    """How long input may wait for a stage before it is an alert."""
    return float(os.environ.get("ONLYONCE_ALERT_LAG_MINUTES", "60"))


def keep_temporaries_hours() -> float:
    """How long temporaries of sharded files stay, once no attempt can want them any more."""
    return float(os.environ.get("ONLYONCE_KEEP_TEMPORARIES_HOURS", "24"))


def vacuum_hours() -> int:
    """How long files stay that are no longer part of a Delta table: longer than any reader's query. At least a day."""
    return max(24, int(os.environ.get("ONLYONCE_VACUUM_HOURS", "168")))


def archive() -> Path | None:
    """Where input files go when every batch that read them is committed; None: they stay where they are."""
    named = os.environ.get("ONLYONCE_ARCHIVE")
    check_folder("ONLYONCE_ARCHIVE", named)
    return Path(named).expanduser().resolve() if named else None


@contextmanager
def within(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables are set inside, and as before outside. What is started inside inherits them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
