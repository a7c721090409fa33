"""`onlyonce_ask_sources`: ask each source how much input no run has read, for alerts and metrics. No Spark."""

from __future__ import annotations

from onlyonce.airflow import ask_sources_dag

dag = ask_sources_dag()  # every five minutes, or as ONLYONCE_ASK_SOURCES_MINUTES says
