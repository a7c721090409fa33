"""`<pipeline>_backfill`: recompute closed windows, with their late records, and replace the old results.

It never runs by itself: a person triggers it with two times, or asks Airflow for a backfill of a range of data
intervals.
"""

from __future__ import annotations

from onlyonce.airflow import backfill_dags
from onlyonce.settings import backfill_interval

globals().update(
    backfill_dags(
        # ONLYONCE_BACKFILL_INTERVAL. Or a cron expression in UTC: from one time to the next is one data interval
        interval=backfill_interval(),
    )
)
