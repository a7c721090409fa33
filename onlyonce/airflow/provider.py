"""The entry in Airflow's list of providers. The entry point `apache_airflow_provider` names this function."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, in the form of Airflow's schema.

    Airflow calls it while it starts, so it imports no Airflow.
    """
    return {
        "package-name": "onlyonce-pipelines",
        "name": "Onlyonce",
        "description": "Exactly-once batch and stream pipelines on Spark, PostgreSQL and Delta Lake.",
        "versions": [version("onlyonce-pipelines")],
        "extra-links": ["onlyonce.airflow.spark_job.CommitsLink"],
    }
