"""Writes a report into a task's log, one line for each row.

For tasks without a driver; their log is configured by Airflow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from onlyonce.model.report import Report
from onlyonce.model.visible import in_line, visible


def tell(report: Report, log: logging.Logger) -> None:
    """Write a report line by line. No errors."""
    log.info("%s: %s", visible(report.title), _text(report.facts))
    for table, rows in report.tables.items():
        for row in rows:
            log.info("%s: %s", table, _text(row))
    for warning in report.warnings:
        log.warning("%s", visible(warning))


def _text(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={in_line(str(value))}" for name, value in values.items())
