"""The functions that make DAGs from declarations: one for each kind, and `dags` for all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from airflow.sdk import DAG

from onlyonce.airflow.declared import Declared
from onlyonce.airflow.factory import housekeeping as keeping
from onlyonce.airflow.factory import pipelines as making
from onlyonce.airflow.factory.backfill_page import has_windows
from onlyonce.airflow.factory.options import FROM_SETTINGS, Options
from onlyonce.declare.following import followed
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.errors import Refused


class Common(TypedDict, total=False):
    """The keywords of every function here.

    declarations    modules ("my_project.pipelines"), or whole paths of files; by default those of ONLYONCE_PIPELINES
    prefix          before the id of every DAG; without one they are `flights_stream`, `flights_backfill`,
                    `onlyonce_audit`, …
    pool, queue, default_args, tags  as Airflow has them, of every task or DAG

    Each function raises Refused: Airflow shows it as the import error of the DAG file.
    """

    declarations: str | Path | Sequence[str | Path] | None
    prefix: str | None
    pool: str | None
    queue: str | None
    default_args: Mapping[str, Any] | None
    tags: Sequence[str]


def stream_dags(
    *, schedule: Any = FROM_SETTINGS, spark: Mapping[str, Any] | None = None, workers_outlive_tasks: bool | None = None,
    **common: Unpack[Common],
) -> dict[str, DAG]:  # fmt: skip
    """The DAG `…_stream` of each pipeline: take in what its source has, write what is due, then stop; or keep a long
    run at work.

    schedule        a cron expression in UTC, or anything that Airflow takes; None: by hand; by default
                    ONLYONCE_SCHEDULE. A pipeline that reads the table of another one's output runs after that one has
                    written to it, unless it is by hand here
    spark           words of the Spark tasks: `conn_id`, `deploy_mode`, `conf`, `packages`, `py_files`, `env_vars`, …
    workers_outlive_tasks  whether a long run's driver may stay behind when its task waits; by default by the executor
    """
    options = _options(common, schedule=schedule, spark=spark or {}, workers_outlive_tasks=workers_outlive_tasks)
    return _by_id(_streams(options.declared.load(), options))


def backfill_dags(
    *, interval: str = FROM_SETTINGS, spark: Mapping[str, Any] | None = None, **common: Unpack[Common]
) -> dict[str, DAG]:
    """The DAG `…_backfill` of each pipeline with windows: recompute closed ones, with their late rows.

    It never runs by itself.

    interval        a cron expression in UTC: from time to time is one data interval of a backfill; by default
                    ONLYONCE_BACKFILL_INTERVAL
    spark           as for `stream_dags`
    """
    options = _options(common, backfill_interval=interval, spark=spark or {})
    return _by_id(_backfills(options.declared.load(), options))


def audit_dag(*, schedule: Any = keeping.ALL["audit"][1], **common: Unpack[Common]) -> DAG | None:
    """The DAG `onlyonce_audit`: does every record add up, by the commit log?

    It tells the alert hook, and looks for what is stuck.
    """
    return _keeping("audit", schedule, common)


def collect_dag(*, schedule: Any = keeping.ALL["collect"][1], **common: Unpack[Common]) -> DAG | None:
    """The DAG `onlyonce_collect`: remove record ids that are older than the dedup horizon, old units, staged rows,
    orphans."""
    return _keeping("collect", schedule, common)


def deliver_dag(*, schedule: Any = keeping.ALL["deliver"][1], **common: Unpack[Common]) -> DAG | None:
    """The DAG `onlyonce_deliver`: send what waits in the outbox. None if no pipeline sends."""
    return _keeping("deliver", schedule, common)


def finalize_dag(*, schedule: Any = keeping.ALL["finalize"][1], **common: Unpack[Common]) -> DAG | None:
    """The DAG `onlyonce_finalize`: give the files of committed batches their final names."""
    return _keeping("finalize", schedule, common)


def maintain_dag(*, schedule: Any = keeping.ALL["maintain"][1], **common: Unpack[Common]) -> DAG | None:
    """The DAG `onlyonce_maintain`: compact small files of Delta tables, and remove what no reader needs."""
    return _keeping("maintain", schedule, common)


def dags(
    declarations: str | Path | Sequence[str | Path] | None = None,
    *,
    schedule: Any = FROM_SETTINGS,
    backfill_interval: str = FROM_SETTINGS,
    housekeeping: Collection[str] = tuple(keeping.ALL),
    spark: Mapping[str, Any] | None = None,
    workers_outlive_tasks: bool | None = None,
    prefix: str | None = None,
    pool: str | None = None,
    queue: str | None = None,
    default_args: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
) -> dict[str, DAG]:
    """All DAGs of declared pipelines by their ids, for `globals().update(dags(…))` in a DAG file.

    The keywords are those of the functions above.

    housekeeping    which of "audit", "collect", "deliver", "finalize", "maintain" are wanted. One Airflow needs each of
                    them once for a database: of several DAG files let one have them

    Raises Refused: Airflow shows it as the import error of the DAG file.
    """
    if strange := sorted(set(housekeeping) - set(keeping.ALL)):
        raise Refused(f"there is no housekeeping DAG {strange[0]!r}", hint=f"choose from {', '.join(keeping.ALL)}")
    common = Common(
        declarations=declarations, prefix=prefix, pool=pool, queue=queue, default_args=default_args, tags=tags
    )
    options = _options(
        common,
        schedule=schedule,
        backfill_interval=backfill_interval,
        spark=spark or {},
        workers_outlive_tasks=workers_outlive_tasks,
    )
    pipelines = options.declared.load()  # once: Airflow parses DAG files again and again
    kept = [make(pipelines, options, cron) for name, (make, cron) in keeping.ALL.items() if name in housekeeping]
    return _by_id(
        [*_streams(pipelines, options), *_backfills(pipelines, options), *(dag for dag in kept if dag is not None)]
    )


def _streams(pipelines: Sequence[Pipeline], options: Options) -> list[DAG]:
    return [making.stream(pipeline, options, followed(pipeline, pipelines)) for pipeline in pipelines]


def _backfills(pipelines: Sequence[Pipeline], options: Options) -> list[DAG]:
    return [making.backfill(pipeline, options) for pipeline in pipelines if has_windows(pipeline)]


def _options(common: Common, **more: Any) -> Options:
    given: dict[str, Any] = {
        name: value for name, value in common.items() if name not in ("declarations", "default_args")
    }
    return Options(
        declared=Declared.of(common.get("declarations")), default_args=common.get("default_args") or {}, **given, **more
    )


def _keeping(name: str, schedule: Any, common: Common) -> DAG | None:
    options = _options(common)
    make, _ = keeping.ALL[name]
    return make(options.declared.load(), options, schedule)


def _by_id(made: Sequence[DAG]) -> dict[str, DAG]:
    return {dag.dag_id: dag for dag in made}
