"""`onlyonce_deliver_outbox`: send what waits in the outbox to webhooks and BigQuery, under keys that never change. No
Spark.

The streams have a task of their own that sends immediately. This DAG is for continuous runs and for rows that wait for
their next attempt. There is no DAG if no pipeline sends.
"""

from __future__ import annotations

from onlyonce.airflow import deliver_outbox_dag

dag = deliver_outbox_dag(schedule="*/5 * * * *")
