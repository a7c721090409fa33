"""Log lines of the jobs: one line of key=value each, with pipeline, run, lineage and epoch. Logs show work, not commits."""

from __future__ import annotations

import json
import os
import sys

import structlog

from jobs.model.report import Report


def configure(**always: str) -> None:
    """Send log lines to standard error, each with these values. ONLYONCE_LOG=json makes them JSON."""
    last = structlog.processors.JSONRenderer() if os.environ.get("ONLYONCE_LOG") == "json" else _lines()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            last,
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(**always)


def tell(report: Report) -> None:
    """Write a report to the log, as the end of a task: what is committed, read from the log."""
    log = structlog.get_logger()
    log.info("report", title=report.title, **{k.replace(" ", "_"): v for k, v in report.facts.items()})
    for name, rows in report.tables.items():
        for row in rows:
            log.info(name, **{("of" if k == "event" else k): _plain(v) for k, v in row.items() if v is not None})
    for warning in report.warnings:
        log.warning(warning)


def _lines() -> structlog.typing.Processor:
    return structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"], drop_missing=True)


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str | bool) else json.loads(json.dumps(value, default=str))
