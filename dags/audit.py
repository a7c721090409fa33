"""`onlyonce_audit`: does every record add up, by the commit log?

Then alerts, and the search for what is stuck. No Spark.
"""

from __future__ import annotations

from onlyonce.airflow import audit_dag

dag = audit_dag(schedule="0 * * * *")
