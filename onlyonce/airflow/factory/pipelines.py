"""The DAGs of one pipeline: its stream and its backfills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import DAG

from onlyonce.airflow.factory import backfill_page, pipeline_page
from onlyonce.airflow.factory.options import RETRIES, Options
from onlyonce.airflow.operators.backfill_job import BackfillOperator
from onlyonce.airflow.operators.jobs import DeliverOperator, FinalizeOperator, LandOperator
from onlyonce.airflow.operators.stream_job import StreamOperator
from onlyonce.airflow.timetables.intervals_by_hand import IntervalsByHand
from onlyonce.declare.following import Followed
from onlyonce.declare.pipeline import FileSink, Pipeline, PubSub, Sent
from onlyonce.model import stored_names
from onlyonce.model.stored_names import backfill_id, pipeline_tag, stream_id


def stream(pipeline: Pipeline, options: Options, followed: Sequence[Followed] = ()) -> DAG:
    """Land messages (of Pub/Sub), drain what is there, then stop; or, by the Param mode, keep a long run at work.

    `followed`: the outputs of other pipelines whose tables it reads."""
    of: dict[str, Any] = {"pipeline": pipeline.name, "declarations": options.declared.names}
    with DAG(
        stream_id(pipeline.name, options.prefix),
        description=f"Drain {pipeline.name}, exactly once",
        doc_md=pipeline_page.page(pipeline),
        # No start date: the first run waits for the next time, it does not make up for the last one.
        schedule=options.schedule_behind(followed),
        catchup=False,
        max_active_runs=1,
        params=pipeline_page.form(pipeline),
        tags=options.all_tags(stored_names.STREAM_TAG, pipeline_tag(pipeline.name)),
        default_args=options.task_defaults(**RETRIES),
    ) as dag:
        drain = StreamOperator(
            task_id=stored_names.DRAIN_TASK, workers_outlive_tasks=options.workers_outlive_tasks, **of, **options.spark
        )
        if isinstance(pipeline.source, PubSub):
            LandOperator(task_id=stored_names.LAND_TASK, **of) >> drain
        if sends(pipeline):
            drain >> DeliverOperator(task_id=stored_names.DELIVER_TASK, **of)
        if has_files(pipeline):
            drain >> FinalizeOperator(task_id=stored_names.FINALIZE_TASK, **of)
    return dag


def backfill(pipeline: Pipeline, options: Options) -> DAG:
    """Recompute closed windows, late rows folded in. It never runs by itself: a person backfills a range of data
    intervals, or triggers it with two times."""
    of: dict[str, Any] = {"pipeline": pipeline.name, "declarations": options.declared.names}
    with DAG(
        backfill_id(pipeline.name, options.prefix),
        description=f"Recompute closed windows of {pipeline.name}, late rows folded in",
        doc_md=backfill_page.page(pipeline),
        # No plain cron expression: its data intervals have no length, and a backfill would do nothing.
        schedule=IntervalsByHand(options.interval(), timezone="UTC"),
        allowed_run_types=["manual", "backfill"],
        catchup=False,
        # Several at once are correct. Runs that wait count too, so this is more than a machine can run.
        max_active_runs=16,
        params=backfill_page.form(pipeline),
        tags=options.all_tags(stored_names.BACKFILL_TAG, pipeline_tag(pipeline.name)),
        # Where slots are short the stream comes first: it waits for one interval, not for all of a range.
        default_args=options.task_defaults(**RETRIES, priority_weight=0),
    ) as dag:
        recompute = BackfillOperator(task_id=stored_names.RECOMPUTE_TASK, **of, **options.spark)
        if has_files(pipeline):
            recompute >> FinalizeOperator(task_id=stored_names.FINALIZE_TASK, **of)
    return dag


def sends(pipeline: Pipeline) -> bool:
    """Whether it has an output whose rows are sent."""
    return any(isinstance(output.sink, Sent) for output in pipeline.outputs)


def has_files(pipeline: Pipeline) -> bool:
    """Whether any output writes sharded files."""
    return any(isinstance(output.sink, FileSink) for output in pipeline.outputs)
