"""Parts that a test needs and a machine may lack: a browser, MariaDB, PgBouncer, Go."""

from __future__ import annotations

import os
import shutil
from typing import Any, NoReturn

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LACKING = "this machine lacks a part: "


def missing(what: str) -> NoReturn:
    """Skip a test that lacks a part. Fail it in continuous integration (CI=true), where every test must run."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(LACKING + what)


def browser() -> str:
    """Return the path of the machine's Chromium."""
    return next(filter(None, map(shutil.which, BROWSERS)), None) or missing(
        f"no Chromium (looked for {', '.join(BROWSERS)})"
    )


def summarize(terminalreporter: Any) -> None:
    """Print how many tests were skipped because of each missing part, as the last lines of the session."""
    counts: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        _, found, part = str(report.longrepr[2]).partition(LACKING)  # (path, line, reason)
        if found:
            counts[part] = counts.get(part, 0) + 1
    for part, count in sorted(counts.items()):
        terminalreporter.write_line(f"{count} tests did not run: {part}")
