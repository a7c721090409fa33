"""Ask the sources of a pipeline for the page: what have they that no committed batch has read?

A process of its own asks, as `onlyonce lag` does at a shell. So neither Spark's modules nor a team's own reader are
loaded into Airflow's API server, and a source that hangs holds up nothing there. If the API server can't reach a
source, the stored answer is shown with its time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from onlyonce import environment
from onlyonce.airflow.page.read import Row

PATIENCE_SECONDS = 6.0
"""How long a page waits: a source has two seconds, and the process starts first."""
KEPT_SECONDS = 15.0
MOST_SECONDS = 60.0
"""After this a process is killed."""
AT_ONCE = 2
"""How many processes ask at the same time; the next ones wait for their turn."""
COMMAND = (sys.executable, "-c", "from onlyonce.cli import app; app()", "lag", "--json", "--")

log = structlog.get_logger()


@dataclass
class Asker:
    """Asks once in KEPT_SECONDS for each pipeline, however often its page is loaded. A process has one (`ASKER`)."""

    begun: dict[str, tuple[float, Future[list[Row]]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE, "unread"))

    def ask(self, pipeline: str, reader_url: str) -> list[Row]:
        """Return the rows of `onlyonce lag`; none if it has not answered in time, or could not run."""
        with self.lock:
            at, answer = self.begun.get(pipeline, (0.0, None))
            if answer is None or (answer.done() and time.monotonic() - at >= KEPT_SECONDS):
                answer = self.threads.submit(_asked, pipeline, reader_url)
                self.begun[pipeline] = time.monotonic(), answer
        try:
            return answer.result(PATIENCE_SECONDS)
        except NotYet:
            return []


ASKER = Asker()


def _asked(pipeline: str, reader_url: str) -> list[Row]:
    try:
        done = subprocess.run(
            [*COMMAND, pipeline], env={**environment.inherited(), "ONLYONCE_READER_URL": reader_url},
            stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=MOST_SECONDS,
        )  # fmt: skip
        return list(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        # Not the error's message: it may quote the output of a team's own reader.
        log.warning("the sources can't be asked from here", pipeline=pipeline, problem=type(error).__name__)
        return []


def shown(stored: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each source: what it answers now, else the stored answer, else that nothing is known. Pure.

    `stored`: the rows of the page's query `lag`. `now`: the rows of `onlyonce lag --json`.
    """
    known = {row["stage"]: row for row in stored if row["stage"].startswith("receive")}
    answers = {row["stage"]: row for row in now if row["stage"].startswith("receive")}
    return [_row(stage, known.get(stage), answers.get(stage)) for stage in {**known, **answers}]


def _row(stage: str, stored: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> Row:
    if now and now.get("asked_at"):
        return {
            "stage": stage, "by": "now", "asked_at": datetime.fromisoformat(now["asked_at"]),
            "answered": now["source_answered"], "bytes": now["backlog_bytes"], "records": now["backlog_records"],
            "oldest": datetime.fromisoformat(now["oldest_unread_at"]) if now["oldest_unread_at"] else None,
            "catch_up": now["catch_up_seconds"], "why": now["backlog_unknown"],
        }  # fmt: skip
    if stored and stored["asked_at"]:
        return {
            "stage": stage, "by": "stored", "asked_at": stored["asked_at"], "answered": not stored["no_answer"],
            "bytes": stored["backlog_bytes"], "records": stored["backlog_records"],
            "oldest": stored["oldest_unread_at"], "catch_up": stored["catch_up"], "why": None,
        }  # fmt: skip
    nothing = dict.fromkeys(("asked_at", "bytes", "records", "oldest", "catch_up", "why"))
    return {"stage": stage, "by": "not known", "answered": True, **nothing}
