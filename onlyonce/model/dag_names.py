"""What the DAGs of `onlyonce.airflow.dags` are called, and by which tag the DAGs of a pipeline are found. Pure.

Who calls it: the DAG factory; the demo, `onlyonce pause`, `resume` and `stop`, which ask Airflow for these DAGs.
"""

from __future__ import annotations


def stream_id(pipeline: str, prefix: str | None = None) -> str:
    """The DAG that drains a pipeline."""
    return f"{prefix or ''}{pipeline}_stream"


def backfill_id(pipeline: str, prefix: str | None = None) -> str:
    """The DAG that recomputes its closed windows."""
    return f"{prefix or ''}{pipeline}_backfill"


def housekeeping_id(name: str, prefix: str | None = None) -> str:
    """A DAG for all pipelines: `onlyonce_audit`, or with the prefix in the place of `onlyonce_`."""
    return f"{'onlyonce_' if prefix is None else prefix}{name}"


def pipeline_tag(pipeline: str) -> str:
    """The tag of each DAG that drives a pipeline, whatever the DAG is called."""
    return f"pipeline:{pipeline}"
