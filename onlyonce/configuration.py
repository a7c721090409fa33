"""The list of all settings, with type, default and meaning; and the value of each.

An environment variable (ONLYONCE_ and the name in capitals) wins over the TOML file. ONLYONCE_CONFIG names the file;
the default is `onlyonce.toml` in the working folder. An empty variable counts as not set. A relative path in the file
starts at the file's folder. The rest of the package reads settings by `onlyonce.settings`. Executors import neither
this module nor pydantic: what they need of the settings travels to them.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from os import pathsep
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from onlyonce import environment
from onlyonce.core.database_url import EXAMPLE, is_postgres, with_driver
from onlyonce.core.errors import Refused
from onlyonce.core.near_names import did_you_mean, near


def refuse_foreign(file: Path) -> None:
    """Raise Refused if another user could have put a file there that was found and not named.

    That is the case if the file, its folder, or a link to one of them belongs to another user, or all may write to it.
    """
    for path in (file, file.parent, file.resolve(), file.resolve().parent):
        theirs = any(found.st_uid not in (os.geteuid(), 0) for found in (path.lstat(), path.stat()))
        # In a folder such as /tmp no user can replace another user's file.
        open_to_all = path.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
        if theirs or open_to_all:
            raise Refused(
                f"{file} was found, but {path} "
                f"{'belongs to another user' if theirs else 'may be written by every user'}, and declarations and "
                "settings run code as yours",
                data="nothing was run, read or written",
                hint="name the file if you trust it: --pipelines, ONLYONCE_PIPELINES, or ONLYONCE_CONFIG for settings",
            )


def others_may_write(folder: Path) -> bool:
    """Return whether another user may put files into a folder, such as /tmp.

    `python -m` would import its modules from there.
    """
    found = folder.stat()
    return found.st_uid not in (os.geteuid(), 0) or bool(found.st_mode & stat.S_IWOTH)


# The settings.


PREFIX = "ONLYONCE_"
CONFIG = "ONLYONCE_CONFIG"
FILE = "onlyonce.toml"

Port = Annotated[int, Field(ge=1, le=65535)]
NotNegative = Annotated[float, Field(ge=0)]
Days = Annotated[int, Field(ge=0)]
Level = Literal["ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"]
FOLDERS = ("home", "archive", "jars")
URLS = ("database_url", "reader_url", "admin_url", "database_url_pooler")
CRON = r"@[a-z]+|[\dA-Za-z*][\dA-Za-z*?/,#-]*( +[\dA-Za-z*?/,#-]+){4,5}"
"""The form of a cron expression. Only Airflow knows whether the values of its fields can be ones."""
ALLOWED_IN_WORDS = (
    dict.fromkeys(FOLDERS, "a folder")
    | dict.fromkeys(("driver_memory", "executor_memory"), "a number with k, m, g or t")
    | {
        "schedule": "a cron expression of five fields, @daily or the like, or none",
        "backfill_interval": "a cron expression of five fields, or @daily or the like",
    }
    | dict.fromkeys(URLS, f"a URL of PostgreSQL: {EXAMPLE}")
)


class Configuration(BaseSettings):
    """Every setting of the platform. Immutable; a wrong value raises."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    # Where things are
    home: str | None = Field(
        None,
        description="the one folder of all state; by default .onlyonce in a checkout, of an installed package "
        "~/.onlyonce",
    )
    pipelines: Annotated[tuple[Path, ...], NoDecode] = Field(
        (),
        description="files with declarations: in the variable separated by ':', in the file a list; by default "
        "pipelines.py in the working folder or in one folder of it, else jobs/pipelines.py",
    )
    data: str | None = Field(
        None,
        description="where events, manifests, checkpoints, staged rows and result tables are: a folder, or a "
        "prefix of a store as s3://bucket/prefix; by default the home",
    )
    archive: str | None = Field(
        None,
        description="folder, or prefix of a store as s3://bucket/prefix, for input files that are committed; by "
        "default they stay in the inbox",
    )

    # The database
    database_url: SecretStr | None = Field(
        None, description="the platform's PostgreSQL, as SQLAlchemy's URL; by default the embedded server"
    )
    reader_url: SecretStr | None = Field(None, description="the same for the role that only reads")
    admin_url: SecretStr | None = Field(
        None, description="the same for the superuser; only `python -m onlyonce.local.setup` reads it"
    )
    database_patience: NotNegative = Field(60.0, description="seconds that a run waits for an unreachable database")

    database_url_pooler: SecretStr | None = Field(
        None,
        description="the same for Spark's tasks, where they go through a pooler; a sink's variable has one with "
        "_POOLER behind its name",
    )
    task_sessions: int = Field(4, ge=1, description="database sessions that the tasks of one executor have at once")

    # Spark
    master: str = Field("local[*]", description="Spark's master: local[N], spark://host:port or yarn")
    driver_host: str | None = Field(
        None,
        description="the address at which executors find the driver; by default the loopback of a local master, "
        "of spark:// this machine's on the way to the master",
    )
    driver_memory: str | None = Field(
        None,
        pattern=r"^\d+[kmgtKMGT]$",
        description="memory of the driver's JVM, which does all the work of a local master; by default 2g",
    )
    executor_memory: str | None = Field(
        None, pattern=r"^\d+[kmgtKMGT]$", description="memory of each executor's JVM; by default Spark's, 1g"
    )
    executor_patience: float = Field(
        300.0,
        ge=1,
        description="seconds that a run on a cluster waits for an executor after it lost all of them, or after Spark's "
        "standalone master has forgotten it; then it ends with exit code 75",
    )
    shuffle_partitions: int | None = Field(
        None,
        ge=1,
        description="partitions of Spark's own exchanges and of an output's state, fixed for an incarnation of an "
        "output by its first batch; by default 2 with a local master, and as many as the cores that a "
        "cluster is asked for",
    )
    most_partitions: int = Field(
        64,
        ge=1,
        description="partitions in which one batch is cut at most; each is a task and a transaction, and a batch "
        "is cut by its size and the cores",
    )
    state: Literal["rocksdb", "memory"] = Field(
        "rocksdb",
        description="where Spark keeps the open windows of outputs, fixed for an incarnation of an output by its first "
        "batch: in RocksDB, on the disk of the executor, or in the memory of its JVM",
    )
    state_memory: int = Field(
        500,
        ge=16,
        description="MB that RocksDB takes for all state of an executor, or of a local master's driver, outside "
        "the memory of the JVM",
    )
    jars: str | None = Field(
        None,
        description="folder with the jars of Delta and Kafka; by default the one that `make env` fills; where "
        "that is missing Spark fetches them by their coordinates",
    )
    spark_ui: bool | None = Field(None, description="Spark's own web page; by default false")
    spark_lines: bool = Field(False, description="Spark's errors name the line of the transform; slower")
    spark_log: Level | None = Field(None, description="what Spark itself logs; by default ERROR")
    in_driver_bytes: int = Field(
        4 << 20,
        ge=0,
        description="a batch of fewer bytes, all on the fast JSON path (flat objects), needs no Spark job; 0: never",
    )
    outputs_at_once: int = Field(
        4, ge=1, description="outputs that run at the same time; each holds the rows of its batch in memory"
    )
    output_batch_bytes: int = Field(
        1 << 30,
        ge=1,
        description="bytes of `events` that a batch of an output reads at most, in whole batches of receive: one "
        "of receive's is never cut",
    )
    output_batch_commits: int = Field(
        1000, ge=1, description="batches of receive that a batch of an output reads at most"
    )

    # Airflow
    schedule: str = Field(
        "*/10 * * * *", pattern=f"^(none|{CRON})$", description="cron of the stream DAGs, UTC; none: by hand"
    )
    backfill_interval: str = Field(
        "0 0 * * *", pattern=f"^({CRON})$", description="cron of a backfill's data intervals, UTC"
    )
    airflow_port: Port = Field(8080, description="port of the embedded Airflow's page and API")
    airflow_url: str | None = Field(
        None,
        description="the Airflow that pause, resume and stop speak to; by default AIRFLOW__API__BASE_URL, else "
        "the embedded one",
    )
    airflow_token: SecretStr | None = Field(
        None, description="a token of its API, with which no one logs in; by default AIRFLOW_CLI_TOKEN"
    )
    airflow_user: str | None = Field(None, description="a login of it, for auth managers that have /auth/token")
    airflow_password: SecretStr | None = Field(
        None, description="the login's password; of the page where `python -m onlyonce.local.setup` makes its user"
    )
    pg_port: Port = Field(54318, description="port of the embedded PostgreSQL")
    page_records: Literal["editors", "viewers", "nobody"] = Field(
        "editors",
        description="who sees values of records on Airflow's page: users who may start runs of the pipeline's "
        "DAG, users who may only read them, or none",
    )

    # Continuous runs, logs and alerts
    heartbeat: float = Field(5.0, gt=0, description="seconds between two heartbeats of a continuous run")
    log: Literal["lines", "json"] = Field("lines", description="how log lines look; json sends them through a pipe too")
    log_bytes: int = Field(
        20_000_000, ge=1000, description="bytes that the log file of a continuous run has before it is put aside"
    )
    log_files: int = Field(5, ge=1, description="files of a continuous run's log that are kept besides the present one")
    alert_hook: SecretStr | None = Field(
        None,
        description="who gets alerts: 'module:function', or a webhook's URL; by default alerts are only kept",
    )
    alert_lag_minutes: NotNegative = Field(60.0, description="input that waits for longer is an alert")
    ask_sources_minutes: int = Field(
        5, ge=1, le=30, description="minutes between requests to sources for unread input, for alerts and metrics"
    )

    # What is kept, and for how long
    keep_units_days: Days = Field(90, description="days that the log keeps the units of committed batches")
    keep_staged_days: Days = Field(1, description="days that staged rows of committed batches stay")
    keep_temporaries_hours: NotNegative = Field(
        24.0, description="hours that temporaries of sharded files stay that no attempt can need"
    )
    vacuum_hours: int = Field(
        168, ge=24, description="hours that files stay which a Delta table has no more: longer than any reader's query"
    )

    @field_validator(*URLS, mode="before")
    @classmethod
    def _of_postgres(cls, value: Any) -> Any:
        if isinstance(value, str) and not is_postgres(value):
            raise ValueError
        return with_driver(value) if isinstance(value, str) else value

    @field_validator("pipelines", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(part for part in value.split(pathsep) if part) if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource, dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:  # fmt: skip
        """Read the environment, then the file (whose values are given when the class is made)."""
        return env_settings, init_settings


FIELDS: dict[str, FieldInfo] = dict(Configuration.model_fields)
VARIABLES = {name: f"{PREFIX}{name.upper()}" for name in FIELDS}


@dataclass(frozen=True)
class Shown:
    """One setting, as the command `onlyonce settings` shows it: for a secret only whether it is set."""

    setting: str
    variable: str
    value: str
    origin: str
    meaning: str


def current() -> Configuration:
    """Return the present settings of the environment and the file. Cheap: cached until one of the two changes.

    Raise Refused for a wrong value, for an unknown name, and for a file that is missing or is not TOML.
    """
    named, *given = environment.variables((CONFIG, *VARIABLES.values()))
    path = _file(named)
    return _validated(path, path.stat().st_mtime_ns if path else 0, tuple(given))


def shown() -> list[Shown]:
    """Return every setting with its value and the value's origin. Raise Refused if one is wrong."""
    values, path = current(), file()
    in_file = _read(path) if path else {}
    return [
        Shown(
            name, VARIABLES[name], _text(getattr(values, name)), _origin(name, path, in_file), str(field.description),
        )
        for name, field in FIELDS.items()
    ]  # fmt: skip


def default_of(name: str) -> str:
    """Return the default, as it is written in a variable; empty if there is none."""
    return _text(FIELDS[name].default)


def misspelt() -> Iterator[tuple[str, str]]:
    """Yield each variable of the environment whose name is almost a setting's, and the setting's."""
    for name in environment.inherited():
        known = name in VARIABLES.values() or not name.startswith(PREFIX)
        if not known and (meant := near(name, VARIABLES.values(), 0.9)):
            yield name, meant


def allowed(name: str) -> str:
    """Return what a value must be, in words."""
    field = FIELDS[name]
    if name in ALLOWED_IN_WORDS:
        return ALLOWED_IN_WORDS[name]
    kinds = [kind for kind in (*get_args(field.annotation), field.annotation) if kind is not type(None)]
    if literal := next((kind for kind in kinds if get_origin(kind) is Literal), None):
        return " or ".join(map(str, get_args(literal)))
    words = {int: "a whole number", float: "a number", bool: "true or false", Path: "paths"}
    word = next((words[kind] for kind in kinds if kind in words), "text")
    return " ".join([word, *_bounds(field)])


def _bounds(field: FieldInfo) -> Iterator[str]:
    for bound in field.metadata:
        for sign, said in (("ge", "from {}"), ("gt", "above {}"), ("le", "to {}")):
            if (limit := getattr(bound, sign, None)) is not None:
                yield said.format(limit)


@lru_cache(maxsize=4)
def _validated(file: Path | None, changed: int, given: tuple[str | None, ...]) -> Configuration:
    """Return the settings. pydantic reads the variables itself: `changed` and `given` are only part of the cache's key.

    changed   when the file was written last
    given     the value of each variable
    """
    in_file = _read(file) if file else {}
    try:
        return Configuration(**in_file)
    except ValidationError as error:
        raise _refused(error, file, in_file) from None


PROTOCOL = re.compile(r"(jdbc:)?[a-z][a-z0-9+]{1,20}")


def _refused(error: ValidationError, file: Path | None, in_file: dict[str, Any]) -> Refused:
    first = error.errors()[0]
    name, value = str(first["loc"][0]), first["input"]
    secret = SecretStr in get_args(FIELDS[name].annotation)
    by_variable = _origin(name, file, in_file) == "environment"
    given = environment.variable(VARIABLES[name]) if by_variable else value
    where = VARIABLES[name] if by_variable else f"{name} in {file}"
    scheme, found, _ = str(given).partition("://")
    # What is before "://" may be a part of a password, if it is not the name of a protocol.
    other = found and PROTOCOL.fullmatch(scheme) and scheme not in ("postgresql", "postgres")
    wrong = f"begins with '{scheme}://'" if other else "does not have the form that it needs"
    return Refused(
        f"the setting {where} {wrong if secret else f'is {given!r}'}",
        data="nothing was read or written",
        hint=f"allowed is {allowed(name)}" + (f"; without it: {default}" if (default := default_of(name)) else ""),
    )


def _origin(name: str, file: Path | None, in_file: dict[str, Any]) -> str:
    if environment.variable(VARIABLES[name]):
        return "environment"
    return str(file) if name in in_file else "default"


def file() -> Path | None:
    """Return the TOML file of settings; None if there is none. Raise Refused if ONLYONCE_CONFIG names no file."""
    return _file(environment.variable(CONFIG))


def _file(named: str | None) -> Path | None:
    if named:
        there = Path(named).expanduser().resolve()
        if not there.is_file():
            raise Refused(
                f"{CONFIG} names {there}, which is not a file",
                data="nothing was read or written",
                hint="correct it, or unset it",
            )
        return there
    beside = Path(FILE).resolve()
    if not beside.is_file():
        return None
    refuse_foreign(Path(FILE))
    return beside


def _read(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(
            f"{file} can't be read: {error}", data="nothing was read or written", hint="correct the file"
        ) from error
    for name in found:
        if name not in FIELDS:
            raise Refused(
                f"{file} has {name!r}, which is not a setting",
                data="nothing was read or written",
                hint=f"{did_you_mean(near(name, FIELDS))}choose a name that `onlyonce settings` lists",
            )
    return {name: _from_folder(file.parent, name, value) for name, value in found.items()}


def _from_folder(folder: Path, name: str, value: Any) -> Any:
    if name == "pipelines":
        return [str(folder / Path(part).expanduser()) for part in ([value] if isinstance(value, str) else value)]
    # A URL is not a path: the reader of the folder refuses it.
    is_path = name in FOLDERS and isinstance(value, str) and ":/" not in value
    return str(folder / Path(value).expanduser()) if is_path else value


def _text(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, tuple):
        return pathsep.join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
