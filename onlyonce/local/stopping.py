"""Stops a pipeline: holds its schedules, asks a long run to stop, and waits for the end of the run at work.

Nothing is killed.

A long run ends after the batch at work. A drain ends when it has taken in what is there; it can't be asked to end
sooner. Queued tasks, retries, and backfills that wait for open windows start when the pipeline is resumed.

Who calls it: `onlyonce stop`. Errors: Retryable when the patience ends first, or Airflow does not answer; Refused when
it has no such DAG. Not promised: that a driver is noticed whose session broke. It connects again at its next statement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from onlyonce import settings
from onlyonce.commitlog.long_runs import LongRuns
from onlyonce.commitlog.operate.health import Health
from onlyonce.database.connect import Database
from onlyonce.local.standalone import schedules
from onlyonce.local.standalone.airflow_api import AirflowApi
from onlyonce.model.errors import Retryable
from onlyonce.model.report import Report

LOOK_EVERY_SECONDS = 1.0
AT_WORK = ("running", "restarting")
"""The states of a task that has a process. What is queued or deferred stays so while its DAG is held."""


def stop(
    pipeline: str,
    *,
    patience_seconds: float,
    airflow: Callable[[], AirflowApi] | None = AirflowApi,
    watch: Callable[[list[str]], None] = lambda _: None,
) -> Report:
    """Hold the schedules, then return when nothing of the pipeline is at work; `watch` gets what is, at each look.

    Without `airflow`, which opens a session with it, only the drivers in the log are waited for.
    """
    begun, held = time.monotonic(), ""
    if airflow:
        held = str(schedules.hold(pipeline, held=True, api=airflow()).facts["dags"])
    database = Database(settings.database_url(), "onlyonce-stop", any_format=True)
    # After its schedule is held, or Airflow would start the next one at once.
    asked = LongRuns(database).ask_stop(pipeline)
    while working := [
        *_drivers(database, pipeline),
        *(_tasks(held.split(", "), airflow) if airflow else []),
    ]:
        watch(working)
        if time.monotonic() - begun > patience_seconds:
            raise Retryable(
                f"{pipeline} is still at work after {patience_seconds:.0f} s: {'; '.join(working)}",
                data="it was not killed, and goes on to its end; "
                + ("its schedules are held" if held else "no schedule was held"),
                hint="run the same command again to go on waiting; `onlyonce resume` lets the schedules go on",
            )
        time.sleep(LOOK_EVERY_SECONDS)
    facts = {
        "schedules": f"held: {held}" if held else "not asked",
        "long run": "asked to stop" if asked else "none",
        "waited": f"{time.monotonic() - begun:.0f} s",
    }
    return Report(f"{pipeline}: stopped", f"stop__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts)


def _drivers(database: Database, pipeline: str) -> Iterator[str]:
    """The long run while it lives, and the lineages that have a driver with a session, each with how far it is."""
    if (known := LongRuns(database).look(pipeline)) and known.alive:
        yield f"the long run on {known.driver} has done {known.turns} turns"
    for query in Health(database).queries():
        if query.pipeline == pipeline and query.at_work:
            yield f"{query.lineage} has committed batch {query.committed}"
    for backfill in Health(database).begun().backfills:
        if backfill.pipeline == pipeline and backfill.at_work:
            yield f"{backfill.lineage} is recomputed"


def _tasks(dags: list[str], airflow: Callable[[], AirflowApi]) -> list[str]:
    # A driver that has just been submitted has no session yet, but its task is at work.
    with airflow() as session:
        return [
            f"task {task['task_id']} of {dag}, {run_id}"
            for dag in dags
            for run_id in session.running(dag)
            for task in session.tasks(dag, run_id)
            if task["state"] in AT_WORK
        ]
