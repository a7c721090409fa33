"""The DAG `backfill_<pipeline>` for each pipeline with windows: recompute closed windows, late rows folded in.

It never runs by itself: a person backfills a range of data intervals, or triggers it with two times. One interval is
a day; ONLYONCE_BACKFILL_INTERVAL is another cron expression in UTC. Set it before the platform starts.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from onlyonce import settings
from onlyonce.airflow.backfill_job import BackfillOperator
from onlyonce.airflow.backfill_page import form, has_windows, page
from onlyonce.airflow.declared import loadable
from onlyonce.airflow.finalize_files import finalize, has_files
from onlyonce.airflow.intervals_by_hand import IntervalsByHand

INTERVAL = settings.backfill_interval()

for pipeline in filter(has_windows, loadable()):
    with DAG(
        f"backfill_{pipeline.name}",
        description=f"Recompute closed windows of {pipeline.name}, late rows folded in",
        doc_md=page(pipeline),
        # No plain cron expression: its data intervals have no length, and a backfill would do nothing.
        schedule=IntervalsByHand(INTERVAL, timezone="UTC"),
        allowed_run_types=["manual", "backfill"],
        catchup=False,
        # Several at once are correct. Runs that wait count too, so this is more than a machine can run.
        max_active_runs=16,
        params=form(pipeline),
        tags=["onlyonce", "backfill"],
        # Where slots are short the stream comes first: it waits for one interval, not for all of a range.
        default_args={"retries": 2, "retry_delay": timedelta(seconds=10), "priority_weight": 0},
    ):
        recompute = BackfillOperator(task_id="recompute", pipeline=pipeline.name)
        if has_files(pipeline):
            recompute >> finalize(pipeline.name)
