"""The variables that a job gets from its task's environment: the database's URL and the keys of an object store, which
must be on no command line and in no log.

Who calls it: the operators in `onlyonce.airflow.operators.spark_job` and `onlyonce.airflow.operators.jobs`, and modules
that ask the log.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol
from urllib.parse import quote, urlencode

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from onlyonce import settings
from onlyonce.model.errors import Refused

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
