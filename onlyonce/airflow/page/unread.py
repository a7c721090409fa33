"""Ask the sources of a pipeline for the page: what have they that no committed batch has read?

A process of its own asks, as `onlyonce lag` does at a shell. So neither Spark's modules nor a team's own reader are
loaded into Airflow's API server, and a source that hangs holds up nothing there. If the API server can't reach a
source, the stored answer is shown with its time.

To start it takes a second. So a process of the same command is started after each request: it has imported all modules,
waits for the name of a pipeline, reads the declarations then, answers once and ends.
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
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from onlyonce import environment
from onlyonce.airflow.page.read import Row

PATIENCE_SECONDS = 3.0
"""How long a page waits: a source has two seconds, and the declarations are read first."""
KEPT_SECONDS = 15.0
MOST_SECONDS = 60.0
"""After this a process is killed."""
AT_ONCE = 2
"""How many processes ask at the same time; the next ones wait for their turn."""
WARM_SECONDS = 300
"""How long a process waits for a request. It ends by itself after twice this time, also after its API server."""
COMMAND = (
    sys.executable, "-c",
    f"""
import signal, sys
signal.alarm({2 * WARM_SECONDS})
from typer.main import get_command
import onlyonce.configuration, onlyonce.operate.unread
from onlyonce.cli import app
command = get_command(app)
if pipeline := sys.stdin.readline().strip():
    signal.alarm(0)
    command(["lag", "--json", "--", pipeline])
""",
)  # fmt: skip

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


@dataclass
class Waiting:
    """At most one process that waits for a request. A process has one (`WAITING`)."""

    process: subprocess.Popen[str] | None = None
    reader_url: str = ""
    began: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, reader_url: str) -> subprocess.Popen[str]:
        """Return the process that waits, or a new one if none does."""
        with self.lock:
            process, self.process = self.process, None
        if process is not None:
            young = time.monotonic() - self.began < WARM_SECONDS
            if young and self.reader_url == reader_url and process.poll() is None:
                return process
            _end(process)
        return _started(reader_url)

    def renew(self, reader_url: str) -> None:
        """Start a process for the next request, unless one waits."""
        with self.lock:
            if self.process is None:
                self.process, self.reader_url, self.began = _started(reader_url), reader_url, time.monotonic()

    def end(self) -> None:
        """End the process that waits."""
        with self.lock:
            process, self.process = self.process, None
        if process is not None:
            _end(process)


WAITING = Waiting()


def _started(reader_url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        COMMAND, env={**environment.inherited(), "ONLYONCE_READER_URL": reader_url}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    with process:  # closes its pipes, and waits for it
        pass


def _asked(pipeline: str, reader_url: str) -> list[Row]:
    try:
        with WAITING.take(reader_url) as process:
            try:
                told, _ = process.communicate(f"{pipeline}\n", timeout=MOST_SECONDS)
            finally:
                process.kill()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, COMMAND)
        return list(json.loads(told))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        # Not the error's message: it may quote the output of a team's own reader.
        log.warning("the sources can't be asked from here", pipeline=pipeline, problem=type(error).__name__)
        return []
    finally:
        with suppress(OSError):
            WAITING.renew(reader_url)


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
