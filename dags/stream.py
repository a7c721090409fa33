"""The DAG `stream_<pipeline>` for each declared pipeline: land messages (of Pub/Sub), drain what is there, then stop; or, by
the Param mode, keep a long run at work.

ONLYONCE_SCHEDULE says when they run: a cron expression in UTC, by default every ten minutes, or `none` for
runs by hand only. Set it before the platform starts. A file of ONLYONCE_PIPELINES that can't be loaded
has no DAGs here and is an import error of `check_declarations.py`, so that the others go on.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable

from onlyonce import settings
from onlyonce.airflow.declared import loadable
from onlyonce.airflow.deliver_task import deliver, sends
from onlyonce.airflow.finalize_files import finalize, has_files
from onlyonce.airflow.land_job import land
from onlyonce.airflow.pipeline_page import form, page
from onlyonce.airflow.stream_job import StreamOperator
from onlyonce.declare.pipeline import PubSub

SCHEDULE = settings.schedule()

for pipeline in loadable():
    with DAG(
        f"stream_{pipeline.name}",
        description=f"Drain {pipeline.name}, exactly once",
        doc_md=page(pipeline),
        # No start date: the first run waits for the next time, it does not make up for the last one.
        schedule=CronTriggerTimetable(SCHEDULE, timezone="UTC") if SCHEDULE else None,
        catchup=False,
        max_active_runs=1,
        params=form(pipeline),
        tags=["onlyonce", "stream"],
        default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    ):
        drain = StreamOperator(task_id="drain", pipeline=pipeline.name)
        if isinstance(pipeline.source, PubSub):
            land(pipeline.name) >> drain
        if sends(pipeline):
            drain >> deliver(pipeline.name)
        if has_files(pipeline):
            drain >> finalize(pipeline.name)
