"""Read the commit log for one user of Airflow: only the pipelines whose DAGs Airflow shows to this user.

Every route reads the log through `Sight`, so no route can answer with rows of another pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.exceptions import AirflowNotFoundException
from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from fastapi import Request
from psycopg2.errors import QueryCanceled
from sqlalchemy import Connection as LogConnection
from sqlalchemy.exc import DBAPIError

from onlyonce import settings
from onlyonce.airflow.log import CONNECTION, READER_CONNECTION, url_of
from onlyonce.core.errors import InvariantBroken, Refused, Retryable
from onlyonce.core.stored_names import stream_id
from onlyonce.database import statements
from onlyonce.database.connect import Database, ask, snapshot, transaction

Row = dict[str, Any]
WITH_VALUES = ("reasons",)
"""Queries whose rows may have values of records: a function of the team's writes what a record is rejected for."""
QUOTING = ("output stands still", "dead letters", "rejected rows")
"""Findings that quote an error of a team's function or an answer of a target: either may repeat values of a record."""
NOT_PERMITTED = "values of records need permission to start runs of its DAG (the setting page_records)"


class Sight:
    """Answer queries of the log with the rows of the pipelines that one user may see."""

    def __init__(self, ask: Callable[..., list[Row]], user: BaseUser) -> None:
        self._ask, self._user = ask, user
        known = ask("driven_by")
        self._pipelines = {row["instance"]: row["pipeline"] for row in known}
        self._dags = {row["instance"]: row["dag_ids"] or [stream_id(row["pipeline"])] for row in known}
        self._allowed: dict[tuple[str, str], bool] = {}

    def __call__(self, query: str, /, **values: Any) -> list[Row]:
        """Return the rows of a named query that belong to visible pipelines. Raise Refused for a NUL character."""
        _refuse_nul(values.values())
        rows = self._ask(query, **values)
        if query == "findings":
            return [
                row | {"finding": None} if self._is_foreign(row["where"]) else self._without_values(row) for row in rows
            ]
        if query == "pipelines_of_run":
            return [row for row in rows if self._sees_pipeline(row["pipeline"])]
        # If the parameters name an instance, all rows are of it, since the query filters by it. Else each row names its
        # own.
        scope, permitted = _instance(values), self.sees_records if query in WITH_VALUES else self.sees
        return [row for row in rows if permitted(scope or _instance(row) or _unscoped(query))]

    def instances(self) -> list[str]:
        """Return the visible pipelines, for a query that limits its rows."""
        return [instance for instance in self._dags if self.sees(instance)]

    def sees(self, instance: str) -> bool:
        """Return whether the user may read runs of a DAG that drives this pipeline."""
        return any(self.may(dag_id, "GET") for dag_id in self._dags.get(instance, ()))

    def sees_records(self, instance: str) -> bool:
        """Return whether the user may see values of this pipeline's records, by the setting `page_records`."""
        if (who := settings.page_records()) == "nobody":
            return False
        return any(self.may(dag_id, "GET" if who == "viewers" else "POST") for dag_id in self._dags.get(instance, ()))

    def may(self, dag_id: str, method: Literal["GET", "POST"]) -> bool:
        """Return whether Airflow permits the user to read (GET) or to start (POST) runs of this DAG.

        Raise Refused for a NUL character.
        """
        _refuse_nul((dag_id,))
        if (dag_id, method) not in self._allowed:
            details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
            self._allowed[dag_id, method] = get_auth_manager().is_authorized_dag(
                method=method, access_entity=DagAccessEntity.RUN, details=details, user=self._user
            )
        return self._allowed[dag_id, method]

    def _sees_pipeline(self, pipeline: str) -> bool:
        return any(self.sees(instance) for instance, name in self._pipelines.items() if name == pipeline)

    def _without_values(self, finding: Row) -> Row:
        # A finding in QUOTING always has a subject.
        if finding["finding"] not in QUOTING or self.sees_records(finding["where"].partition("/")[0]):
            return finding
        return finding | {"what": NOT_PERMITTED}

    def _is_foreign(self, subject: str | None) -> bool:
        """Return whether a finding's subject belongs to an instance that the user may not see.

        Its row stays without a finding, since each row also has the time when the doctor looked.
        """
        if subject is None or all(map(self.sees, self._dags)):
            return False
        return not self.sees(subject.partition("/")[0])


def _refuse_nul(values: Iterable[Any]) -> None:
    """Raise Refused for a string that no PostgreSQL takes, neither ours nor Airflow's."""
    if any(isinstance(value, str) and "\0" in value for value in values):
        raise Refused("this address contains a NUL character", hint="remove it: nothing in the log contains one")


def _instance(of: dict[str, Any]) -> str | None:
    """Return the instance that the parameters or a row name, by itself or at the beginning of an incarnation."""
    for name in ("instance", "incarnation", "unique_id"):
        if isinstance(value := of.get(name), str):
            return value.partition("/")[0]
    return None


def _unscoped(query: str) -> str:
    raise InvariantBroken(
        f"the page's query {query} has rows of no pipeline, so its reader can't be authorised",
        data="nothing was shown",
        hint="report this: it is a fault of onlyonce",
    )


# The page's access to the commit log: in a read-only transaction with a short time limit. Its role is the one that only
# reads the views if the page knows its URL.


PATIENCE_SECONDS = 20
"""How long the log may take to answer one question: a page that was closed must not keep it busy."""

Ask = Callable[..., list[Row]]


@contextmanager
def log(request: Request, user: BaseUser) -> Iterator[Sight]:
    """Yield what a user may see of the log: a function that asks the named queries of `page.sql`, all in one snapshot.

    Keep the session's role, and whether it may write, in the request's state: the foot of the page states it.
    Raise Refused if there is no platform yet, Retryable if the log is unreachable or takes too long.
    """
    url = reader_url()
    try:
        with transaction(Database(url, "onlyonce-page")) as connection:
            _begin(connection)
            statements.refuse_unused(connection)
            [row] = ask(connection, "page", "reader")
            request.state.reader = dict(row._mapping)
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


def reader_url() -> str:
    """Return the URL of the reader: by its variable or the platform's folder, else by a connection.

    The last connection is the writer's own, in a transaction that only reads.
    """
    with suppress(FileNotFoundError, Refused):
        return settings.reader_url()
    for name in (READER_CONNECTION, CONNECTION):
        with suppress(AirflowNotFoundException):
            # Not by `Connection.get`, which asks a task's supervisor: the API server has none.
            return url_of(Connection.get_connection_from_secrets(name))
    raise Refused(
        "there is no commit log yet",
        data="nothing was read",
        hint=f"`onlyonce up` makes one; one that is elsewhere: the Airflow connection {READER_CONNECTION} or "
        f"{CONNECTION}, or ONLYONCE_READER_URL for Airflow's API server",
    )


def _begin(connection: LogConnection) -> None:
    # One snapshot, otherwise the sums of one moment would be shown next to the batches of the next. PostgreSQL's JIT
    # compiling costs more than it gains here.
    snapshot(connection)
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{PATIENCE_SECONDS}s'")
    connection.exec_driver_sql("SET LOCAL jit = off")
