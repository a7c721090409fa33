"""The page's access to the commit log: as the role that only reads the views, and with a short time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.exceptions import AirflowNotFoundException
from airflow.models.connection import Connection
from psycopg2.errors import QueryCanceled
from sqlalchemy import Connection as Session
from sqlalchemy.exc import DBAPIError

from onlyonce import settings
from onlyonce.airflow.log.task_environment import CONNECTION, READER_CONNECTION, url_of
from onlyonce.airflow.page.sight import Row, Sight
from onlyonce.database.connect import Database, ask, snapshot, transaction
from onlyonce.model.errors import Refused, Retryable

PATIENCE_SECONDS = 20
"""How long the log may take to answer one question: a page that nobody waits for any more must not keep it busy."""

__all__ = ["Ask", "Row"]

Ask = Callable[..., list[Row]]


@contextmanager
def log(user: BaseUser) -> Iterator[Sight]:
    """Yield what a user may see of the log: a function that asks the named queries of `sql/statements/page.sql`, all in
    one snapshot.

    Raises Refused when there is no platform yet, Retryable when the log is away or takes too long.
    """
    url = _url()
    try:
        with transaction(Database(url, "onlyonce-page")) as connection:
            _begin(connection)
            yield Sight(
                lambda query, /, **values: [dict(row._mapping) for row in ask(connection, "page", query, **values)],
                user,
            )
    except DBAPIError as error:
        if isinstance(error.orig, QueryCanceled):
            raise Retryable(
                f"the commit log did not answer within {PATIENCE_SECONDS} s",
                data="nothing was changed; this page only reads",
                hint="load the page again; if it stays so, look at what else the database is doing",
            ) from error
        raise


def _url() -> str:
    """Of the reader, who can change nothing: by its variable or the platform's folder, else by an Airflow connection.

    The last is the writer's own, in a transaction that only reads."""
    with suppress(FileNotFoundError):
        return settings.reader_url()
    for name in (READER_CONNECTION, CONNECTION):
        with suppress(AirflowNotFoundException):
            # The API server has no task whose supervisor could be asked.
            return url_of(Connection.get_connection_from_secrets(name))
    raise Refused(
        "there is no commit log yet",
        data="nothing was read",
        hint=f"`onlyonce up` makes one; one that is elsewhere: the Airflow connection {READER_CONNECTION} or "
        f"{CONNECTION}, or "
        "ONLYONCE_READER_URL for Airflow's API server",
    )


def _begin(connection: Session) -> None:
    # One snapshot, or the sums of one moment stand beside the batches of the next. Compiling costs more than it gains
    # here.
    snapshot(connection)
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{PATIENCE_SECONDS}s'")
    connection.exec_driver_sql("SET LOCAL jit = off")
