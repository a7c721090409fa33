"""`onlyonce_compact_tables`: compact the small files of Delta tables, and remove what no reader needs. No Spark."""

from __future__ import annotations

from onlyonce.airflow import compact_tables_dag

dag = compact_tables_dag(
    schedule="50 * * * *",  # after the collection
)
