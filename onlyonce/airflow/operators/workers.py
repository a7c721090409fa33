"""Tells by a task's executor whether a process that the task starts may outlive it."""

from __future__ import annotations

from typing import Any

from airflow.sdk import conf

OUTLIVE = ("LocalExecutor", "CeleryExecutor")
"""Their workers go on when a task has ended. With any other (Kubernetes, ECS, Batch) a task's place may end with it."""


def outlive(executor: str | None, configured: str) -> bool:
    """By the task's own executor, else the first of Airflow's.

    `team:alias:path` and `alias:path` are how Airflow names them. Pure.
    """
    named = executor or configured.split(",")[0].rpartition(";")[2]
    return any(part.strip().rpartition(".")[2] in OUTLIVE for part in named.split(":"))


def of_task(operator: Any) -> bool:
    """The same, of the task of an operator."""
    return outlive(getattr(operator, "executor", None), conf.get("core", "executor", fallback=""))
