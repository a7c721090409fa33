"""The variables that a job gets from its task's environment: the database's URL, which must be on no command line and in no log.

Who calls it: the operators in `onlyonce.airflow.operators.spark_job` and `onlyonce.airflow.operators.jobs`, and modules that ask the log.
"""

from __future__ import annotations

import logging
from typing import Protocol
from urllib.parse import quote, urlencode

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from onlyonce import settings

CONNECTION = "onlyonce_db"
OLD_CONNECTION = "onlyonce"
log = logging.getLogger(__name__)


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


def database_variables() -> dict[str, str]:
    """ONLYONCE_DATABASE_URL from the Airflow connection `onlyonce_db`; by its old name, `onlyonce`, it is still found.

    Empty when there is no such connection: the job then inherits the variable, or finds the URL in the
    platform's folder. From now on the password is masked in the task's log.
    """
    found = _connection()
    if found is None:
        return {}
    if found.password:
        mask_secret(found.password)
        mask_secret(quote(found.password, safe=""))
    return {"ONLYONCE_DATABASE_URL": url_of(found)}


def _connection() -> Database | None:
    for name in (CONNECTION, OLD_CONNECTION):
        try:
            found: Database = Connection.get(name)
        except AirflowNotFoundException:
            continue
        if name == OLD_CONNECTION:
            log.warning("the connection %r is deprecated: name it %r", OLD_CONNECTION, CONNECTION)
        return found
    return None


def database_url() -> str:
    """The URL for what asks the log in Airflow's own process. It holds a password: never log it, never store it.

    Raises FileNotFoundError when there is neither the connection nor the variable nor a platform's folder.
    """
    return database_variables().get("ONLYONCE_DATABASE_URL") or settings.database_url()


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
