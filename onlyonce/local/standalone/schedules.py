"""Holds the schedules of a pipeline in Airflow, and lets them go on.

A DAG that is paused starts no run and no further task. A task at work goes on to its end (a drain is one task, so its
driver ends as ever); what is queued, a retry, and a backfill that waits for open windows start when it is resumed. A run
at the shell does not ask Airflow. Nothing is lost meanwhile: input waits in the inbox.

Who calls it: `onlyonce pause` and `resume`. Errors: Retryable when Airflow does not answer, Refused when it has no such DAG.
"""

from __future__ import annotations

from onlyonce.local.standalone.airflow_api import AirflowApi
from onlyonce.model.errors import Refused
from onlyonce.model.report import Report


def hold(pipeline: str, *, held: bool, api: AirflowApi | None = None) -> Report:
    """Pause (or unpause) the stream and backfill DAGs of a pipeline; the report says which runs are in progress."""
    with api or AirflowApi() as session:
        known = {dag["dag_id"]: dag for dag in session.dags()}
        mine = [name for name in (f"stream_{pipeline}", f"backfill_{pipeline}") if name in known]
        if not mine:
            raise Refused(
                f"Airflow has no DAG of {pipeline}",
                data="nothing was changed",
                hint="is it declared in the files of ONLYONCE_PIPELINES, where Airflow was started?",
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
