"""Asks the commit log about a backfill before Spark starts: whether it must wait, and what it would recompute."""

from __future__ import annotations

import importlib
from typing import Any

from onlyonce.airflow.declared import Declared
from onlyonce.airflow.log.asked_windows import Asked
from onlyonce.airflow.log.task_environment import database_url, reader_url
from onlyonce.model.errors import CommitStateUnknown, Retryable
from onlyonce.model.report import Report

SETTING = Declared()


def not_yet(asked: Asked, declared: Declared = SETTING) -> str | None:
    """Why a backfill must wait, or None when all its windows are closed. Raises Refused when waiting doesn't help.

    A database that is away is a reason to wait too. Called by the trigger on a thread, which has the reader's password
    only.
    """
    backfill = _backfill()
    database = backfill.Database(reader_url(), "onlyonce-airflow")
    pipeline = declared.one(asked.pipeline)
    roots = backfill.chosen(pipeline, asked.output)
    span = _span(asked, roots)
    if asked.late_only:  # a window that is open is left to the stream
        backfill.check_sinks(pipeline, roots)
        return None
    try:
        for root in roots:
            backfill.check(database, pipeline, root, span)
    except (Retryable, CommitStateUnknown) as error:
        return str(error)
    return None


def first_look(asked: Asked, declared: Declared = SETTING) -> str | None:
    """The same, once the database has this version's tables and views. Called by the operator."""
    try:
        _backfill().migrate(database_url())
    except (Retryable, CommitStateUnknown) as error:
        return str(error)
    return not_yet(asked, declared)


def would_recompute(asked: Asked, declared: Declared = SETTING) -> Report:
    """The dry run. Raises Refused, and Retryable when the database is away. Called by the operator."""
    backfill = _backfill()
    database = backfill.Database(database_url(), "onlyonce-airflow")
    pipeline = declared.one(asked.pipeline)
    roots = backfill.chosen(pipeline, asked.output)
    span = _span(asked, roots)
    backfill.migrate(database.url)
    report: Report = backfill.dry_run(
        database, pipeline, roots, span, asked.lookups or "then", late_only=asked.late_only
    )
    return report


def _span(asked: Asked, roots: list[Any]) -> Any:
    backfill = _backfill()
    start, stop = (time and backfill.written(time) for time in (asked.start, asked.stop))
    return backfill.span_of(roots, start, stop, late_only=asked.late_only)


def _backfill() -> Any:
    # By name: the module reaches Spark, though not in what is called here, and plugins import none.
    return importlib.import_module("onlyonce.outputs.backfill")
