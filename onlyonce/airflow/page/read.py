"""The page's look at the commit log: as the reader, who sees the views and can change nothing, and never for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg2.errors import QueryCanceled
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from onlyonce import settings
from onlyonce.database.connect import Database, ask, snapshot, transaction
from onlyonce.model.errors import Refused, Retryable

PATIENCE_SECONDS = 20
"""How long the log may take to answer one question: a page that nobody waits for any more must not keep it busy."""

Row = dict[str, Any]
Ask = Callable[..., list[Row]]


@contextmanager
def log() -> Iterator[Ask]:
    """A function that asks the named queries of `sql/page.sql`, all in one snapshot.

    Raises Refused when there is no platform yet, Retryable when the log is away or takes too long.
    """
    try:
        url = settings.reader_url()
    except FileNotFoundError as error:
        raise Refused(
            "there is no commit log yet",
            data="nothing was read",
            hint="`onlyonce up` makes one; ONLYONCE_READER_URL names one that is elsewhere, for Airflow's API server",
        ) from error
    try:
        with transaction(Database(url, "onlyonce-page")) as connection:
            _begin(connection)
            yield lambda query, /, **values: [dict(row._mapping) for row in ask(connection, "page", query, **values)]
    except DBAPIError as error:
        if isinstance(error.orig, QueryCanceled):
            raise Retryable(
                f"the commit log did not answer within {PATIENCE_SECONDS} s",
                data="nothing was changed; this page only reads",
                hint="load the page again; if it stays so, look at what else the database is doing",
            ) from error
        raise


def _begin(connection: Connection) -> None:
    # One snapshot, or the sums of one moment stand beside the batches of the next. Compiling costs more than it gains here.
    snapshot(connection)
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{PATIENCE_SECONDS}s'")
    connection.exec_driver_sql("SET LOCAL jit = off")
