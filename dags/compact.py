"""`onlyonce_maintain`: compact the small files of Delta tables, and remove what no reader needs. No Spark."""

from __future__ import annotations

from onlyonce.airflow import maintain_dag

dag = maintain_dag(
    schedule="50 * * * *",  # after the collection
)
