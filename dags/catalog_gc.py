"""`onlyonce_catalog_gc`: remove record ids that are older than the dedup horizon, by whole buckets. No Spark.

The horizon follows what is committed, not the clock: nothing is removed while a pipeline stands still.
"""

from __future__ import annotations

from onlyonce.airflow import catalog_gc_dag

dag = catalog_gc_dag(
    schedule="25 * * * *",  # not on the hour, when the audit and most streams begin
)
