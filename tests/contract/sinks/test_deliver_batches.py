"""Webhooks that take several rows in a request: each row has its own id and its own fate, whatever it shares a request
with."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onlyonce.commitlog.outbox import OutboxRows
from onlyonce.core.errors import Refused
from onlyonce.sinks.outbox import send_webhook
from tests.contract.outboxes import Outbox, ids, run_process, sales
from tests.contract.sinks.test_deliver import POINTS, box, hook, in_order
from tests.support.endpoints import DROPPED, LOST, OK, TWICE, EventsEndpoint, Reply, Request

__all__ = ["box"]


def named(request: Request) -> list[str]:
    """The ids of a request's rows."""
    return [event["data"]["id"] for event in request.body]


def test_rows_share_requests_in_order_each_with_its_own_id(box: Outbox) -> None:
    """Over several units: events of CloudEvents' batch format, whose ids are the rows' keys, and a request has no key
    of its own."""
    rows = sales(60)
    for part in range(3):
        box.put(rows[20 * part : 20 * part + 20])
    with EventsEndpoint(honours=False) as endpoint:
        assert box.deliver(hook(endpoint, batch=10))
        assert box.deliver(hook(endpoint, batch=10))

    assert endpoint.ids() == ids(rows)
    assert in_order(endpoint.effects)
    assert [len(request.body) for request in endpoint.requests] == [10] * 6
    events = [event for request in endpoint.requests for event in request.body]
    assert Counter((event.pop("id"),) for event in events) == box.log.multiset(
        "SELECT idempotency_key FROM onlyonce.outbox WHERE state = 'delivered' AND attempts = 1"
    )
    assert all(event.keys() == {"specversion", "source", "type", "datacontenttype", "data"} for event in events)
    assert {(event["specversion"], event["source"], event["datacontenttype"]) for event in events} == {
        ("1.0", "shop/notify", "application/json")
    }
    assert {request.headers["content-type"] for request in endpoint.requests} == {"application/cloudevents-batch+json"}
    assert not any("idempotency-key" in request.headers for request in endpoint.requests)


@pytest.mark.parametrize("seed", range(3))
def test_a_misbehaving_endpoint_that_honours_the_ids_has_each_row_once(box: Outbox, seed: int) -> None:
    """It drops answers and requests, handles some twice, answers 429 and 5xx, and refuses what it does not like:
    nothing is lost or doubled, each shop's rows are in order, and what it refuses of good rows it gets in other
    company."""
    chance, rows = random.Random(seed), sales(120, shops=4)
    box.put(rows[:60])
    box.put(rows[60:])
    kinds = [
        DROPPED,
        LOST,
        TWICE,
        *(Reply(status, effect=chance.random() < 0.5) for status in (500, 503)),
        Reply(429, effect=False),
    ]

    def script(_number: int, request: Request) -> Reply:
        if len(request.body) > 3 and chance.random() < 0.3:
            return Reply(413, effect=False)
        return chance.choice(kinds) if chance.random() < 0.4 else OK

    with EventsEndpoint(script) as endpoint:
        box.deliver(hook(endpoint, attempts=100, batch=16))

    assert endpoint.ids() == ids(rows)
    assert in_order(endpoint.effects)
    assert box.states() == Counter({("delivered",): 120})


@pytest.mark.parametrize("bad", [{"s0042"}, {"s0000", "s0051", "s0099"}])
def test_a_row_that_is_refused_takes_no_other_with_it(box: Outbox, bad: set[str]) -> None:
    """The endpoint refuses each request that has a bad row. It is a dead letter with its answer, alone; each other is
    delivered once, though this endpoint ignores ids, and none has a second attempt counted."""
    rows = sales(100)
    box.put(rows)

    def script(_number: int, request: Request) -> Reply:
        return Reply(422, effect=False, body="no such customer") if bad & set(named(request)) else OK

    with EventsEndpoint(script, honours=False) as endpoint:
        box.deliver(hook(endpoint, batch=100, attempts=1))

    assert endpoint.ids() == ids(rows) - Counter(bad)
    assert in_order(endpoint.effects)
    assert box.ids("state = 'dead' AND answer LIKE '422 %%no such customer%%'") == bad
    assert box.log.multiset("SELECT attempts, unanswered, uncertain FROM onlyonce.outbox") == Counter(
        {(1, 0, False): 100}
    )
    assert len(endpoint.requests) <= 20 * len(bad)


@pytest.mark.parametrize("attempts", [2, 6])
def test_a_row_at_which_the_endpoint_breaks_takes_no_other_with_it(box: Outbox, attempts: int) -> None:
    """It answers 500 to each request with that row: with each attempt its rows share one with fewer, and at the last
    each is alone."""
    rows = sales(20)
    box.put(rows)

    def script(_number: int, request: Request) -> Reply:
        return Reply(500, effect=False) if "s0007" in named(request) else OK

    with EventsEndpoint(script, honours=False) as endpoint:
        box.deliver(hook(endpoint, batch=20, attempts=attempts))

    assert endpoint.ids() == ids(rows) - Counter(["s0007"])
    assert in_order(endpoint.effects)
    assert box.ids("state = 'dead'") == box.ids(f"unanswered = {attempts}") == {"s0007"}


def test_after_a_lost_answer_the_same_rows_come_again_and_no_others(box: Outbox) -> None:
    """Under the same ids, in smaller requests; an endpoint that ignores them has these twice, and the log marks
    them."""
    rows = sales(30)
    box.put(rows, key=None)

    def script(number: int, _request: Request) -> Reply:
        return DROPPED if number == 0 else OK

    with EventsEndpoint(script, honours=False) as endpoint:
        box.deliver(hook(endpoint, keys=(), batch=10, at_once=1))

    lost = set(named(endpoint.requests[0]))
    assert endpoint.ids() - ids(rows) == Counter(lost)
    assert box.ids("uncertain") == box.ids("unanswered = 1") == lost
    assert [len(request.body) for request in endpoint.requests] == [10, 10, 10, 5, 5]
    key_of = {(event["id"], event["data"]["id"]) for request in endpoint.requests for event in request.body}
    assert len(key_of) == 30


def test_what_is_no_matter_of_a_row_holds_all(box: Outbox) -> None:
    """Retry-After is kept by all rows, and a wrong password costs none of them an attempt."""
    box.put(sales(30, shops=1))
    replies = [Reply(401, effect=False), Reply(429, effect=False, headers={"Retry-After": "900"})]
    with EventsEndpoint(lambda number, _request: replies[min(number, 1)]) as endpoint:
        with pytest.raises(Refused, match="401"):
            box.deliver(hook(endpoint, batch=10, attempts=2))
        held = box.log.multiset("SELECT state, attempts FROM onlyonce.outbox")
        box.deliver(hook(endpoint, batch=10, attempts=2))

    assert held == Counter({("waiting", 0): 30})
    assert len(endpoint.requests) == 2
    assert box.log.multiset(
        "SELECT attempts, extract(epoch FROM due_at - answered_at)::int FROM onlyonce.outbox"
    ) == Counter({(1, 900): 10, (0, None): 20})


def test_a_request_has_so_many_bytes_or_one_row(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is larger goes alone."""
    monkeypatch.setattr(send_webhook, "REQUEST_BYTES", 3000)
    rows: list[dict[str, Any]] = sales(60)
    rows[7]["text"] = "é" * 3000
    box.put(rows)
    with EventsEndpoint(honours=False) as endpoint:
        box.deliver(hook(endpoint, batch=50))

    assert endpoint.ids() == ids(rows)
    assert in_order(endpoint.effects)
    assert [named(request) for request in endpoint.requests if int(request.headers["content-length"]) > 3000] == [
        ["s0007"]
    ]
    assert max(len(request.body) for request in endpoint.requests) > 5


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_does_not_show(box: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """SIGKILL at each point, then the same again: what came twice came under one id, and are rows that the log
    marks."""
    monkeypatch.setenv("TEST_BATCH", "5")
    rows = sales(24)
    box.put(rows)
    with EventsEndpoint(honours=False) as endpoint:
        killed, output = run_process(box.log, endpoint.url, tmp_path, point, nth=2)
        assert killed == -9, output
        box.deliver(hook(endpoint, batch=5))

    by_key = {event["id"]: event["data"]["id"] for request in endpoint.requests for event in request.body}
    assert Counter(by_key.values()) == ids(rows)
    assert endpoint.ids() - ids(rows) == Counter(box.ids("uncertain") & set((endpoint.ids() - ids(rows)).elements()))
    assert in_order(endpoint.effects)
    assert box.states() == Counter({("delivered",): 24})
    assert bool(endpoint.ids() - ids(rows)) == (point in ("deliver-after-send", "deliver-before-record"))


def test_two_statements_for_a_wave_of_requests(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows they have; a killed wave leaves no more than those of the requests under way."""
    box.put(sales(100), key=None)
    waves: list[int] = []
    begin = OutboxRows.begin

    def counted(log: Any, deliverer: Any, rows: Any) -> set[int]:
        waves.append(len(rows))
        return begin(log, deliverer, rows)

    monkeypatch.setattr(OutboxRows, "begin", counted)
    with EventsEndpoint() as endpoint:
        box.deliver(hook(endpoint, keys=(), at_once=8, batch=5, timeout=timedelta(seconds=20)))

    assert waves == [40, 40, 20]
    assert endpoint.ids() == ids(sales(100))


def test_row_behind_a_waiting_row_of_its_key_is_not_due(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second row is due, and waits for the first. The deliverer sleeps until the first is due."""
    box.put(sales(2, shops=1))
    asked: list[float | None] = []
    next_due = OutboxRows.next_due

    def counted(log: Any, *given: Any, **named: Any) -> float | None:
        asked.append(next_due(log, *given, **named))
        return asked[-1]

    monkeypatch.setattr(OutboxRows, "next_due", counted)
    with EventsEndpoint(lambda *_: Reply(500, effect=False)) as endpoint:
        box.deliver(hook(endpoint, batch=2, attempts=3, pause=timedelta(milliseconds=200)))

    assert box.states() == Counter({("dead",): 2})
    assert len(asked) <= 6, asked
