"""Asks the commit log about a backfill before Spark starts: whether it must wait, and what it would recompute."""

from __future__ import annotations

import importlib
from typing import Any

from onlyonce.airflow.declared import Declared
from onlyonce.airflow.log.asked_windows import Asked
from onlyonce.airflow.log.task_environment import database_url
from onlyonce.model.errors import CommitStateUnknown, Retryable
from onlyonce.model.report import Report

SETTING = Declared()


def not_yet(asked: Asked, declared: Declared = SETTING) -> str | None:
    """Why a backfill must wait, or None when all its windows are closed. Raises Refused when waiting doesn't help.

    A database that is away is a reason to wait too. Called by the operator, and by the trigger on a thread.
    """
    backfill, database = _backfill(), _database()
    pipeline = declared.one(asked.pipeline)
    roots = backfill.chosen(pipeline, asked.output)
    span = backfill.span_of(roots, backfill.written(asked.start), backfill.written(asked.stop))
    try:
        backfill.migrate(database.url)
        for root in roots:
            backfill.check(database, pipeline, root, span)
    except (Retryable, CommitStateUnknown) as error:
        return str(error)
    return None


def would_recompute(asked: Asked, declared: Declared = SETTING) -> Report:
    """The dry run. Raises Refused, and Retryable when the database is away. Called by the operator."""
    backfill, database = _backfill(), _database()
    pipeline = declared.one(asked.pipeline)
    roots = backfill.chosen(pipeline, asked.output)
    span = backfill.span_of(roots, backfill.written(asked.start), backfill.written(asked.stop))
    backfill.migrate(database.url)
    report: Report = backfill.dry_run(database, pipeline, roots, span, asked.lookups or "then")
    return report


def _backfill() -> Any:
    # By name: the module reaches Spark, though not in what is called here, and plugins import none.
    return importlib.import_module("onlyonce.outputs.backfill")


def _database() -> Any:
    return _backfill().Database(database_url(), "onlyonce-airflow")
