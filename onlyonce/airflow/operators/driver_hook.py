"""The hook of Airflow's Spark provider, used by its public methods only."""

from __future__ import annotations

import copy
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import Connection

from onlyonce.spark.options import with_retries


class DriverHook(SparkSubmitHook):
    """Submits a driver of ours: with the master of the connection, but that local mode tries a failed task again."""

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """The connection; of a local master with retries."""
        found = copy.copy(super().get_connection(conn_id))
        found.host = with_retries(found.host) if found.host else found.host
        return found


def master_of(connection: Connection) -> str:
    """Spark's master as the provider reads it from a connection. Pure."""
    host, port = connection.host or "", connection.port
    whole = connection.conn_type == "spark" and host and ("://" in host or not port)
    master = host if whole else f"{connection.conn_type}://{host}"
    return f"{master}:{port}" if port else master
