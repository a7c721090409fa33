"""A driver stores what its source has after its batches, by a thread that no batch waits for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from onlyonce.cli import operate
from onlyonce.context import CommittedBatches
from onlyonce.core import backlog as model
from onlyonce.receive import loop
from onlyonce.run import source_answers
from onlyonce.sources import backlog
from tests.support import shop_oracle
from tests.support.ended_runs import ended_at
from tests.support.long_run import QUICK, committed, meanwhile, until
from tests.support.platform import JOB_TIMEOUT, Platform

pytestmark = pytest.mark.spark

FILES = shop_oracle.sales(200, 2)


@pytest.fixture(autouse=True)
def asker(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is kept of another test."""
    monkeypatch.setattr(backlog, "ASKER", backlog.Asker())


def stored(platform: Platform) -> list[dict[str, Any]]:
    """What the view shows, and whether it was asked after the last commit."""
    rows = platform.sql("""
        SELECT b.answered, b.backlog_records, b.backlog_bytes, b.is_current, b.why_unknown, b.asked_at > t.committed_at AS after
        FROM onlyonce.backlog b JOIN onlyonce.taken_in t ON t.instance = b.pipeline""")
    return [dict(row) for row in rows.astype(object).where(rows.notna(), None).to_dict("records")]


def test_run_stores_the_answer_of_its_source(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, spark: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that came after the run had listed its input is unread; the next run takes it in, and nothing is."""
    register, late = loop.register, list(FILES[1:])

    def then_a_file_comes(context: Any) -> int:
        found = register(context)
        if late:
            platform.put("shop", "late.jsonl", late.pop())
        return found

    monkeypatch.setattr(loop, "register", then_a_file_comes)
    platform.put("shop", "first.jsonl", FILES[0])
    platform.run("shop")
    [waits] = stored(platform)
    platform.run("shop")
    [nothing] = stored(platform)

    size = (platform.home / "inbox" / "shop" / "late.jsonl").stat().st_size
    known = {"answered": True, "is_current": True, "why_unknown": None, "after": True}
    assert waits == {**known, "backlog_records": None, "backlog_bytes": size}
    assert nothing == {**known, "backlog_records": 0, "backlog_bytes": 0}
    operate.lag(as_json=True)
    by_stage = {row["stage"]: row for row in json.loads(capsys.readouterr().out)}
    assert by_stage["receive"]["backlog_bytes"] == by_stage["per_shop"]["backlog_records"] == 0


@pytest.mark.parametrize("fault", ["broken", "hangs"])
def test_failed_request_is_stored_and_holds_up_no_batch(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, spark: object, fault: str
) -> None:
    """The run takes its input in all the same, and its source's numbers are null, not 0."""
    let_go = threading.Event()

    def unread(*_: object) -> model.Backlog:
        if fault == "hangs":
            assert let_go.wait(JOB_TIMEOUT)
        raise OSError("the mount is stale")

    monkeypatch.setattr(backlog, "unread", unread)
    monkeypatch.setattr(model, "ANSWER_SECONDS", 0.01)
    platform.put("shop", "first.jsonl", FILES[0])
    platform.run("shop")
    [row] = stored(platform)
    let_go.set()

    assert committed(platform) > 0
    assert (row["answered"], row["backlog_records"], row["backlog_bytes"]) == (False, None, None)
    assert row["why_unknown"] == ("no answer within 0.01 s" if fault == "hangs" else "OSError: the mount is stale")


def test_continuous_driver_stores_answers(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """While it runs, after its first batch."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    platform = new_platform("tests/support/quiet.py")
    platform.put("shop", "first.jsonl", FILES[0])

    with meanwhile(
        platform, lambda: until(lambda: committed(platform) > 0 and stored(platform) != [], "a stored answer")
    ):
        platform.run("shop", "--continuous", "--every", "0.2")

    [row] = stored(platform)
    assert (row["answered"], row["backlog_bytes"]) == (True, 0)


@pytest.mark.parametrize(("bounded", "expected"), [(False, 2), (True, 0)])
def test_quick_batches_share_an_answer(monkeypatch: pytest.MonkeyPatch, bounded: bool, expected: int) -> None:
    """The first is followed by a request, and the last; a bounded run is not the stream."""
    asked = threading.Semaphore(0)
    requests: list[int] = []

    def ask(*_: object) -> None:
        requests.append(1)
        asked.release()

    monkeypatch.setattr(backlog, "ask_and_store", ask)
    context: Any = SimpleNamespace(
        bounded=bounded, committed=CommittedBatches(), instance="shop", pipeline=None,
        database=SimpleNamespace(url="postgresql://nowhere/none"),
    )  # fmt: skip
    with source_answers.stored_after_batches(context):
        context.committed.add()
        assert bounded or asked.acquire(timeout=JOB_TIMEOUT)
        context.committed.add()
        assert not asked.acquire(timeout=1)
        context.committed.add()

    assert len(requests) == expected


def test_each_of_several_sources_is_counted_from_its_own_commit(
    new_platform: Callable[..., Platform],
    spark: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A source batch has a number of its pipeline and one of its source: unread is what the source has after its own."""
    platform = new_platform("tests/support/two_sources.py")
    sales = [json.dumps({"id": f"w{n}", "at": "2026-01-01T10:00:00Z", "cents": 1, "place": "web"}) for n in range(4)]
    for number in range(3):
        platform.put("shop/web", f"{number}.jsonl", [sales[number]])
    platform.put("shop/till", "0.csv", ["t1,2026-01-01T10:00:00Z,2"])
    platform.run("shop")
    after = platform.sql("SELECT stage, answered, backlog_records FROM onlyonce.backlog ORDER BY stage").values.tolist()
    late = platform.put("shop/web", "3.jsonl", [sales[3]])
    assert ended_at(platform, monkeypatch, "receive-registered")  # it is listed, and not committed
    monkeypatch.setattr(backlog, "ASKER", backlog.Asker())  # a command is a process of its own
    operate.lag("shop", as_json=True)
    rows = {row["stage"]: row["backlog_bytes"] for row in json.loads(capsys.readouterr().out)}

    assert after == [["receive/till", True, 0], ["receive/web", True, 0]]
    size = late.stat().st_size
    assert {stage: rows[stage] for stage in ("receive", "receive/till", "receive/web")} == {
        "receive": size, "receive/till": 0, "receive/web": size
    }  # fmt: skip
