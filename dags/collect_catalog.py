"""`onlyonce_collect`: the catalog's garbage collection.

It removes record ids that are older than the dedup horizon, by whole buckets.

The horizon follows what is committed, not the clock: nothing is removed while a pipeline stands still. No Spark.
"""

from __future__ import annotations

from onlyonce.airflow import collect_dag

dag = collect_dag(
    schedule="25 * * * *",  # not on the hour, when the audit and most streams begin
)
