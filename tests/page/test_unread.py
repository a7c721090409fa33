"""The frame of a pipeline's page asks its sources when it is called. Without an answer it shows the stored one with its
time, or that nothing is known."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from onlyonce.airflow.page import unread
from onlyonce.airflow.page.app import time
from onlyonce.commitlog.sources import SourceAnswers
from onlyonce.core import backlog
from onlyonce.core.backlog import Backlog
from onlyonce.sources.backlog import Answer
from tests.contract.conftest import Log
from tests.page.shop import Shop
from tests.page.test_page import get

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def asker(monkeypatch: pytest.MonkeyPatch) -> Iterator[unread.Asker]:
    """A process that has asked nothing yet."""
    made, waiting = unread.Asker(), unread.Waiting()
    monkeypatch.setattr(unread, "ASKER", made)
    monkeypatch.setattr(unread, "WAITING", waiting)
    yield made
    for request in made.requests.values():
        if request.process is not None:
            request.process.kill()
    made.threads.shutdown(cancel_futures=True)
    waiting.end()


def rows(client: TestClient) -> list[tuple[str, str, list[str]]]:
    """Each source of the shop: its stage, who has answered, and its cells."""
    html = get(client, "/pipelines/shop/unread")
    found = re.findall(r'<tr data-source="([^"]+)" data-by="([^"]+)">(.*?)</tr>', html)
    return [(stage, by, re.sub("<(?!td)[^>]+>", "", cells).split("<td")) for stage, by, cells in found]


def test_source_is_asked_when_the_page_is_called(
    log: Log, shop: Shop, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command `onlyonce lag` itself: a file in the inbox that no run has read."""
    monkeypatch.setattr(backlog, "ANSWER_SECONDS", 60)
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    inbox = tmp_path / "inbox" / "shop"
    inbox.mkdir(parents=True)
    (inbox / "0.jsonl").write_bytes(b"x" * 29 + b"\n")
    [(stage, by, cells)] = rows(client)

    assert (stage, by) == ("receive", "now")
    assert any("30 B" in cell for cell in cells)

    # The next request gets a process that was started before it, and reads the inbox of now.
    monkeypatch.setattr(backlog, "KEPT_SECONDS", 0)
    (inbox / "1.jsonl").write_bytes(b"x" * 9 + b"\n")
    waiting = unread.WAITING.process
    assert waiting is not None
    [(stage, by, cells)] = rows(client)
    assert any("40 B" in cell for cell in cells)
    assert waiting.returncode == 0


def store(log: Log, **values: Any) -> None:
    """An answer of ten minutes ago, as the DAG stores it."""
    row = {
        "pipeline": "shop", "source": "", "asked_at": datetime.now(UTC) - timedelta(minutes=10), "answered": True, "records": 7,
        "bytes": 2000, "oldest_unread_at": NOON, "detail": {}, "why_unknown": None,
    }  # fmt: skip
    SourceAnswers(log.database).store([row | values], timedelta(minutes=5))


@pytest.mark.parametrize("fault", ["fails", "hangs"])
def test_without_an_answer_the_stored_one_is_shown(
    log: Log, shop: Shop, client: TestClient, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """With its time and the reason. If none is stored, nothing is known."""
    code = "import time; time.sleep(600)" if fault == "hangs" else "raise SystemExit(75)"
    monkeypatch.setattr(unread, "COMMAND", (sys.executable, "-c", code))
    monkeypatch.setattr(backlog, "ANSWER_SECONDS", 0.01 if fault == "hangs" else 60)
    monkeypatch.setattr(unread, "MOST_SECONDS", 5)
    [(_, nothing, why)] = rows(client)
    store(log)
    [(_, by, cells)] = rows(client)
    [(asked_at,)] = log.rows("SELECT asked_at FROM onlyonce.backlog")

    assert (nothing, by) == ("not known", "stored")
    assert any("2.0 kB" in cell for cell in cells)
    assert any(f"{time(asked_at)} (stored)" in cell for cell in cells)
    reason = "no answer within 0.01 s" if fault == "hangs" else "onlyonce lag says why"
    assert reason in why[-1]
    assert reason in cells[-1]
    assert "no answer" in why[2]


def answering(*lines: str) -> tuple[str, ...]:
    """A process that prints lines once it has a name, and does not end then."""
    code = f"import sys, time; sys.stdin.readline(); print({chr(10).join(lines)!r}, flush=True); time.sleep(600)"
    return (sys.executable, "-c", code)


def answer(stage: str, **values: Any) -> dict[str, Any]:
    """A row as `operate.unread.print_each` prints it."""
    return {**Answer("shop", None, NOON, Backlog()).row(), "stage": stage, "asked_at": NOON.isoformat(), **values}


def test_silent_source_is_named_and_holds_up_no_other(
    shop: Shop, client: TestClient, asker: unread.Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the other source's answer while the process goes on, and loads itself again; later it does not."""
    silent = answer("receive/till", source_answered=False, backlog_bytes=None, backlog_unknown="no answer within 2 s")
    web = answer("receive/web", backlog_bytes=30)
    monkeypatch.setattr(unread, "COMMAND", answering(json.dumps([silent]), json.dumps([silent, web])))
    first = get(client, "/pipelines/shop/unread")
    request = asker.requests["shop"]
    while len(request.rows) < 2:
        assert not request.ended.wait(0.01)
    shown = {stage: cells for stage, _, cells in rows(client)}
    assert request.process is not None
    request.process.kill()
    assert request.ended.wait(60)
    last = get(client, "/pipelines/shop/unread")

    assert "30 B" in shown["receive/web"][2]
    assert "no answer" in shown["receive/till"][2]
    assert "no answer within 2 s" in shown["receive/till"][-1]
    assert ['http-equiv="refresh"' in html for html in (first, last)] == [True, False]


def test_process_that_is_over_time_makes_room(monkeypatch: pytest.MonkeyPatch, asker: unread.Asker) -> None:
    """Silent sources of two pipelines hold up the page of no third one."""
    rows = [answer("receive")]
    monkeypatch.setattr(unread, "COMMAND", answering(json.dumps(rows)))
    monkeypatch.setattr(backlog, "ANSWER_SECONDS", 0.01)
    for name in ("shop", "stall"):
        asker.ask(name, "")
        while not asker.requests[name].rows:
            assert not asker.requests[name].ended.wait(0.01)
    monkeypatch.setattr(unread, "MOST_SECONDS", 5)
    asker.ask("kiosk", "")
    third = asker.requests["kiosk"]
    assert third.ended.wait(60)

    assert third.rows == rows


def test_answer_that_failed_or_is_old_has_no_number(
    log: Log, shop: Shop, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old one is shown with its time and without its numbers."""
    monkeypatch.setattr(unread, "COMMAND", (sys.executable, "-c", "raise SystemExit(75)"))
    store(log, asked_at=datetime.now(UTC) - timedelta(hours=1))
    [(_, _, old)] = rows(client)
    store(log, answered=False, records=None, bytes=None, oldest_unread_at=None, why_unknown="the mount is stale")
    [(_, _, failed)] = rows(client)

    assert not any("2.0 kB" in cell for cell in old)
    assert any("(stored)" in cell for cell in old)
    assert any("no answer" in cell for cell in failed)


def test_answer_is_kept_and_asked_once_at_a_time(monkeypatch: pytest.MonkeyPatch, asker: unread.Asker) -> None:
    """However often the page is loaded; after KEPT_SECONDS it is asked again."""
    begun, may_end = list[str](), threading.Event()

    def read_answers(request: Any, pipeline: str, _: str) -> None:
        begun.append(pipeline)
        if may_end.wait(60):
            request.rows = [{"stage": "receive"}]
        request.ended.set()

    monkeypatch.setattr(unread, "_read_answers", read_answers)
    monkeypatch.setattr(backlog, "ANSWER_SECONDS", 0.01)
    early = [asker.ask("shop", "") for _ in range(3)]
    may_end.set()
    monkeypatch.setattr(backlog, "ANSWER_SECONDS", 60)
    kept = [asker.ask("shop", "") for _ in range(2)]
    number = len(begun)
    monkeypatch.setattr(backlog, "KEPT_SECONDS", 0)
    asker.ask("shop", "")

    assert early == [unread.Asked([], "no answer within 0.01 s", goes_on=True)] * 3
    assert kept == [unread.Asked([{"stage": "receive"}])] * 2
    assert (number, len(begun)) == (1, 2)
