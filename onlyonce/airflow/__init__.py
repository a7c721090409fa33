"""The Airflow provider: operators, triggers, a timetable, DAGs, and the page in Airflow's UI.

A team's DAG file is three lines:

    from onlyonce.airflow import dags

    globals().update(dags("my_project.pipelines"))

Names of this package are imported at their first use, since Airflow reads the package's metadata while it starts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onlyonce.airflow.backfill_job import BackfillOperator
    from onlyonce.airflow.factory import (
        ask_sources_dag,
        audit_dag,
        backfill_dags,
        catalog_gc_dag,
        compact_tables_dag,
        dags,
        deliver_outbox_dag,
        finalize_files_dag,
        stream_dags,
    )
    from onlyonce.airflow.jobs import (
        AlertsOperator,
        AskSourcesOperator,
        AuditOperator,
        DeliverOperator,
        DoctorOperator,
        FinalizeOperator,
        GcOperator,
        MaintainOperator,
        PullOperator,
    )
    from onlyonce.airflow.stream_job import StreamOperator
    from onlyonce.airflow.timetable import IntervalsByHand

_PLACES = {
    "ask_sources_dag": "factory",
    "audit_dag": "factory",
    "backfill_dags": "factory",
    "catalog_gc_dag": "factory",
    "dags": "factory",
    "deliver_outbox_dag": "factory",
    "finalize_files_dag": "factory",
    "compact_tables_dag": "factory",
    "stream_dags": "factory",
    "StreamOperator": "stream_job",
    "BackfillOperator": "backfill_job",
    "AlertsOperator": "jobs",
    "AskSourcesOperator": "jobs",
    "AuditOperator": "jobs",
    "GcOperator": "jobs",
    "DeliverOperator": "jobs",
    "DoctorOperator": "jobs",
    "FinalizeOperator": "jobs",
    "PullOperator": "jobs",
    "MaintainOperator": "jobs",
    "IntervalsByHand": "timetable",
}

__all__ = [
    "AlertsOperator",
    "AskSourcesOperator",
    "AuditOperator",
    "BackfillOperator",
    "DeliverOperator",
    "DoctorOperator",
    "FinalizeOperator",
    "GcOperator",
    "IntervalsByHand",
    "MaintainOperator",
    "PullOperator",
    "StreamOperator",
    "ask_sources_dag",
    "audit_dag",
    "backfill_dags",
    "catalog_gc_dag",
    "compact_tables_dag",
    "dags",
    "deliver_outbox_dag",
    "finalize_files_dag",
    "stream_dags",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
