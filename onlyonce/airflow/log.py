"""Give Airflow's processes access to the commit log: its URL, and what tasks and triggers read and report.

The database's URL and the keys of an object store come from Airflow's connections. They must be on no command line and
in no log.
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
from onlyonce.core.errors import CommitStateUnknown, OnlyonceError, Refused, Retryable, in_line, visible
from onlyonce.core.runs import LongRun, Report
from onlyonce.settings import within

CONNECTION = "onlyonce_db"
READER_CONNECTION = "onlyonce_db_reader"
STORE = "onlyonce_store"
"""A connection of the type aws. Without it the worker's variables apply, or the role of its machine."""
OF_STORE = {"aws_session_token": "AWS_SESSION_TOKEN", "region_name": "AWS_REGION", "endpoint_url": "AWS_ENDPOINT_URL"}
"""The options that its extra may have, and the variable for each."""


class Database(Protocol):
    """The fields of an Airflow connection that are used here."""

    host: str | None
    port: int | None
    login: str | None
    password: str | None
    schema: str | None

    @property
    def extra_dejson(self) -> dict[str, object]:
        """Return the query of the URL, sslmode and the like."""


def secret_variables() -> dict[str, str]:
    """Return the variables that only a job may know.

    They are the URL of the database and, if there is a connection for it, the keys of the object store. Raise Refused
    if no database is known.
    """
    database = database_variables()
    if not database:
        _without_connection()
    return {**database, **store_variables()}


def store_variables() -> dict[str, str]:
    """Return the standard variables of S3 from the Airflow connection `onlyonce_store`; none if there is no connection.

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
    """Return a connection of the type aws as the variables that clients of S3 read.

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
    """Return ONLYONCE_DATABASE_URL from the Airflow connection `onlyonce_db`.

    Return nothing if there is no such connection: the job then inherits the variable, or finds the URL in the
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
    """Return the URL for readers of the log in Airflow's own process. It holds a password: never log it, never store
    it.

    Raise Refused if there is neither the connection nor the variable nor a platform's folder.
    """
    return database_variables().get("ONLYONCE_DATABASE_URL") or _without_connection()


def _without_connection() -> str:
    try:
        return settings.database_url()
    except FileNotFoundError as error:
        raise Refused(
            f"Airflow has no connection {CONNECTION}, which names the platform's PostgreSQL",
            data="nothing was started",
            hint=f"airflow connections add {CONNECTION} --conn-type postgres --conn-host HOST --conn-port 5432 "
            "--conn-schema onlyonce --conn-login onlyonce_writer --conn-password …; then clear the task",
        ) from error


def reader_url() -> str:
    """Return the URL for code that only reads the log in Airflow's own process. Never log it.

    It is the reader's by its variable or connection, else the writer's connection, else the URL of the platform's
    folder. So a triggerer needs no password of the writer. Raise Refused if there is none.
    """
    url = settings.given_reader_url() or _url_of(READER_CONNECTION) or _url_of(CONNECTION)
    if url is not None:
        return url
    with suppress(FileNotFoundError, Refused):
        return settings.reader_url()
    return _without_connection()


def url_of(database: Database) -> str:
    """Return the URL as the jobs take it. It holds a password: never log it. Pure."""
    login = quote(database.login or "", safe="")
    password = f":{quote(database.password, safe='')}" if database.password else ""
    host = database.host or ""
    place = f"[{host}]" if ":" in host else quote(host, safe="")
    port = f":{database.port}" if database.port else ""
    query = f"?{urlencode(options)}" if (options := database.extra_dejson) else ""
    account = f"{login}{password}@" if login else ""
    return f"postgresql+psycopg2://{account}{place}{port}/{quote(database.schema or '', safe='')}{query}"


# Reports in a task's log, for tasks without a driver: Airflow configures their log.


def tell(report: Report, log: logging.Logger) -> None:
    """Write a report line by line."""
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
# nothing to do. Through the alias a table has an event only if the run has written rows to it.


def alias(pipeline: str) -> AssetAlias:
    """Return the outlet that the tasks of a pipeline declare."""
    return AssetAlias(name=stored_names.asset_alias(pipeline), group=stored_names.ASSET_GROUP)


def asset(pipeline: str, output: str) -> Asset:
    """Return the asset of an output's table. A DAG that follows it uses the asset's name."""
    return Asset(
        name=stored_names.asset(pipeline, output), uri=stored_names.asset_uri(pipeline, output),
        group=stored_names.ASSET_GROUP,
    )  # fmt: skip


def report_assets(pipeline: str, context: Any, declared: Mapping[str, str], *other_runs: str) -> None:
    """Add an event for each table that the run has written to, by the log. Raise Retryable: then a retry adds it.

    What failed runs of the DAG have committed before is in it. `other_runs` are runs whose driver this task has
    watched. `declared` are the variables that name the declarations. `extra` has batch, batches, rows, delta_version
    and run_id.
    """
    events = context.get("outlet_events")
    if events is None:
        return  # not in a task that Airflow runs
    # By name: it reads Delta tables, and this file is imported where DAG files are parsed.
    log = _module("operate.assets")
    with within({**secret_variables(), **declared}):
        committed = log.committed(pipeline, context["ti"].dag_id, context["run_id"], *other_runs)
    for extra in committed:
        events[alias(pipeline)].add(asset(pipeline, extra["output"]), extra=extra)


# Windows that a run of a backfill DAG recomputes, by its form or its data interval. Pure.


_NOTHING = "nothing was read or written"


@dataclass(frozen=True)
class Asked:
    """The windows of a pipeline that start in [start, stop), two times in ISO 8601, of one output or of all.

    lookups     'then' or 'now'
    late_only   only windows with late records that are not in their result; then both times may be missing
    """

    pipeline: str
    start: str | None
    stop: str | None
    output: str | None = None
    lookups: str | None = None
    late_only: bool = False

    def arguments(self, run_id: str, dag_id: str) -> list[str]:
        """Return the driver's command line, without a secret."""
        asked = [self.pipeline, f"--run-id={run_id}", f"--dag-id={dag_id}"]
        asked += [f"--from={self.start}", f"--to={self.stop}"] if self.start else []
        asked += ["--late-only"] if self.late_only else []
        asked += [f"--output={self.output}"] if self.output else []
        return asked + ([f"--lookups={self.lookups}"] if self.lookups else [])


def asked_of(pipeline: str, params: Mapping[str, Any], interval: tuple[datetime, datetime] | None) -> Asked:
    """Return what a run asks for: by its Params, or by its data interval.

    The run id is never used, though it holds the interval's end. With the Param late_only the run may name no windows:
    then the run takes all windows with late records. An empty interval is none. Raise Refused if neither names the
    windows, or both do, or one of the two times is missing.
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


# Questions about a backfill before Spark starts: whether it must wait, and what it would recompute.


SETTING = Declared()


def not_yet(asked: Asked, declared: Declared = SETTING) -> str | None:
    """Return why a backfill must wait; None if all its windows are closed. Raise Refused if waiting doesn't help.

    An unreachable database is a reason to wait too. The trigger calls it on a thread, with the reader's password only.
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
    """Do as `not_yet`, once the database has this version's tables and views."""
    try:
        _backfill().migrate(database_url())
    except (Retryable, CommitStateUnknown) as error:
        return str(error)
    return not_yet(asked, declared)


def would_backfill(asked: Asked, declared: Declared = SETTING) -> Report:
    """Return the report of a dry run. Raise Refused, or Retryable if the database is unreachable."""
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
    # By name: the module imports Spark, though no function called here uses it, and plugins import none.
    return _module("outputs.backfill")


# A pipeline's continuous run. The operator reads it, and the trigger on a thread, which has the reader's password only.


def prepare() -> None:
    """Bring a database of an older version to this one. A task begins with it."""
    _module("database.migrate").migrate(database_url())


def read_long_run(pipeline: str) -> LongRun | None:
    """Return the last continuous run; None before the first. Raise DatabaseAway."""
    found: LongRun | None = _long_runs(reader_url()).look(pipeline)
    return found


def watch(pipeline: str, supervisor: str) -> LongRun | None:
    """Return the last continuous run, and note the supervisor that watches it from now on."""
    found: LongRun | None = _long_runs().watch(pipeline, supervisor)
    return found


def ask_stop(supervisor: str) -> bool:
    """Ask the driver that this supervisor watches to stop, unless another one watches it by now; return whether it
    was."""
    return bool(_long_runs(reader_url()).ask_watched_to_stop(supervisor))


def at_work(pipeline: str) -> bool:
    """Return whether any driver of the pipeline has a session with the log."""
    found = _module("commitlog.health").Health(database()).queries()
    return any(query.at_work for query in found if query.pipeline == pipeline)


def database(url: str | None = None) -> Any:
    """Return the log as Airflow reaches it; by default as the writer."""
    return _module("database.connect").Database(url or database_url(), "onlyonce-airflow")


def _long_runs(url: str | None = None) -> Any:
    return _module("commitlog.drivers").LongRuns(database(url))


def _module(name: str) -> Any:
    # By name: a DAG file, which imports this module, parses without a database's driver.
    return importlib.import_module(f"onlyonce.{name}")


# The drivers of a run of a DAG.


def attempt(pipeline: str, context: Any) -> int:
    """Return how many drivers the run has had so far. Raise Retryable if the log is unreachable."""
    prepare()
    known = read_driver_runs(pipeline, context)
    return known.attempt if known else 0


def read_driver_runs(pipeline: str, context: Any) -> Any:
    """Return the run's last driver, `onlyonce.commitlog.drivers.DriverRun`; None before the first. Raise Retryable."""
    log = _module("commitlog.drivers")
    return log.DriverRuns(database()).look(context["ti"].dag_id, context["run_id"], pipeline)


def note_failure(pipeline: str, context: Any, error: BaseException) -> None:
    """Note that a task has failed after the good end of its driver. Do nothing if the log is unreachable."""
    with suppress(OnlyonceError):
        log = _module("commitlog.drivers")
        log.DriverRuns(database()).fail(context["ti"].dag_id, context["run_id"], pipeline, error)
