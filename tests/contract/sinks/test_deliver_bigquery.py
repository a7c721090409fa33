"""BigQuery, with Google's own client: rows of the outbox reach a server that speaks `insertAll` and misbehaves on
purpose."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onlyonce.api.pipeline import BigQuery
from onlyonce.commitlog.outbox import OutboxRows
from onlyonce.core.errors import Refused, Retryable
from onlyonce.sinks.outbox import send_bigquery
from tests.contract.conftest import Log
from tests.contract.outboxes import Outbox, Row, ids, run_process, sales
from tests.support.endpoints import DROPPED, LOST, OK, TWICE, BigQueryServer, Endpoint, Reply, Request, quota
from tests.support.platform import free_port

AGES = timedelta(hours=1)
"""Longer than any test takes: within it the server is taken to remember."""


@pytest.fixture
def box(log: Log) -> Outbox:
    """The outbox of a BigQuery table."""
    return Outbox(log, "rows")


def put(box: Outbox, rows: list[Row]) -> str:
    """One unit of them."""
    return box.put(rows, key=None)


def send(box: Outbox, server: BigQueryServer, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """One delivery to a server."""
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", server.url)
    plain: dict[str, Any] = {"table": "p.d.t", "pause": timedelta(milliseconds=5), "timeout": timedelta(seconds=20)}
    assert box.deliver(BigQuery(**plain | options))


def requested(server: BigQueryServer) -> list[list[str]]:
    """The insert ids of each request."""
    return [[row["insertId"] for row in request.body["rows"]] for request in server.requests]


def test_rows_arrive_once_with_the_insert_ids_that_are_stored_with_them(
    box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """128 bits each, in one request as far as it goes; nothing is sent again."""
    rows = sales(400)
    put(box, rows)
    with BigQueryServer() as server:
        send(box, server, monkeypatch)
        send(box, server, monkeypatch)

    assert server.ids() == ids(rows)
    sent = [insert_id for request in requested(server) for insert_id in request]
    assert Counter((i,) for i in sent) == box.log.multiset("SELECT insert_id::text FROM onlyonce.outbox")
    assert len(set(sent)) == 400
    assert all(len(i.replace("-", "")) == 32 for i in sent)
    assert len(server.requests) == 1


def test_requests_keep_within_the_limits_of_the_api(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and bytes of a request; a row that no request can hold is invalid by itself, with the reason."""
    monkeypatch.setattr(send_bigquery, "REQUEST_BYTES", 3000)
    monkeypatch.setattr(send_bigquery, "ROW_BYTES", 2500)
    rows = sales(1200)
    rows[7]["text"] = "é" * 600
    rows[8]["text"] = "é" * 100
    put(box, rows)
    with BigQueryServer() as server:
        send(box, server, monkeypatch)
        few = [len(request) for request in requested(server)]
        monkeypatch.setattr(send_bigquery, "REQUEST_BYTES", 5_000_000)
        put(box, more := [row | {"id": f"more {row['id']}"} for row in sales(1200)])
        send(box, server, monkeypatch)

    assert server.ids() == ids(rows) + ids(more) - Counter([rows[7]["id"]])
    assert max(few) <= 3000 // send_bigquery.OVERHEAD
    assert sorted(map(len, requested(server)[len(few) :])) == [200, 500, 500]
    assert box.ids("state = 'invalid' AND answer LIKE '%%bytes%%'") == {rows[7]["id"]}


def test_a_row_that_the_server_rejects_is_invalid_with_its_reason_and_keeps_no_other_out(
    box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent once, and again by the way out."""
    rows = sales(100)
    for bad in (rows[3], rows[50]):
        bad["n"] = "three"
    put(box, rows)
    with BigQueryServer() as server:
        send(box, server, monkeypatch)
        before = len(server.requests)
        send(box, server, monkeypatch)
        assert len(server.requests) == before
        OutboxRows(box.log.database).retry_dead("shop", ["rows"])
        send(box, server, monkeypatch)

    assert server.ids() == ids(rows) - Counter([rows[3]["id"], rows[50]["id"]])
    assert len(server.requests) > before
    reasons = box.log.multiset("SELECT state, answer FROM onlyonce.outbox WHERE state <> 'delivered'")
    assert reasons == Counter({("invalid", "invalid: Cannot convert value to integer n"): 2})


@pytest.mark.parametrize("seed", range(3))
def test_a_misbehaving_server_that_remembers_has_each_row_once(
    box: Outbox, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """It drops answers and requests, handles some twice, has backend errors with and without effect, and too much to
    do."""
    monkeypatch.setattr(send_bigquery, "ROWS", 20)
    chance, rows = random.Random(seed), sales(300)
    put(box, rows)
    kinds = [DROPPED, LOST, TWICE, quota(), quota(429), Reply(500), Reply(503, effect=False), Reply(502)]

    def script(_number: int, _request: Request) -> Reply:
        return chance.choice(kinds) if chance.random() < 0.5 else OK

    with BigQueryServer(script) as server:
        send(box, server, monkeypatch, attempts=100, remembers=AGES)

    assert server.ids() == ids(rows)
    assert box.states() == Counter({("delivered",): 300})
    assert box.ids("uncertain") == set()


def test_a_row_is_there_twice_only_where_the_answer_was_lost_and_the_server_forgot(
    box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such rows, and their units in `commits`, are uncertain; what had an answer is never sent again."""
    monkeypatch.setattr(send_bigquery, "ROWS", 20)
    units = [
        put(box, sales(40)),
        put(box, more := [r | {"id": f"more {r['id']}"} for r in sales(40)]),
    ]
    lost: set[str] = set()

    def script(number: int, request: Request) -> Reply:
        if number == 0:
            lost.update(row["insertId"] for row in request.body["rows"])
            return DROPPED
        if lost & {row["insertId"] for row in request.body["rows"]}:
            server.forget()
        return OK

    with BigQueryServer(script) as server:
        send(box, server, monkeypatch, remembers=timedelta(0), at_once=1)

    twice = server.ids() - ids(sales(40)) - ids(more)
    assert set(twice) == box.ids("uncertain") == box.ids("unanswered = 1")
    assert len(twice) == 20
    times = Counter(insert_id for request in requested(server) for insert_id in request)
    assert {insert_id for insert_id, n in times.items() if n > 1} == lost
    assert dict(box.log.rows("SELECT unique_id, uncertain FROM onlyonce.commits")) == dict(
        zip(units, (20, 0), strict=True)
    )


@pytest.mark.parametrize("reply", [quota(), quota(reason="quotaExceeded"), quota(429)])
def test_a_quota_is_waited_for(box: Outbox, monkeypatch: pytest.MonkeyPatch, reply: Reply) -> None:
    """The rows were not taken, so nothing is uncertain; each later attempt comes after a longer pause."""
    put(box, sales(10))
    with BigQueryServer(lambda number, _request: reply if number < 4 else OK) as server:
        send(box, server, monkeypatch)

    assert server.ids() == ids(sales(10))
    asked = Counter(insert_id for request in requested(server) for insert_id in request)
    assert dict(box.log.rows("SELECT insert_id::text, attempts FROM onlyonce.outbox")) == asked
    assert box.log.multiset("SELECT state, unanswered, uncertain FROM onlyonce.outbox") == Counter(
        {("delivered", 0, False): 10}
    )


@pytest.mark.parametrize("status, reason", [(404, "notFound"), (403, "accessDenied")])
def test_a_missing_table_or_right_kills_no_row(
    box: Outbox, monkeypatch: pytest.MonkeyPatch, status: int, reason: str
) -> None:
    """It is refused by name, and the rows wait."""
    put(box, sales(10))
    with (
        BigQueryServer(lambda _number, _request: quota(status, reason)) as server,
        pytest.raises(Refused, match=reason),
    ):
        send(box, server, monkeypatch, attempts=1)

    assert box.log.multiset("SELECT state, attempts FROM onlyonce.outbox") == Counter({("waiting", 0): 10})


@pytest.mark.parametrize("proxied", [False, True])
def test_a_server_that_is_away_costs_no_attempt(box: Outbox, monkeypatch: pytest.MonkeyPatch, proxied: bool) -> None:
    """Nobody took the connection, or a proxy refused it: nothing is uncertain."""
    put(box, sales(3))
    server = "https://bigquery.invalid" if proxied else f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", server)
    with Endpoint() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(Retryable, match="can't be reached"):
            box.deliver(BigQuery(table="p.d.t", attempts=1))

    assert box.log.multiset("SELECT state, attempts, unanswered FROM onlyonce.outbox") == Counter(
        {("waiting", 0, 0): 3}
    )


@pytest.mark.parametrize("forgets", [False, True])
def test_a_kill_between_request_and_record_is_known(
    box: Outbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, forgets: bool
) -> None:
    """The next deliverer finds the attempts in the log, sends them again under their ids, and marks what may be there
    twice: nothing, while the server remembers for as long as it is declared to."""
    rows = sales(40)
    put(box, rows)
    with BigQueryServer() as server:
        killed, output = run_process(box.log, server.url, tmp_path, "deliver-before-record")
        assert killed == -9, output
        if forgets:
            server.forget()
        send(box, server, monkeypatch, remembers=timedelta(0) if forgets else AGES)

    assert server.ids() - ids(rows) == Counter(ids(rows) if forgets else {})
    assert box.ids("uncertain") == (set(ids(rows)) if forgets else set())
    assert box.log.multiset("SELECT state, unanswered FROM onlyonce.outbox") == Counter({("delivered", 1): 40})
