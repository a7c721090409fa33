"""`<pipeline>_stream`: read what the source has, write what is due, exactly once, then stop.

One DAG for each pipeline of the setting ONLYONCE_PIPELINES. To use it in your own project, copy this file and name your
declarations.
"""

from __future__ import annotations

from onlyonce.airflow import stream_dags
from onlyonce.settings import schedule

globals().update(
    stream_dags(
        # declarations="my_project.pipelines",
        schedule=schedule(),  # ONLYONCE_SCHEDULE. Or a cron expression in UTC, like "*/5 * * * *"; None: by hand
        # spark={"conn_id": "spark_default", "conf": {"spark.executor.memory": "4g"}},
    )
)
