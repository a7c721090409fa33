"""The frame of a pipeline's page asks its sources when it is called; without an answer it shows the stored one with its
time, and else that nothing is known."""

from __future__ import annotations

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
    monkeypatch.setattr(unread, "PATIENCE_SECONDS", 60)
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    inbox = tmp_path / "inbox" / "shop"
    inbox.mkdir(parents=True)
    (inbox / "0.jsonl").write_bytes(b"x" * 29 + b"\n")
    [(stage, by, cells)] = rows(client)

    assert (stage, by) == ("receive", "now")
    assert any("30 B" in cell for cell in cells)

    # The next request gets a process that was started before it, and reads the inbox of now.
    monkeypatch.setattr(unread, "KEPT_SECONDS", 0)
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
    """With its time; and none is stored for a pipeline that was never asked."""
    code = "import time; time.sleep(600)" if fault == "hangs" else "raise SystemExit(75)"
    monkeypatch.setattr(unread, "COMMAND", (sys.executable, "-c", code))
    monkeypatch.setattr(unread, "PATIENCE_SECONDS", 0.01 if fault == "hangs" else 60)
    monkeypatch.setattr(unread, "MOST_SECONDS", 5)
    [(_, nothing, _)] = rows(client)
    store(log)
    [(_, by, cells)] = rows(client)
    [(asked_at,)] = log.rows("SELECT asked_at FROM onlyonce.backlog")

    assert (nothing, by) == ("not known", "stored")
    assert any("2.0 kB" in cell for cell in cells)
    assert any(f"{time(asked_at)} (stored)" in cell for cell in cells)


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

    def asked(pipeline: str, _: str) -> list[dict[str, Any]]:
        begun.append(pipeline)
        assert may_end.wait(60)
        return [{"stage": "receive"}]

    monkeypatch.setattr(unread, "_asked", asked)
    monkeypatch.setattr(unread, "PATIENCE_SECONDS", 0.01)
    assert [asker.ask("shop", "") for _ in range(3)] == [[], [], []]
    may_end.set()
    monkeypatch.setattr(unread, "PATIENCE_SECONDS", 60)
    kept = [asker.ask("shop", "") for _ in range(2)]
    number = len(begun)
    monkeypatch.setattr(unread, "KEPT_SECONDS", 0)
    asker.ask("shop", "")

    assert kept == [[{"stage": "receive"}]] * 2
    assert (number, len(begun)) == (1, 2)
