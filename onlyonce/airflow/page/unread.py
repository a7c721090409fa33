"""Ask the sources of a pipeline for the page: what have they that no committed batch has read?

A process of its own asks, by the same code as `onlyonce lag`. So neither Spark's modules nor a team's own reader are
loaded into Airflow's API server, and a source that hangs holds up nothing there. If the API server can't reach a
source, the stored answer is shown with its time.

To start it takes a second. So a process of the same command is started after each request: it has imported all modules,
waits for the name of a pipeline, reads the declarations then, answers and ends.

A page has the answers of the first ANSWER_SECONDS. The process continues for KEPT_SECONDS after it has asked. The next
page has the answers that came late, such as all answers if the process took long to start.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from onlyonce import environment
from onlyonce.airflow.page.read import Row
from onlyonce.core import backlog

MOST_SECONDS = 60.0
"""After this a process is killed."""
AT_ONCE = 2
"""How many processes ask at the same time; the next ones wait for their turn."""
WARM_SECONDS = 300
"""How long a process waits for a request. It ends by itself after twice this time, even if its API server is gone."""
NOT_ASKED = "the sources can't be asked from here: onlyonce lag says why"
COMMAND = (
    sys.executable, "-c",
    f"""
import os, signal, sys
signal.alarm({2 * WARM_SECONDS})
import onlyonce.configuration
from onlyonce.cli.shell import read
from onlyonce.operate import unread
if pipeline := sys.stdin.readline().strip():
    signal.alarm(0)
    unread.print_each(pipeline, read(lambda views: views.rows("taken_in")))
    os._exit(0)  # at once, even if a thread still waits for a source
""",
)  # fmt: skip

log = structlog.get_logger()


@dataclass(frozen=True)
class Asked:
    """The answers of a pipeline's sources so far.

    rows      as `operate.unread.print_each` prints them; none if the process has not begun to ask, or could not
    why       why there are no rows
    goes_on   whether a source that has not answered may still do so
    """

    rows: list[Row]
    why: str | None = None
    goes_on: bool = False


@dataclass
class _Request:
    began: float = field(default_factory=time.monotonic)
    rows: list[Row] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.began + backlog.ANSWER_SECONDS - time.monotonic())

    @property
    def is_kept(self) -> bool:
        return not self.ended.is_set() or time.monotonic() - self.began < backlog.KEPT_SECONDS


@dataclass
class Asker:
    """Asks once in KEPT_SECONDS for each pipeline, however often its page is loaded. A process has one (`ASKER`)."""

    requests: dict[str, _Request] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE, "unread"))

    def ask(self, pipeline: str, reader_url: str) -> Asked:
        """Return what the sources have answered, ANSWER_SECONDS after the request at most.

        The process continues after that, so a later call has the answers that came late.
        """
        with self.lock:
            request = self.requests.get(pipeline)
            if request is None or not request.is_kept:
                self._make_room()
                request = self.requests[pipeline] = _Request()
                self.threads.submit(_read_answers, request, pipeline, reader_url)
        ended = request.ended.wait(request.seconds_left)
        if request.rows:
            return Asked(request.rows, goes_on=not ended)
        return Asked([], NOT_ASKED if ended else backlog.not_in_time().why, goes_on=not ended)

    def _make_room(self) -> None:
        """End the process of a request whose time is over, if the next request would wait for it."""
        at_work = [one for one in self.requests.values() if not one.ended.is_set()]
        if len(at_work) >= AT_ONCE:
            for one in at_work:
                if not one.seconds_left and one.process is not None:
                    one.process.kill()


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


def _read_answers(request: _Request, pipeline: str, reader_url: str) -> None:
    try:
        with WAITING.take(reader_url) as process:
            request.process = process
            _read_lines(request, process, pipeline)
        if process.returncode and not request.rows:
            raise subprocess.CalledProcessError(process.returncode, COMMAND)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        # Not the error's message: it may quote the output of a team's own reader.
        log.warning("the sources can't be asked from here", pipeline=pipeline, problem=type(error).__name__)
    finally:
        with suppress(OSError):
            WAITING.renew(reader_url)
        request.ended.set()


def _read_lines(request: _Request, process: subprocess.Popen[str], pipeline: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    end = threading.Timer(MOST_SECONDS, process.kill)
    end.start()
    try:
        process.stdin.write(f"{pipeline}\n")
        process.stdin.close()
        for line in process.stdout:
            request.rows = list(json.loads(line))
        process.wait()
    finally:
        end.cancel()
        process.kill()


def shown(stored: Sequence[Mapping[str, Any]], asked: Asked) -> list[Row]:
    """Return a row for each source: what it answers now, else the stored answer, else that nothing is known. Pure.

    `stored`: the rows of the page's query `lag`.
    """
    known = {row["stage"]: row for row in stored if row["stage"].startswith("receive")}
    answers = {row["stage"]: row for row in asked.rows}
    return [_row(stage, known.get(stage), answers.get(stage), asked.why) for stage in {**known, **answers}]


def _row(stage: str, stored: Mapping[str, Any] | None, now: Mapping[str, Any] | None, why: str | None) -> Row:
    if now:
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
            "oldest": stored["oldest_unread_at"], "catch_up": stored["catch_up"], "why": why,
        }  # fmt: skip
    nothing = dict.fromkeys(("asked_at", "bytes", "records", "oldest", "catch_up"))
    return {"stage": stage, "by": "not known", "answered": not why, "why": why, **nothing}
