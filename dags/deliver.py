"""The DAG `deliver`: every five minutes, send what a stream's own task has left in the outbox. No Spark. Only where a declared
pipeline sends."""

from __future__ import annotations

from airflow.sdk import DAG, CronTriggerTimetable

from onlyonce.airflow.declared import loadable
from onlyonce.airflow.deliver_task import deliver, sends

DOC = """\
Rows for webhooks and BigQuery are committed first and sent afterwards, under keys that never change. The streams have a task
of their own that sends at once; this is for a long run, for rows that wait for their next attempt, and for what a killed
task has left. It may run at any time: of two deliverers of an output one leaves. It fails when an endpoint is away or
refuses whoever asks; the log says which.
"""

if sending := [pipeline for pipeline in loadable() if sends(pipeline)]:
    with DAG(
        "deliver",
        description="Send what waits in the outbox",
        doc_md=DOC,
        schedule=CronTriggerTimetable("*/5 * * * *", timezone="UTC"),
        catchup=False,
        max_active_runs=1,
        tags=["onlyonce"],
    ):
        for pipeline in sending:
            deliver.override(task_id=f"deliver_{pipeline.name}")(pipeline.name)
