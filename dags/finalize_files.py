"""`onlyonce_finalize_files`: give the files of committed batches their final names.

It overwrites nothing and may run at any time. No Spark.

The streams and backfills have a task of their own that does so immediately. This DAG is for files that a killed task
has left.
"""

from __future__ import annotations

from onlyonce.airflow import finalize_files_dag

dag = finalize_files_dag(schedule="10,40 * * * *")
