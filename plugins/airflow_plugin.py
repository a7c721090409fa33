"""What Airflow must know of us beyond the DAG files. It loads this file from its plugins folder, in each process."""

from onlyonce.airflow.plugin import OnlyoncePlugin

__all__ = ["OnlyoncePlugin"]
