"""Record at which fail-points the tests have struck, and what came out.

ONLYONCE_FAULT_STRIKES names a JSON file. A session of pytest that has it set adds each point that was struck while a
test ran that passed: {point: {"test": …, "at": …}}. The tests of the product's points read `strikes.json`, next to this
module. A strike is one of a child process (`onlyonce.failpoints`), or an error that a test's own `passing` raised.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onlyonce import failpoints

VARIABLE = "ONLYONCE_FAULT_STRIKES"
FILE = Path(__file__).with_name("strikes.json")
_noted = 0


def begin() -> None:
    """Give this process and its children one file for their strikes; wrap each `passing` that a test puts in place."""
    if VARIABLE not in os.environ:
        return
    os.environ[VARIABLE] = str(Path(os.environ[VARIABLE]).resolve())
    descriptor, failpoints.STRIKES = tempfile.mkstemp(prefix="onlyonce-strikes-")
    os.close(descriptor)
    os.environ["ONLYONCE_FAILPOINT_STRIKES"] = failpoints.STRIKES
    put = pytest.MonkeyPatch.setattr

    def setattr_noting(self: pytest.MonkeyPatch, target: Any, name: Any, *value: Any, **options: Any) -> None:
        put(self, target, name, *(map(_noting, value) if name == "passing" else value), **options)

    pytest.MonkeyPatch.setattr = setattr_noting  # type: ignore[method-assign]


def _noting(passing: Callable[[str], object]) -> Callable[[str], None]:
    def noted(point: str) -> None:
        try:
            passing(point)
        except BaseException:
            failpoints.note(failpoints.STRIKES, point)
            raise

    return noted


def of_a_test(report: pytest.TestReport) -> None:
    """Keep what was struck since the test before, if the test passed."""
    global _noted
    if not failpoints.STRIKES or report.when != "call":
        return
    struck = Path(failpoints.STRIKES).read_text().splitlines()
    new, _noted = set(struck[_noted:]), len(struck)
    if new and report.passed:
        today = datetime.now(UTC).date().isoformat()
        _keep({point: {"test": report.nodeid, "at": today} for point in new})


def _keep(found: dict[str, dict[str, str]]) -> None:
    file = Path(os.environ[VARIABLE])
    with file.with_suffix(".lock").open("w") as lock:  # The workers of one session write the same file.
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = json.loads(file.read_text()) if file.exists() else {}
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(before | found, indent=1, sort_keys=True) + "\n")
        partial.replace(file)
