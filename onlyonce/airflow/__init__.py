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
    from onlyonce.airflow.factory.make import (
        audit_dag,
        backfill_dags,
        collect_dag,
        dags,
        deliver_dag,
        finalize_dag,
        maintain_dag,
        stream_dags,
    )
    from onlyonce.airflow.operators.backfill_job import BackfillOperator
    from onlyonce.airflow.operators.jobs import (
        AlertsOperator,
        AuditOperator,
        CollectOperator,
        DeliverOperator,
        DoctorOperator,
        FinalizeOperator,
        LandOperator,
        MaintainOperator,
    )
    from onlyonce.airflow.operators.stream_job import StreamOperator
    from onlyonce.airflow.timetables.intervals_by_hand import IntervalsByHand

_PLACES = {
    "audit_dag": "factory.make",
    "backfill_dags": "factory.make",
    "collect_dag": "factory.make",
    "dags": "factory.make",
    "deliver_dag": "factory.make",
    "finalize_dag": "factory.make",
    "maintain_dag": "factory.make",
    "stream_dags": "factory.make",
    "StreamOperator": "operators.stream_job",
    "BackfillOperator": "operators.backfill_job",
    "AlertsOperator": "operators.jobs",
    "AuditOperator": "operators.jobs",
    "CollectOperator": "operators.jobs",
    "DeliverOperator": "operators.jobs",
    "DoctorOperator": "operators.jobs",
    "FinalizeOperator": "operators.jobs",
    "LandOperator": "operators.jobs",
    "MaintainOperator": "operators.jobs",
    "IntervalsByHand": "timetables.intervals_by_hand",
}

__all__ = [
    "AlertsOperator", "AuditOperator", "BackfillOperator", "CollectOperator", "DeliverOperator", "DoctorOperator",
    "FinalizeOperator", "IntervalsByHand", "LandOperator", "MaintainOperator", "StreamOperator",
    "audit_dag", "backfill_dags", "collect_dag", "dags", "deliver_dag", "finalize_dag", "maintain_dag", "stream_dags",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
