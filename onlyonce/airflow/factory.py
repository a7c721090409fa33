"""Make DAGs from declarations: one function for each kind of DAG, and `dags` for all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, Unpack

from airflow.sdk import DAG, AssetAny, CronTriggerTimetable

from onlyonce import settings
from onlyonce.airflow import forms, log
from onlyonce.airflow.backfill_job import BackfillOperator
from onlyonce.airflow.declared import Declared
from onlyonce.airflow.forms import has_windows
from onlyonce.airflow.jobs import (
    AlertsOperator,
    AskSourcesOperator,
    AuditOperator,
    DeliverOperator,
    DoctorOperator,
    FinalizeOperator,
    GcOperator,
    MaintainOperator,
    PullOperator,
)
from onlyonce.airflow.stream_job import StreamOperator
from onlyonce.airflow.timetable import IntervalsByHand
from onlyonce.api.load import Followed, followed
from onlyonce.api.pipeline import Pipeline
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import backfill_id, housekeeping_id, pipeline_tag, stream_id

FROM_SETTINGS = "by the settings"
"""Marks a schedule or an interval that ONLYONCE_SCHEDULE or ONLYONCE_BACKFILL_INTERVAL decides."""
TAG = "onlyonce"
OWNER = "onlyonce"
"""The owner that Airflow shows for each DAG; `default_args` may name another one."""


@dataclass(frozen=True)
class Options:
    """The keywords of `onlyonce.airflow.dags`: what a DAG file may set for all of its DAGs, in Airflow's own words."""

    declared: Declared = field(default_factory=Declared)
    prefix: str | None = None
    schedule: Any = FROM_SETTINGS
    backfill_interval: str = FROM_SETTINGS
    pool: str | None = None
    queue: str | None = None
    default_args: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    spark: Mapping[str, Any] = field(default_factory=dict)
    workers_outlive_tasks: bool | None = None

    def task_defaults(self, **ours: Any) -> dict[str, Any]:
        """Return default_args of a DAG: ours, overridden by the pool and queue, then by the DAG file."""
        places = {name: value for name, value in (("pool", self.pool), ("queue", self.queue)) if value}
        return {"owner": OWNER, **ours, **places, **self.default_args}

    def all_tags(self, *more: str) -> list[str]:
        """Return the tags of a DAG."""
        return [TAG, *more, *self.tags]

    def stream_schedule(self) -> Any:
        """Return the schedule of a stream; None means runs by hand only."""
        asked = settings.schedule() if self.schedule is FROM_SETTINGS else self.schedule
        return None if asked == "none" else timetable(asked)

    def schedule_behind(self, followed: Sequence[tuple[str, str]]) -> Any:
        """Return the schedule of a stream that reads the tables of these outputs.

        It runs when one of the tables has new rows, at any time. A stream by hand stays by hand.
        """
        own = self.stream_schedule()
        if not followed or own is None:
            return own
        return AssetAny(*(log.asset(pipeline, output) for pipeline, output in followed))

    def interval(self) -> str:
        """Return a cron expression in UTC."""
        if self.backfill_interval is FROM_SETTINGS:
            return settings.backfill_interval()
        return self.backfill_interval


def timetable(schedule: Any) -> Any:
    """Return a schedule as Airflow takes it.

    A plain cron expression would get Airflow's own data intervals if Airflow's settings say so.
    """
    return (
        CronTriggerTimetable(schedule, timezone="UTC")
        if isinstance(schedule, str) and " " in schedule.strip()
        else schedule
    )


RETRIES = {"retries": 2, "retry_delay": timedelta(seconds=10)}
HOUSEKEEPING_RETRIES = {"retries": 1, "retry_delay": timedelta(seconds=30)}


# The DAGs of one pipeline: its stream and its backfills.


def stream(pipeline: Pipeline, options: Options, followed: Sequence[Followed] = ()) -> DAG:
    """Pull messages (of Pub/Sub), read the available input, then stop; or keep a continuous run going (Param mode).

    `followed`: the outputs of other pipelines whose tables it reads.
    """
    of: dict[str, Any] = {"pipeline": pipeline.name, "declarations": options.declared.names}
    with DAG(
        stream_id(pipeline.name, options.prefix),
        description=f"Run {pipeline.name}, exactly once",
        doc_md=forms.pipeline_page(pipeline),
        # No start date: the first run waits for the next time and does not make up for the last one.
        schedule=options.schedule_behind(followed),
        catchup=False,
        max_active_runs=1,
        params=forms.pipeline_form(pipeline),
        tags=options.all_tags(stored_names.STREAM_TAG, pipeline_tag(pipeline.name)),
        default_args=options.task_defaults(**RETRIES),
    ) as dag:
        run = StreamOperator(
            task_id=stored_names.RUN_TASK, workers_outlive_tasks=options.workers_outlive_tasks, **of, **options.spark
        )
        if pipeline.source.is_pulled:
            PullOperator(task_id=stored_names.PULL_TASK, **of) >> run
        if sends(pipeline):
            run >> DeliverOperator(task_id=stored_names.DELIVER_TASK, **of)
        if has_files(pipeline):
            run >> FinalizeOperator(task_id=stored_names.FINALIZE_TASK, **of)
    return dag


def backfill(pipeline: Pipeline, options: Options) -> DAG:
    """Recompute closed windows, late rows included.

    It never runs by itself: a person backfills a range of data intervals, or triggers it with two times.
    """
    of: dict[str, Any] = {"pipeline": pipeline.name, "declarations": options.declared.names}
    with DAG(
        backfill_id(pipeline.name, options.prefix),
        description=f"Recompute closed windows of {pipeline.name}, late rows included",
        doc_md=forms.backfill_page(pipeline),
        # No plain cron expression: its data intervals have no length, and a backfill would do nothing.
        schedule=IntervalsByHand(options.interval(), timezone="UTC"),
        allowed_run_types=["manual", "backfill"],
        catchup=False,
        # Several at once are correct. Waiting runs count too, so this is more than a machine can run.
        max_active_runs=16,
        params=forms.backfill_form(pipeline),
        tags=options.all_tags(stored_names.BACKFILL_TAG, pipeline_tag(pipeline.name)),
        # When slots are short the stream comes first: it waits for one interval, not for all of a range.
        default_args=options.task_defaults(**RETRIES, priority_weight=0),
    ) as dag:
        recompute = BackfillOperator(task_id=stored_names.BACKFILL_TASK, **of, **options.spark)
        if has_files(pipeline):
            recompute >> FinalizeOperator(task_id=stored_names.FINALIZE_TASK, **of)
    return dag


def sends(pipeline: Pipeline) -> bool:
    """Return whether a pipeline has an output whose rows are sent."""
    return any(output.sink.is_external for output in pipeline.outputs)


def has_files(pipeline: Pipeline) -> bool:
    """Return whether any output writes sharded files."""
    return any(output.sink.writes_files for output in pipeline.outputs)


# The scheduled DAGs for all pipelines: audit, collect, deliver, finalize, maintain. No Spark.


AUDIT = """\
Compares, by the commit log only, what was read with what became of it: each record of each committed batch is kept,
late, a duplicate, invalid or an expired record, and each output has read what receive has kept. The task fails if
something does not add up; its log names the batches. The task `alerts` reports to `ONLYONCE_ALERT_HOOK` records that do
not add up, of lag over its bound and of duplicates near the dedup horizon, each cause once. The task `doctor` looks for
what is stuck, on disk too; the page "onlyonce" shows its findings.
"""
CATALOG_GC = """\
Drops the record ids that are older than each pipeline's dedup horizon, by whole buckets of ten minutes. The horizon
follows what is committed, not the clock: nothing is dropped while a pipeline stands still. Safe while streams run.
A bucket that can't be dropped now is left for the next hour, with a warning. Small chunks of ids are merged. Units and
staged rows of batches that were committed long ago are removed. With `ONLYONCE_ARCHIVE` input files that every pipeline
has committed are moved there. Temporary files of sharded outputs that no attempt can need any more are listed, and
removed when they are a day old. The task's log says what was removed.
"""
MAINTAIN = """\
Puts the files of a date together once the stream can write no window that starts on that date. Files that are no longer
part of a table are removed after `ONLYONCE_VACUUM_HOURS` (a week), and later while a batch or backfill that began
before has not ended. The small files of old batches in `events` become large ones, with the same rows, and its Delta
log is cut. Safe while streams run, backfills and itself: the second one leaves a table for the next time,
with a warning.
"""
FINALIZE = """\
This DAG exists in each Airflow, even if no declared output writes files: files may wait of an output that is no longer
declared, or that another DAG file declares. Without such files it ends at once.

Files of sharded outputs are written under temporary names. Once their batch is committed this DAG gives them their
final names. It overwrites nothing and may run at any time. The streams and backfills have a task of their own that does
the same at once; this DAG is for files that a killed task has left behind, and for runs at the shell. It fails if a
file is missing, or if another file has its name; the task's log says which.
"""
ASK_SOURCES = """\
Asks each source how much input no committed batch has read: the files and bytes of an inbox, the messages of a topic,
the versions of a table. It reads no record, and needs no run: input shows while a stream is held or its driver is down.
The answers are in the view `onlyonce.backlog`; alerts, metrics and the page take them from there. An answer that is
older than three intervals no longer counts. For a source that does not answer within two seconds the view says so; the
task's log says why.
"""
DELIVER = """\
Rows for webhooks, Kafka, BigQuery and sinks of your own are committed first and sent afterwards, under keys that never
change. The streams have a task of their own that sends at once. This DAG is for continuous runs, for rows that wait for
their next attempt, and for rows that a killed task has left behind. It may run at any time: if two deliverers of an
output run at once, one gives up. It fails if an endpoint is unreachable or refuses every request; the task's log says
which.
"""


def audit(_: Sequence[Pipeline], options: Options, schedule: Any) -> DAG:
    """Check whether every record adds up, by the commit log."""
    with _dag(stored_names.AUDIT_DAG, schedule, "Does every record add up, by the commit log?", AUDIT, options) as dag:
        AuditOperator(task_id=stored_names.CONSERVATION_TASK, declarations=options.declared.names)
        AlertsOperator(task_id=stored_names.ALERTS_TASK, declarations=options.declared.names)
        DoctorOperator(task_id=stored_names.DOCTOR_TASK, declarations=options.declared.names)
    return dag


def catalog_gc(_: Sequence[Pipeline], options: Options, schedule: Any) -> DAG:
    """Remove what was kept long enough."""
    what = "Remove what was kept long enough: record ids beyond the dedup horizon, units, staged rows, input, orphans"
    with _dag(stored_names.CATALOG_GC_DAG, schedule, what, CATALOG_GC, options) as dag:
        GcOperator(task_id=stored_names.GC_TASK, declarations=options.declared.names)
    return dag


def compact_tables(_: Sequence[Pipeline], options: Options, schedule: Any) -> DAG:
    """Compact small files in the platform's own Delta tables and in the outputs' Delta tables."""
    what = "Compact the small files of old batches and closed windows, remove what no reader needs"
    with _dag(stored_names.COMPACT_TABLES_DAG, schedule, what, MAINTAIN, options) as dag:
        MaintainOperator(task_id=stored_names.MAINTAIN_TASK, declarations=options.declared.names)
    return dag


def finalize_files(_: Sequence[Pipeline], options: Options, schedule: Any) -> DAG:
    """Give files their final names that a stream's own task has left behind."""
    what = "Give the files of committed batches their final names"
    with _dag(stored_names.FINALIZE_FILES_DAG, schedule, what, FINALIZE, options, retries=2) as dag:
        FinalizeOperator(task_id=stored_names.FINALIZE_TASK, declarations=options.declared.names)
    return dag


def deliver_outbox(pipelines: Sequence[Pipeline], options: Options, schedule: Any) -> DAG | None:
    """Send what a stream's own task has left behind. Return None if no pipeline sends."""
    if not (sending := [pipeline.name for pipeline in pipelines if sends(pipeline)]):
        return None
    with _dag(
        stored_names.DELIVER_OUTBOX_DAG, schedule, "Send what waits in the outbox", DELIVER, options, retries=0
    ) as dag:
        for name in sending:
            DeliverOperator(task_id=stored_names.deliver_task(name), pipeline=name, declarations=options.declared.names)
    return dag


def ask_sources(_: Sequence[Pipeline], options: Options, schedule: Any) -> DAG:
    """Ask each source for its unread input, at the interval of the settings if the schedule says so."""
    asked = f"*/{settings.ask_sources_minutes()} * * * *" if schedule is FROM_SETTINGS else schedule
    what = "Ask each source how much input no run has read"
    with _dag(stored_names.ASK_SOURCES_DAG, asked, what, ASK_SOURCES, options, retries=0) as dag:
        AskSourcesOperator(task_id=stored_names.ASK_TASK, declarations=options.declared.names)
    return dag


def _dag(name: str, schedule: Any, what: str, doc: str, options: Options, **defaults: object) -> DAG:
    return DAG(
        housekeeping_id(name, options.prefix),
        description=what,
        doc_md=doc,
        schedule=timetable(schedule),
        catchup=False,
        max_active_runs=1,
        tags=options.all_tags(),
        default_args=options.task_defaults(**{**HOUSEKEEPING_RETRIES, **defaults}),
    )


ALL: dict[str, tuple[Callable[[Sequence[Pipeline], Options, Any], DAG | None], str]] = {
    stored_names.AUDIT_DAG: (audit, "0 * * * *"),
    # Not on the hour, when the audit and most streams begin.
    stored_names.CATALOG_GC_DAG: (catalog_gc, "25 * * * *"),
    stored_names.DELIVER_OUTBOX_DAG: (deliver_outbox, "*/5 * * * *"),
    stored_names.FINALIZE_FILES_DAG: (finalize_files, "10,40 * * * *"),
    # After the gc run.
    stored_names.COMPACT_TABLES_DAG: (compact_tables, "50 * * * *"),
    stored_names.ASK_SOURCES_DAG: (ask_sources, FROM_SETTINGS),
}
"""By the name that comes after the prefix, with the schedule for a DAG file that sets none."""


# What a DAG file calls.


class Common(TypedDict, total=False):
    """The keywords of every function here.

    declarations    modules ("my_project.pipelines"), or whole paths of files; by default the modules of
                    ONLYONCE_PIPELINES
    prefix          before the id of every DAG; without a prefix the ids are `flights_stream`, `flights_backfill`,
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
    """Return the DAG `…_stream` of each pipeline.

    The DAG reads the source's new input, writes the outputs, then stops; or it keeps a continuous run up.

    schedule        a cron expression in UTC, or anything that Airflow takes; None: by hand; by default
                    ONLYONCE_SCHEDULE. A pipeline that reads another one's table runs after rows were written there,
                    unless it is by hand here
    spark           words of the Spark tasks: `conn_id`, `deploy_mode`, `conf`, `packages`, `py_files`, `env_vars`, …
    workers_outlive_tasks  whether a continuous run's driver may keep running while its task waits in the triggerer; by
    default by the executor
    """
    options = _options(common, schedule=schedule, spark=spark or {}, workers_outlive_tasks=workers_outlive_tasks)
    return _by_id(_streams(options.declared.load(), options))


def backfill_dags(
    *, interval: str = FROM_SETTINGS, spark: Mapping[str, Any] | None = None, **common: Unpack[Common]
) -> dict[str, DAG]:
    """Return the DAG `…_backfill` of each pipeline with windows: recompute closed windows, with their late rows.

    It never runs by itself.

    interval        a cron expression in UTC: from time to time is one data interval of a backfill; by default
                    ONLYONCE_BACKFILL_INTERVAL
    spark           as for `stream_dags`
    """
    options = _options(common, backfill_interval=interval, spark=spark or {})
    return _by_id(_backfills(options.declared.load(), options))


def audit_dag(*, schedule: Any = ALL["audit"][1], **common: Unpack[Common]) -> DAG | None:
    """Return the DAG `onlyonce_audit`, which checks by the commit log whether every record adds up.

    It also calls the alert hook, and looks for what is stuck.
    """
    return _keeping("audit", schedule, common)


def catalog_gc_dag(*, schedule: Any = ALL["catalog_gc"][1], **common: Unpack[Common]) -> DAG | None:
    """Return the DAG `onlyonce_catalog_gc`: remove ids older than the dedup horizon, old units, staged rows,
    orphans.
    """
    return _keeping("catalog_gc", schedule, common)


def deliver_outbox_dag(*, schedule: Any = ALL["deliver_outbox"][1], **common: Unpack[Common]) -> DAG | None:
    """Return the DAG `onlyonce_deliver_outbox`: send what waits in the outbox. Return None if no pipeline sends."""
    return _keeping("deliver_outbox", schedule, common)


def finalize_files_dag(*, schedule: Any = ALL["finalize_files"][1], **common: Unpack[Common]) -> DAG | None:
    """Return the DAG `onlyonce_finalize_files`: give the files of committed batches their final names."""
    return _keeping("finalize_files", schedule, common)


def compact_tables_dag(*, schedule: Any = ALL["compact_tables"][1], **common: Unpack[Common]) -> DAG | None:
    """Return the DAG `onlyonce_compact_tables`: compact small files of Delta tables, and remove what no reader
    needs.
    """
    return _keeping("compact_tables", schedule, common)


def ask_sources_dag(*, schedule: Any = ALL["ask_sources"][1], **common: Unpack[Common]) -> DAG | None:
    """Return the DAG `onlyonce_ask_sources`: ask each source how much input no run has read, by default every five
    minutes.
    """
    return _keeping("ask_sources", schedule, common)


def dags(
    declarations: str | Path | Sequence[str | Path] | None = None,
    *,
    schedule: Any = FROM_SETTINGS,
    backfill_interval: str = FROM_SETTINGS,
    housekeeping: Collection[str] = tuple(ALL),
    spark: Mapping[str, Any] | None = None,
    workers_outlive_tasks: bool | None = None,
    prefix: str | None = None,
    pool: str | None = None,
    queue: str | None = None,
    default_args: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
) -> dict[str, DAG]:
    """Return all DAGs of declared pipelines by their ids, for `globals().update(dags(…))` in a DAG file.

    It takes the keywords of the functions above.

    housekeeping    which of "audit", "catalog_gc", "deliver_outbox", "finalize_files", "compact_tables", "ask_sources"
                    are wanted. One Airflow needs each of them once for a database: if there are several DAG files, only
                    one should have them

    Raise Refused: Airflow shows it as the import error of the DAG file.
    """
    if strange := sorted(set(housekeeping) - set(ALL)):
        raise Refused(f"there is no housekeeping DAG {strange[0]!r}", hint=f"choose from {', '.join(ALL)}")
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
    pipelines = options.declared.load()  # once: Airflow parses DAG files at intervals
    kept = [make(pipelines, options, cron) for name, (make, cron) in ALL.items() if name in housekeeping]
    return _by_id(
        [*_streams(pipelines, options), *_backfills(pipelines, options), *(dag for dag in kept if dag is not None)]
    )


def _streams(pipelines: Sequence[Pipeline], options: Options) -> list[DAG]:
    return [stream(pipeline, options, followed(pipeline, pipelines)) for pipeline in pipelines]


def _backfills(pipelines: Sequence[Pipeline], options: Options) -> list[DAG]:
    return [backfill(pipeline, options) for pipeline in pipelines if has_windows(pipeline)]


def _options(common: Common, **more: Any) -> Options:
    given: dict[str, Any] = {
        name: value for name, value in common.items() if name not in ("declarations", "default_args")
    }
    return Options(
        declared=Declared.of(common.get("declarations")), default_args=common.get("default_args") or {}, **given, **more
    )


def _keeping(name: str, schedule: Any, common: Common) -> DAG | None:
    options = _options(common)
    make, _ = ALL[name]
    return make(options.declared.load(), options, schedule)


def _by_id(made: Sequence[DAG]) -> dict[str, DAG]:
    return {dag.dag_id: dag for dag in made}
