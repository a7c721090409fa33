"""The scheduled DAGs for all pipelines: audit, collect, deliver, finalize, maintain. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow.sdk import DAG

from onlyonce.airflow.factory.options import HOUSEKEEPING_RETRIES, Options, timetable
from onlyonce.airflow.factory.pipelines import sends
from onlyonce.airflow.operators.jobs import (
    AlertsOperator,
    AuditOperator,
    CollectOperator,
    DeliverOperator,
    DoctorOperator,
    FinalizeOperator,
    MaintainOperator,
)
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model import stored_names
from onlyonce.model.stored_names import housekeeping_id

AUDIT = """\
Compares, by the commit log only, what was read with what became of it: each record of each committed batch is kept,
late, a duplicate, invalid or a remnant, and each output has read what receive has kept. The task fails if something
does not add up; its log names the batches. The task `alerts` tells `ONLYONCE_ALERT_HOOK` of records that do not add up,
of lag over its bound and of duplicates near the dedup horizon, each cause once. The task `doctor` looks for what is
stuck, on disk too; the page "Exactly once" shows its findings.
"""
COLLECT = """\
Drops the record ids that are older than each pipeline's dedup horizon, by whole buckets of ten minutes. The horizon
follows what is committed, not the clock: nothing is dropped while a pipeline stands still. Safe beside running streams.
A bucket that can't be dropped now is left for the next hour, with a warning. Small chunks of ids are merged. Units and
staged rows of batches that were committed long ago are removed. With `ONLYONCE_ARCHIVE` input files that every pipeline
has committed are moved there. Temporary files of sharded outputs that no attempt can need any more are listed, and
removed when they are a day old. The task's log says what was removed.
"""
MAINTAIN = """\
Puts the files of a date together once the stream can write no window that starts on that date. Files that are no longer
part of a table are removed after `ONLYONCE_VACUUM_HOURS` (a week), and later while a batch or backfill that began
before has not ended. The small files of old batches in `events` become large ones, with the same rows, and its Delta
log is cut. Safe beside running streams, backfills and itself: whoever comes second leaves a table for the next time,
with a warning.
"""
FINALIZE = """\
Files of sharded outputs are written under temporary names. Once their batch is committed this DAG gives them their
final names. It overwrites nothing and may run at any time. The streams and backfills have a task of their own that does
the same at once; this DAG is for files that a killed task has left, and for runs at the shell. It fails if a file is
missing, or if another file has its name; the task's log says which.
"""
DELIVER = """\
Rows for webhooks and BigQuery are committed first and sent afterwards, under keys that never change. The streams have a
task of their own that sends at once; this DAG is for long runs, for rows that wait for their next attempt, and for rows
that a killed task has left. It may run at any time: of two deliverers of an output one gives up. It fails if an
endpoint is away or refuses every request; the task's log says which.
"""


def audit(_: Sequence[Pipeline], options: Options, schedule: Any) -> DAG:
    """Does every record add up, by the commit log?"""
    with _dag(stored_names.AUDIT_DAG, schedule, "Does every record add up, by the commit log?", AUDIT, options) as dag:
        AuditOperator(task_id=stored_names.CONSERVATION_TASK, declarations=options.declared.names)
        AlertsOperator(task_id=stored_names.ALERTS_TASK, declarations=options.declared.names)
        DoctorOperator(task_id=stored_names.DOCTOR_TASK, declarations=options.declared.names)
    return dag


def collect(_: Sequence[Pipeline], options: Options, schedule: Any) -> DAG:
    """Remove what was kept long enough."""
    what = "Remove what was kept long enough: record ids beyond the dedup horizon, units, staged rows, input, orphans"
    with _dag(stored_names.COLLECT_DAG, schedule, what, COLLECT, options) as dag:
        CollectOperator(task_id=stored_names.COLLECT_TASK, declarations=options.declared.names)
    return dag


def maintain(_: Sequence[Pipeline], options: Options, schedule: Any) -> DAG:
    """Compact small files in the platform's own Delta tables and in those of outputs."""
    what = "Compact the small files of old batches and closed windows, remove what no reader needs"
    with _dag(stored_names.MAINTAIN_DAG, schedule, what, MAINTAIN, options) as dag:
        MaintainOperator(task_id=stored_names.MAINTAIN_TASK, declarations=options.declared.names)
    return dag


def finalize(_: Sequence[Pipeline], options: Options, schedule: Any) -> DAG:
    """Give files their final names that a stream's own task has left."""
    what = "Give the files of committed batches their final names"
    with _dag(stored_names.FINALIZE_DAG, schedule, what, FINALIZE, options) as dag:
        FinalizeOperator(task_id=stored_names.FINALIZE_TASK, declarations=options.declared.names, retries=2)
    return dag


def deliver(pipelines: Sequence[Pipeline], options: Options, schedule: Any) -> DAG | None:
    """Send what a stream's own task has left. Only where a pipeline sends."""
    if not (sending := [pipeline.name for pipeline in pipelines if sends(pipeline)]):
        return None
    with _dag(stored_names.DELIVER_DAG, schedule, "Send what waits in the outbox", DELIVER, options, retries=0) as dag:
        for name in sending:
            DeliverOperator(task_id=stored_names.deliver_task(name), pipeline=name, declarations=options.declared.names)
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
    stored_names.COLLECT_DAG: (collect, "25 * * * *"),
    stored_names.DELIVER_DAG: (deliver, "*/5 * * * *"),
    stored_names.FINALIZE_DAG: (finalize, "10,40 * * * *"),
    # Once the collection is through.
    stored_names.MAINTAIN_DAG: (maintain, "50 * * * *"),
}
"""By the name that comes after the prefix, with the schedule that counts where a DAG file says none."""
