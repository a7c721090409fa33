"""The variables that a job gets from its task's environment: the database's URL and the keys of an object store, which
must be on no command line and in no log.

Who calls it: the operators in `onlyonce.airflow.spark_job` and `onlyonce.airflow.jobs`, and modules
that ask the log.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from airflow.sdk import Asset, AssetAlias, Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from onlyonce import settings
from onlyonce.airflow.declared import Declared
from onlyonce.core import stored_names
from onlyonce.core.errors import CommitStateUnknown, Refused, Retryable, in_line, visible
from onlyonce.core.runs import LongRun, Report
from onlyonce.settings import within

CONNECTION = "onlyonce_db"
READER_CONNECTION = "onlyonce_db_reader"
STORE = "onlyonce_store"
"""A connection of the type aws. Without it the variables of the worker hold, or the role of its machine."""
OF_STORE = {"aws_session_token": "AWS_SESSION_TOKEN", "region_name": "AWS_REGION", "endpoint_url": "AWS_ENDPOINT_URL"}
"""What its extra may have, and the variable that says it."""


class Database(Protocol):
    """The fields of an Airflow connection that are used here."""

    host: str | None
    port: int | None
    login: str | None
    password: str | None
    schema: str | None

    @property
    def extra_dejson(self) -> dict[str, object]:
        """The query of the URL, sslmode and the like."""


def secret_variables() -> dict[str, str]:
    """What a job must know and nobody else: the URL of the database, and the keys of the object store where there is a
    connection for it."""
    return {**database_variables(), **store_variables()}


def store_variables() -> dict[str, str]:
    """The standard variables of S3 from the Airflow connection `onlyonce_store`; empty without it.

    From now on its keys are masked in the task's log.
    """
    try:
        found = Connection.get(STORE)
    except AirflowNotFoundException:
        return {}
    variables = keys_of(found)
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        if name in variables:
            mask_secret(variables[name])
    return variables


def keys_of(store: Database) -> dict[str, str]:
    """A connection of the type aws as the variables that clients of S3 read.

    They hold a secret: never log them. Pure.
    """
    if getattr(store, "conn_type", "aws") != "aws":
        raise Refused(
            f"the connection {STORE} is of the type {getattr(store, 'conn_type', None)}, and only aws can be "
            "turned into the variables of a store",
            data="nothing was started",
            hint="set the variables of that store for the workers instead (docs/how-to/object-store.md)",
        )
    if unknown := sorted({*store.extra_dejson} - {*OF_STORE}):
        raise Refused(
            f"the connection {STORE} has {', '.join(unknown)} in its extra, which not all clients of the store "
            "would follow",
            data="nothing was started",
            hint=f"only {', '.join(OF_STORE)} are turned into variables; take on a role on the machine, or by "
            "variables of the workers",
        )
    keys = {"AWS_ACCESS_KEY_ID": store.login, "AWS_SECRET_ACCESS_KEY": store.password}
    more = {variable: store.extra_dejson.get(name) for name, variable in OF_STORE.items()}
    return {name: str(value) for name, value in {**keys, **more}.items() if value}


def database_variables() -> dict[str, str]:
    """ONLYONCE_DATABASE_URL from the Airflow connection `onlyonce_db`.

    Empty when there is no such connection: the job then inherits the variable, or finds the URL in the
    platform's folder. From now on the password is masked in the task's log.
    """
    url = _url_of(CONNECTION)
    return {} if url is None else {"ONLYONCE_DATABASE_URL": url}


def _url_of(connection: str) -> str | None:
    """Return the URL of a connection, whose password is masked from now on; None if there is no such connection."""
    try:
        found: Database = Connection.get(connection)
    except AirflowNotFoundException:
        return None
    if found.password:
        mask_secret(found.password)
        mask_secret(quote(found.password, safe=""))
    return url_of(found)


def database_url() -> str:
    """The URL for what asks the log in Airflow's own process. It holds a password: never log it, never store it.

    Raises FileNotFoundError when there is neither the connection nor the variable nor a platform's folder.
    """
    return database_variables().get("ONLYONCE_DATABASE_URL") or settings.database_url()


def reader_url() -> str:
    """Return the URL for what only reads the log in Airflow's own process, so that a triggerer needs no password of the
    writer.

    Never log it.

    The reader's by its variable or connection, else the writer's connection, else that of the platform's folder. Raises
    FileNotFoundError when there is none.
    """
    url = settings.given_reader_url() or _url_of(READER_CONNECTION) or _url_of(CONNECTION)
    if url is not None:
        return url
    with suppress(FileNotFoundError):
        return settings.reader_url()
    return settings.database_url()


def url_of(database: Database) -> str:
    """The URL as the jobs take it. It holds a password: never log it. Pure."""
    login = quote(database.login or "", safe="")
    password = f":{quote(database.password, safe='')}" if database.password else ""
    host = database.host or ""
    place = f"[{host}]" if ":" in host else quote(host, safe="")
    port = f":{database.port}" if database.port else ""
    query = f"?{urlencode(options)}" if (options := database.extra_dejson) else ""
    account = f"{login}{password}@" if login else ""
    return f"postgresql+psycopg2://{account}{place}{port}/{quote(database.schema or '', safe='')}{query}"


# Writes a report into a task's log, one line for each row.
#
# For tasks without a driver; their log is configured by Airflow.


def tell(report: Report, log: logging.Logger) -> None:
    """Write a report line by line. No errors."""
    log.info("%s: %s", visible(report.title), _text(report.facts))
    for table, rows in report.tables.items():
        for row in rows:
            log.info("%s: %s", table, _text(row))
    for warning in report.warnings:
        log.warning("%s", visible(warning))


def _text(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={in_line(str(value))}" for name, value in values.items())


# The tables of outputs as Airflow's assets, so that other DAGs can follow them:
# `schedule=[Asset.ref(name="flights/per_carrier")]`.
#
# A task declares an alias and not the assets. An asset would have an event at the end of each run, even if the run had
# nothing to do. Through the alias only a table has an event to which the run has written rows.


def alias(pipeline: str) -> AssetAlias:
    """What the tasks of a pipeline declare as their outlet."""
    return AssetAlias(name=stored_names.asset_alias(pipeline), group=stored_names.ASSET_GROUP)


def asset(pipeline: str, output: str) -> Asset:
    """The table of an output. Its name is what a DAG that follows it asks for."""
    return Asset(
        name=stored_names.asset(pipeline, output), uri=stored_names.asset_uri(pipeline, output),
        group=stored_names.ASSET_GROUP,
    )  # fmt: skip


def report_assets(pipeline: str, context: Any, declared: Mapping[str, str]) -> None:
    """An event for each table that the run has written to, by the log. Raises Retryable: a retry tells it then.

    Called by the operators when their driver has ended well; `declared` are the variables that say where the
    declarations are. `extra` has batch, batches, rows, delta_version and run_id.
    """
    events = context.get("outlet_events")
    if events is None:
        return  # not in a task that Airflow runs
    # By name: it reads Delta tables, and this file is imported where DAG files are parsed.
    log = importlib.import_module("onlyonce.operate.assets")
    with within({**secret_variables(), **declared}):
        committed = log.committed(pipeline, context["run_id"])
    for extra in committed:
        events[alias(pipeline)].add(asset(pipeline, extra["output"]), extra=extra)


# Which windows a run of a backfill DAG recomputes, by its form or its data interval. Pure.


_NOTHING = "nothing was read or written"


@dataclass(frozen=True)
class Asked:
    """The windows of a pipeline that start in [start, stop), two times in ISO 8601, of one output or of all; `lookups`:
    'then' or 'now'.

    late_only   only windows with late records that are not in their result; then both times may be missing
    """

    pipeline: str
    start: str | None
    stop: str | None
    output: str | None = None
    lookups: str | None = None
    late_only: bool = False

    def arguments(self, run_id: str, dag_id: str) -> list[str]:
        """The driver's command line. No secret is among it."""
        asked = [self.pipeline, f"--run-id={run_id}", f"--dag-id={dag_id}"]
        asked += [f"--from={self.start}", f"--to={self.stop}"] if self.start else []
        asked += ["--late-only"] if self.late_only else []
        asked += [f"--output={self.output}"] if self.output else []
        return asked + ([f"--lookups={self.lookups}"] if self.lookups else [])


def asked_of(pipeline: str, params: Mapping[str, Any], interval: tuple[datetime, datetime] | None) -> Asked:
    """What a run asks for: by its Params, or by its data interval. Never by the run id, which holds the interval's end.

    With the Param late_only it may name no windows: then all with late records are meant. An empty interval is none.
    Raises Refused when neither names the windows, or both do, or half of it is missing.
    """
    start, stop = params.get("window_start"), params.get("window_end")
    late_only = bool(params.get("late_only"))
    if interval and interval[0] >= interval[1]:
        interval = None
    if interval and (start or stop):
        raise Refused(
            f"the run has the data interval {_window_text(interval)}, and its Params name windows too",
            data=_NOTHING,
            hint="leave window_start and window_end empty in a backfill of intervals; to name them, trigger a "
            "single run",
        )
    if interval:
        start, stop = (time.isoformat() for time in interval)
    if not start and not stop and not late_only:
        raise Refused(
            "this run has neither a data interval nor window_start and window_end",
            data=_NOTHING,
            hint="trigger it with both Params, or with late_only for all windows with late records; or choose "
            "Backfill in the trigger form for whole intervals",
        )
    if bool(start) != bool(stop):
        given, missing = ("window_start", "window_end") if start else ("window_end", "window_start")
        raise Refused(f"{given} is given, {missing} is not", data=_NOTHING, hint="trigger it with both Params")
    return Asked(pipeline, start or None, stop or None, params.get("output"), params.get("lookups"), late_only)


def _window_text(interval: tuple[datetime, datetime]) -> str:
    return " to ".join(time.isoformat() for time in interval)


# Asks the commit log about a backfill before Spark starts: whether it must wait, and what it would recompute.


SETTING = Declared()


def not_yet(asked: Asked, declared: Declared = SETTING) -> str | None:
    """Why a backfill must wait, or None when all its windows are closed. Raises Refused when waiting doesn't help.

    A database that is away is a reason to wait too. Called by the trigger on a thread, which has the reader's password
    only.
    """
    backfill = _backfill()
    database = backfill.Database(reader_url(), "onlyonce-airflow")
    pipeline = declared.one(asked.pipeline)
    roots = backfill.chosen(pipeline, asked.output)
    span = _span(asked, roots)
    if asked.late_only:  # a window that is open is left to the stream
        backfill.check_sinks(pipeline, roots)
        return None
    try:
        for root in roots:
            backfill.check(database, pipeline, root, span)
    except (Retryable, CommitStateUnknown) as error:
        return str(error)
    return None


def first_look(asked: Asked, declared: Declared = SETTING) -> str | None:
    """The same, once the database has this version's tables and views. Called by the operator."""
    try:
        _backfill().migrate(database_url())
    except (Retryable, CommitStateUnknown) as error:
        return str(error)
    return not_yet(asked, declared)


def would_recompute(asked: Asked, declared: Declared = SETTING) -> Report:
    """The dry run. Raises Refused, and Retryable when the database is away. Called by the operator."""
    backfill = _backfill()
    database = backfill.Database(database_url(), "onlyonce-airflow")
    pipeline = declared.one(asked.pipeline)
    roots = backfill.chosen(pipeline, asked.output)
    span = _span(asked, roots)
    backfill.migrate(database.url)
    report: Report = backfill.dry_run(
        database, pipeline, roots, span, asked.lookups or "then", late_only=asked.late_only
    )
    return report


def _span(asked: Asked, roots: list[Any]) -> Any:
    backfill = _backfill()
    start, stop = (time and backfill.written(time) for time in (asked.start, asked.stop))
    return backfill.span_of(roots, start, stop, late_only=asked.late_only)


def _backfill() -> Any:
    # By name: the module reaches Spark, though not in what is called here, and plugins import none.
    return importlib.import_module("onlyonce.outputs.backfill")


# Asks the commit log about a pipeline's long run.
#
# Called by the operator, and by the trigger on a thread, which has the reader's password only.


def prepare() -> None:
    """Bring a database of an older version to this one. A task begins with it."""
    _module("database.migrate").migrate(database_url())


def read_long_run(pipeline: str) -> LongRun | None:
    """The last long run; None before the first. Raises DatabaseAway."""
    found: LongRun | None = _long_runs(reader_url()).look(pipeline)
    return found


def watch(pipeline: str, supervisor: str) -> LongRun | None:
    """The same, by a supervisor that watches it from now on."""
    found: LongRun | None = _long_runs().watch(pipeline, supervisor)
    return found


def ask_stop(supervisor: str) -> bool:
    """Ask the driver that this supervisor watches to stop, unless another one watches it by now; whether it was
    asked."""
    return bool(_long_runs(reader_url()).ask_watched_to_stop(supervisor))


def at_work(pipeline: str) -> bool:
    """Whether any driver of the pipeline has a session with the log."""
    found = _module("commitlog.health").Health(database()).queries()
    return any(query.at_work for query in found if query.pipeline == pipeline)


def database(url: str | None = None) -> Any:
    """The log as Airflow reaches it; by default as the writer."""
    return _module("database.connect").Database(url or database_url(), "onlyonce-airflow")


def _long_runs(url: str | None = None) -> Any:
    return _module("commitlog.drivers").LongRuns(database(url))


def _module(name: str) -> Any:
    # By name: a DAG file, which reaches this module, parses without a database's driver.
    return importlib.import_module(f"onlyonce.{name}")


# Asks the commit log about the drivers of a run of a DAG.


def attempt(pipeline: str, context: Any) -> int:
    """How many drivers the run has had so far. Raises Retryable when the log is away."""
    prepare()
    known = read_driver_runs(pipeline, context)
    return known.attempt if known else 0


def read_driver_runs(pipeline: str, context: Any) -> Any:
    """The run's last driver, `onlyonce.commitlog.drivers.DriverRun`; None before the first. Raises Retryable."""
    log = importlib.import_module("onlyonce.commitlog.drivers")
    return log.DriverRuns(database()).look(context["ti"].dag_id, context["run_id"], pipeline)
