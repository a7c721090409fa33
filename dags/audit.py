"""`onlyonce_audit`: check by the commit log whether every record adds up, raise alerts, and find what is stuck.

No Spark.
"""

from __future__ import annotations

from onlyonce.airflow import audit_dag

dag = audit_dag(schedule="0 * * * *")
