"""All DAGs of a DAG file, from declarations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from onlyonce.airflow.declared import Declared
from onlyonce.airflow.factory import housekeeping as keeping
from onlyonce.airflow.factory import pipelines as making
from onlyonce.airflow.factory.backfill_page import has_windows
from onlyonce.airflow.factory.options import FROM_SETTINGS, Options
from onlyonce.declare.following import followed
from onlyonce.model.errors import Refused


def dags(
    declarations: str | Path | Sequence[str | Path] | None = None, *, prefix: str | None = None, schedule: Any = FROM_SETTINGS,
    backfill_interval: str = FROM_SETTINGS, housekeeping: Collection[str] = tuple(keeping.ALL), pool: str | None = None,
    queue: str | None = None, default_args: Mapping[str, Any] | None = None, tags: Sequence[str] = (),
    spark: Mapping[str, Any] | None = None, workers_outlive_tasks: bool | None = None,
) -> dict[str, DAG]:  # fmt: skip
    """The DAGs of declared pipelines by their ids, for `globals().update(dags(…))` in a DAG file.

    declarations    modules ("my_project.pipelines"), or whole paths of files; by default those of ONLYONCE_PIPELINES
    prefix          before the id of every DAG; without one they are `flights_stream`, `flights_backfill`, `onlyonce_audit`, …
    schedule        of the streams: a cron expression in UTC, or anything that Airflow takes; None: by hand; by default ONLYONCE_SCHEDULE.
                    A pipeline that reads the table of another one's output runs after that one has written to it, unless it is by hand here
    backfill_interval  a cron expression in UTC: from time to time is one data interval of a backfill; by default ONLYONCE_BACKFILL_INTERVAL
    housekeeping    which of "audit", "collect", "deliver", "finalize", "maintain" are wanted. One Airflow needs each of them once for
                    a database: of several DAG files let one have them
    pool, queue, default_args, tags  as Airflow has them, of every task or DAG
    spark           words of the Spark tasks: `conn_id`, `deploy_mode`, `conf`, `packages`, `py_files`, `env_vars`, …
    workers_outlive_tasks  whether a long run's driver may stay behind when its task waits; by default by the executor

    Raises Refused: Airflow shows it as the import error of the DAG file.
    """
    if strange := sorted(set(housekeeping) - set(keeping.ALL)):
        raise Refused(f"there is no housekeeping DAG {strange[0]!r}", hint=f"choose from {', '.join(keeping.ALL)}")
    options = Options(
        declared=Declared.of(declarations), prefix=prefix, schedule=schedule, backfill_interval=backfill_interval, pool=pool,
        queue=queue, default_args=default_args or {}, tags=tags, spark=spark or {}, workers_outlive_tasks=workers_outlive_tasks,
    )  # fmt: skip
    pipelines = options.declared.load()
    made: list[DAG | None] = [making.stream(pipeline, options, followed(pipeline, pipelines)) for pipeline in pipelines]
    made += [making.backfill(pipeline, options) for pipeline in pipelines if has_windows(pipeline)]
    made += [make(pipelines, options) for name, make in keeping.ALL.items() if name in housekeeping]
    return {dag.dag_id: dag for dag in made if dag is not None}
