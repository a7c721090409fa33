"""The DAG `finalize`: twice an hour, give files their final names that a stream's own task has left. No Spark."""

from __future__ import annotations

from airflow.sdk import DAG, CronTriggerTimetable

from onlyonce.airflow.finalize_files import finalize

DOC = """\
Files of sharded outputs are written under temporary names. Once their batch is committed this gives them their final
names: nothing is overwritten, and what is done already is left alone, so it may run at any time. The streams and backfills
have a task of their own that does the same at once; this is for what a killed one has left, and for runs at the shell.
It fails when a file is missing or somebody else has taken its name; the log says which.
"""

with DAG(
    "finalize",
    description="Give the files of committed batches their final names",
    doc_md=DOC,
    schedule=CronTriggerTimetable("10,40 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    tags=["onlyonce"],
):
    finalize()
