"""Holds the schedules of a pipeline in Airflow, and lets them go on.

A paused DAG starts no run and no further task. A task at work goes on to its end; a drain is one task, so its driver
ends as usual. Queued tasks, retries, and backfills that wait for open windows start when the DAG is resumed. Runs at
the shell are not held. Nothing is lost meanwhile: input waits in the inbox.

Who calls it: `onlyonce pause` and `resume`. Errors: Retryable when Airflow does not answer, Refused when it has no such
DAG.
"""

from __future__ import annotations

from onlyonce.local.standalone.airflow_api import AirflowApi
from onlyonce.model.errors import Refused
from onlyonce.model.report import Report
from onlyonce.model.stored_names import pipeline_tag


def hold(pipeline: str, *, held: bool, api: AirflowApi | None = None) -> Report:
    """Pause (or unpause) all DAGs of a pipeline, which are known by their tag; the report says which runs are in
    progress."""
    with api or AirflowApi() as session:
        mine = session.dags_with(pipeline_tag(pipeline))
        if not mine:
            raise Refused(
                f"Airflow at {session.base_url} has no DAG of {pipeline}",
                data="nothing was changed",
                hint=f"its DAGs have the tag {pipeline_tag(pipeline)}: give it to one that was written by hand; "
                "ONLYONCE_AIRFLOW_URL names "
                "another Airflow",
            )
        for name in mine:
            session.unpause(name, paused=held)
        rows = [
            {"dag": name, "run": run, "its task": "goes on to its end"}
            for name in mine
            for run in session.running(name)
        ]
    facts = {"schedules": "held" if held else "run", "dags": ", ".join(mine)}
    shown = {"in progress": rows} if rows and held else {}
    return Report(f"{pipeline}: {'paused' if held else 'resumed'}", "pause", facts, shown)
