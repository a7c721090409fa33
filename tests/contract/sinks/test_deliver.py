"""Webhooks: rows of the outbox reach an endpoint that misbehaves, once for each key, in order, whatever is killed."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from docs.generate import specification
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Output, Webhook
from onlyonce.commitlog import outbox
from onlyonce.commitlog.outbox import OutboxRows
from onlyonce.commitlog.removals import Retention
from onlyonce.core.errors import CommitStateUnknown, InvariantBroken, OnlyonceError, Refused, Retryable, Superseded
from onlyonce.database.connect import Database
from onlyonce.database.statements import make_home
from onlyonce.run import stream
from onlyonce.sinks.outbox import deliver
from tests.contract.conftest import Log
from tests.contract.outboxes import Outbox, Row, ids, run_process, sales
from tests.support.endpoints import DROPPED, LOST, OK, TWICE, Endpoint, Reply, Request
from tests.support.platform import free_port

POINTS = [point for point in specification.points("deliver-") if "unit" not in point]


@pytest.fixture
def box(log: Log) -> Outbox:
    """The outbox of a webhook."""
    return Outbox(log)


def hook(endpoint: Endpoint, **options: Any) -> Webhook:
    """A webhook that does not wait long."""
    plain: dict[str, Any] = {"pause": timedelta(milliseconds=5), "timeout": timedelta(seconds=20), "keys": ("shop",)}
    return Webhook(url=f"{endpoint.url}/mail", **plain | options)


def in_order(bodies: list[Row]) -> bool:
    """Whether the first effects of each shop are in the order of its rows."""
    by_shop: dict[str, list[int]] = {}
    for body in bodies:
        numbers = by_shop.setdefault(body["shop"], [])
        if body["n"] not in numbers:
            numbers.append(body["n"])
    return all(numbers == sorted(numbers) for numbers in by_shop.values())


def test_each_row_is_sent_once_in_order_under_a_key_of_its_own(box: Outbox) -> None:
    """Over several units; the body is the payload as it was committed, and the key is of unit, row and incarnation."""
    rows = sales(60)
    for part in range(3):
        box.put(rows[20 * part : 20 * part + 20])
    with Endpoint() as endpoint:
        assert box.deliver(hook(endpoint))
        assert box.deliver(hook(endpoint))

    assert endpoint.ids() == ids(rows)
    assert in_order(endpoint.effects)
    assert len({request.key for request in endpoint.requests}) == len(endpoint.requests) == 60
    known = box.log.multiset("SELECT idempotency_key FROM onlyonce.outbox WHERE state = 'delivered' AND attempts = 1")
    assert known == Counter((request.key,) for request in endpoint.requests)
    assert all(request.key.startswith("shop/notify/1/") for request in endpoint.requests)


@pytest.mark.parametrize("seed", range(3))
def test_a_misbehaving_endpoint_that_honours_the_key_has_each_row_once(box: Outbox, seed: int) -> None:
    """It drops answers and requests, handles some twice, and answers 429, 500, 502 and 503: nothing is lost or doubled,
    and each shop's rows are in order."""
    chance, rows = random.Random(seed), sales(60, shops=4)
    box.put(rows[:30])
    box.put(rows[30:])
    kinds = [
        DROPPED,
        LOST,
        TWICE,
        *(Reply(status, effect=chance.random() < 0.5) for status in (500, 502, 503)),
        Reply(429, effect=False),
    ]

    def script(_number: int, _request: Request) -> Reply:
        return chance.choice(kinds) if chance.random() < 0.4 else OK

    with Endpoint(script) as endpoint:
        box.deliver(hook(endpoint, attempts=100))

    assert endpoint.ids() == ids(rows)
    assert in_order(endpoint.effects)
    assert box.states() == Counter({("delivered",): 60})


def test_an_endpoint_that_ignores_the_key_has_a_row_again_only_where_an_answer_was_lost(box: Outbox) -> None:
    """What it may have twice is marked in the log: the row, and its unit in `commits`; a known answer is final."""
    rows = sales(30)
    units = [box.put(rows[:20]), box.put(rows[20:])]
    unlucky = {"s0003", "s0009"}
    tried: Counter[str] = Counter()

    def script(_number: int, request: Request) -> Reply:
        tried[request.body["id"]] += 1
        return DROPPED if request.body["id"] in unlucky and tried[request.body["id"]] == 1 else OK

    with Endpoint(script, honours=False) as endpoint:
        box.deliver(hook(endpoint))

    assert endpoint.ids() - ids(rows) == Counter(unlucky)
    assert box.ids("uncertain") == box.ids("unanswered = 1") == unlucky
    assert box.log.multiset("SELECT unique_id, uncertain FROM onlyonce.commits") == Counter(
        [(units[0], 2), (units[1], 0)]
    )


def test_a_resend_while_the_endpoint_remembers_is_not_uncertain(box: Outbox) -> None:
    """Where the declaration says how long it knows a key, only what is sent again later is marked."""
    box.put(sales(2, shops=1))

    def script(number: int, _request: Request) -> Reply:
        return DROPPED if number == 0 else OK

    with Endpoint(script) as endpoint:
        box.deliver(hook(endpoint, remembers=timedelta(hours=24)))

    assert box.log.multiset("SELECT unanswered, uncertain FROM onlyonce.outbox") == Counter([(1, False), (0, False)])


def test_a_refusal_is_a_dead_letter_at_once_and_the_way_out_sends_it(box: Outbox) -> None:
    """The rows behind it go on; sent again when the cause is gone, under the same key."""
    rows = sales(9)
    box.put(rows)
    cured: list[bool] = []

    def script(_number: int, request: Request) -> Reply:
        bad = request.body["id"] == "s0004" and not cured
        return Reply(422, effect=False, body="no such\0 customer") if bad else OK

    with Endpoint(script) as endpoint:
        box.deliver(hook(endpoint))
        assert endpoint.ids() == ids(rows) - Counter(["s0004"])
        assert box.ids("state = 'dead' AND attempts = 1 AND answer LIKE '422 %%no such%% customer%%'") == {"s0004"}
        box.deliver(hook(endpoint))
        assert len(endpoint.requests) == 9
        cured.append(True)
        OutboxRows(box.log.database).retry_dead("shop", ["notify"])
        box.deliver(hook(endpoint))

    assert endpoint.ids() == ids(rows)
    assert len({request.key for request in endpoint.requests if request.body["id"] == "s0004"}) == 1


def test_retries_are_bounded(box: Outbox) -> None:
    """A row that never gets a good answer is sent `attempts` times, then it is a dead letter; others are not held
    up."""
    rows = sales(6)
    box.put(rows)

    def script(_number: int, request: Request) -> Reply:
        return Reply(500, effect=False) if request.body["id"] == "s0001" else OK

    with Endpoint(script) as endpoint:
        box.deliver(hook(endpoint, attempts=3))

    sent = Counter(request.body["id"] for request in endpoint.requests)
    assert sent == ids(rows) + Counter({"s0001": 2})
    assert in_order([request.body for request in endpoint.requests])
    assert box.ids("state = 'dead' AND attempts = 3") == {"s0001"}


def test_a_pause_that_the_endpoint_asks_for_is_kept(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry-After holds all rows: a long one is for the next time, a short one is waited for."""
    box.put(sales(3, shops=1))

    def script(number: int, _request: Request) -> Reply:
        return Reply(429, effect=False, headers={"Retry-After": "900"} if number == 0 else {}) if number < 2 else OK

    with Endpoint(script) as endpoint:
        box.deliver(hook(endpoint))
        assert len(endpoint.requests) == 1
        box.deliver(hook(endpoint))
        assert len(endpoint.requests) == 1
        [(due,)] = box.log.rows(
            "SELECT extract(epoch FROM due_at - answered_at)::int FROM onlyonce.outbox WHERE attempts > 0"
        )
        box.log.rows("UPDATE onlyonce_private.outbox SET due_at = clock_timestamp() WHERE due_at IS NOT NULL")
        box.deliver(hook(endpoint))

    assert due == 900
    assert endpoint.ids() == ids(sales(3, shops=1))


@pytest.mark.parametrize("status", [401, 404, 302])
def test_an_endpoint_that_refuses_whoever_asks_kills_no_row(box: Outbox, status: int) -> None:
    """A wrong address or password is a refusal of the delivery: no attempt is counted, and the rows wait."""
    rows = sales(5)
    box.put(rows)
    with Endpoint(lambda _number, _request: Reply(status, effect=False)) as endpoint:
        with pytest.raises(Refused, match=str(status)):
            box.deliver(hook(endpoint, attempts=1))
        assert box.log.multiset("SELECT state, attempts, unanswered FROM onlyonce.outbox") == Counter(
            {("waiting", 0, 0): 5}
        )
        endpoint.script = lambda _number, _request: OK
        box.deliver(hook(endpoint, attempts=1))

    assert endpoint.ids() == ids(rows)


def test_an_endpoint_that_is_away_costs_no_attempt(box: Outbox) -> None:
    """Nothing was sent for certain: the same command later."""
    box.put(sales(2))
    sink = Webhook(url=f"http://127.0.0.1:{free_port()}", attempts=1)
    with pytest.raises(Retryable, match="can't be reached"):
        box.deliver(sink)

    assert box.log.multiset("SELECT state, attempts, unanswered FROM onlyonce.outbox") == Counter(
        {("waiting", 0, 0): 2}
    )


def test_a_proxy_that_refuses_the_connection_costs_no_attempt(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has reached the target, so the rows wait."""
    box.put(sales(2))
    with Endpoint() as proxy:  # it answers POST, and refuses CONNECT
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(Retryable, match="can't be reached: ProxyError"):
            box.deliver(Webhook(url="https://shop.invalid/mail", attempts=1))

    assert box.log.multiset("SELECT state, attempts, unanswered FROM onlyonce.outbox") == Counter(
        {("waiting", 0, 0): 2}
    )


def test_an_attempt_is_in_the_log_before_it_is_made(box: Outbox) -> None:
    """When the request arrives, the row says so already: a crash can't hide an attempt."""
    box.put(sales(4))
    seen: list[Any] = []

    def script(_number: int, request: Request) -> Reply:
        seen.extend(box.log.rows("SELECT state, attempts FROM onlyonce.outbox WHERE idempotency_key = %s", request.key))
        return OK

    with Endpoint(script) as endpoint:
        box.deliver(hook(endpoint))

    assert Counter(seen) == Counter({("sending", 1): 4})


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_does_not_show(box: Outbox, tmp_path: Path, point: str) -> None:
    """SIGKILL at each point, then the same again: by its keys the endpoint has each row once, and in order; what came
    to it twice under one key are rows that the log marks."""
    rows = sales(24)
    box.put(rows)
    with Endpoint(honours=False) as endpoint:
        killed, output = run_process(box.log, endpoint.url, tmp_path, point, nth=2)
        assert killed == -9, output
        box.deliver(hook(endpoint))

    by_key = {request.key: request.body["id"] for request in endpoint.requests}
    assert Counter(by_key.values()) == ids(rows)
    assert endpoint.ids() - ids(rows) == Counter(box.ids("uncertain") & set((endpoint.ids() - ids(rows)).elements()))
    assert in_order(endpoint.effects)
    assert box.states() == Counter({("delivered",): 24})
    assert bool(endpoint.ids() - ids(rows)) == (point in ("deliver-after-send", "deliver-before-record"))


def test_of_two_deliverers_at_once_one_leaves(box: Outbox) -> None:
    """While one waits for an answer, another finds the output taken, and sends nothing."""
    rows, go = sales(12), threading.Event()
    box.put(rows)
    found: list[bool] = []
    with Endpoint(lambda number, _request: Reply(wait=go) if number == 0 else OK, honours=False) as endpoint:
        first = threading.Thread(target=lambda: found.append(box.deliver(hook(endpoint))))
        first.start()
        assert endpoint.came.wait(60)
        assert box.deliver(hook(endpoint)) is False
        go.set()
        first.join(60)

    assert found == [True]
    assert endpoint.ids() == ids(rows)
    assert in_order(endpoint.effects)


def test_a_deliverer_that_lost_its_lock_stops_at_its_next_statement(box: Outbox) -> None:
    """Its session with the lock ends, another takes over and sends on; the first records and sends nothing more."""
    rows, go = sales(12, shops=1), threading.Event()
    box.put(rows)
    errors: list[BaseException] = []
    with Endpoint(lambda number, _request: Reply(wait=go) if number == 0 else OK) as endpoint:

        def work() -> None:
            try:
                box.deliver(hook(endpoint))
            except BaseException as error:
                errors.append(error)

        first = threading.Thread(target=work)
        first.start()
        assert endpoint.came.wait(60)
        box.log.rows(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = "
            "'onlyonce/shop/notify/deliver'"
        )
        box.deliver(hook(endpoint))
        go.set()
        first.join(60)

    assert [type(error) for error in errors] == [Superseded]
    assert endpoint.ids() == ids(rows)
    assert box.ids("unanswered = 1") == {"s0000"}


def test_rows_that_commit_late_keep_the_order_of_their_key(box: Outbox) -> None:
    """A pass that has gone by the place of a row sends nothing of its key until the next pass."""
    box.put([{"id": "other", "shop": "x", "n": 0}])
    late = psycopg2.connect(box.log.url.replace("+psycopg2", ""))
    copy = (
        "INSERT INTO onlyonce_private.outbox (instance, output, unit, seq, checkpoint_id, key, payload) "
        "VALUES ('shop', 'notify', 'late', 0, gen_random_uuid(), 'a', '{}')"
    )
    with late, late.cursor() as cursor:
        cursor.execute(copy)
        deliverer, _ = OutboxRows(box.log.database).take_over("shop", "notify", outbox.Policy(3, timedelta(0)))
        box.put([{"id": "between", "shop": "x", "n": 1}])
        seen = OutboxRows(box.log.database).next_rows(deliverer, 0, 10, ordered=True)
    late.close()
    box.put([{"id": "after", "shop": "a", "n": 2}])
    passed = OutboxRows(box.log.database).next_rows(deliverer, seen[-1][0].row_no, 10, ordered=True)
    again = OutboxRows(box.log.database).next_rows(deliverer, 0, 10, ordered=True)

    assert [(row.key, may) for row, may in seen] == [("x", True), ("x", True)]
    assert [(row.key, may) for row, may in passed] == [("a", False)]
    assert [(row.key, may) for row, may in again] == [("x", True), ("a", True), ("x", True), ("a", True)]


def test_two_statements_for_each_wave_and_none_for_a_row(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without a key go side by side; statements are counted by the waves that begin."""
    box.put(sales(100), key=None)
    waves: list[int] = []
    begin = OutboxRows.begin

    def counted(log: Any, deliverer: Any, rows: Any) -> set[int]:
        waves.append(len(rows))
        return begin(log, deliverer, rows)

    monkeypatch.setattr(OutboxRows, "begin", counted)
    with Endpoint() as endpoint:
        box.deliver(hook(endpoint, keys=(), at_once=8))

    assert waves == [32, 32, 32, 4]
    assert endpoint.ids() == ids(sales(100))


def test_rows_are_read_by_their_bytes_and_each_goes_once_in_order(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reading holds more payload than the bound, or one row; a row that is larger than the bound goes alone."""
    box.put(sales(30))
    [(most,)] = box.log.rows("SELECT max(octet_length(payload)) FROM onlyonce.outbox")
    read: list[int] = []
    next_rows = OutboxRows.next_rows

    def measured(*given: Any, **named: Any) -> Any:
        found = next_rows(*given, **named)
        read.append(sum(len(row.payload) for row, _ in found))
        return found

    monkeypatch.setattr(OutboxRows, "next_rows", measured)
    with Endpoint() as endpoint:
        for bound in (4 * most, 1):
            monkeypatch.setattr(outbox, "BYTES_AT_ONCE", bound)
            box.put(sales(30))
            box.deliver(hook(endpoint, keys=("shop",)))
            assert 0 < max(read) < bound + most
            read.clear()

    assert box.states() == Counter({("delivered",): 90})


@pytest.fixture
def declared(box: Outbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Endpoint]:
    """The declared pipeline with its endpoint, for the command."""
    with Endpoint() as endpoint:
        monkeypatch.setenv("ONLYONCE_DATABASE_URL", box.log.url)
        monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
        make_home()
        monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/sending.py")
        monkeypatch.setenv("TEST_ENDPOINT", endpoint.url)
        yield endpoint


def test_the_report_names_what_is_left_and_the_way_out(box: Outbox, declared: Endpoint) -> None:
    """Dead letters with their answer, and the command; lag shows what waits as a stage of its own."""
    rows = sales(3)
    box.put(rows)
    waiting = box.log.rows("SELECT stage, records_waiting FROM onlyonce.lag WHERE stage LIKE '%/deliver'")
    declared.script = lambda _number, request: Reply(400, effect=False) if request.body["n"] == 1 else OK

    report = deliver.main(["shop"])

    assert waiting == [("notify/deliver", 3)]
    assert report.facts == {"waiting": 0, "dead": 1, "invalid": 0}
    [letter] = report.tables["given up"]
    assert (letter["output"], letter["seq"], letter["state"]) == ("notify", 1, "dead")
    assert "--retry-dead" in report.warnings[0]
    declared.script = lambda _number, _request: OK
    assert deliver.main(["shop", "--retry-dead", "--output", "notify"]).warnings == []
    assert declared.ids() == ids(rows)
    assert box.log.rows("SELECT stage FROM onlyonce.lag WHERE stage LIKE '%/deliver'") == []


@pytest.mark.parametrize("kind", [InvariantBroken, Superseded, CommitStateUnknown])
def test_an_output_that_is_damaged_keeps_no_other_waiting(
    box: Outbox, declared: Endpoint, monkeypatch: pytest.MonkeyPatch, kind: type[OnlyonceError]
) -> None:
    """And the damage is reported first, also before a target that is away."""
    sent: list[str] = []

    def deliver_one(_database: Database, _instance: str, output: Output) -> bool:
        sent.append(output.name)
        raise Retryable("away") if output.name == "notify" else kind("damaged")

    monkeypatch.setattr(deliver, "deliver", deliver_one)
    with pytest.raises(kind if kind is InvariantBroken else Retryable):
        deliver.main(["shop"])

    assert sent == ["notify", "rows"]


def test_a_run_at_the_shell_says_which_rows_wait_and_what_sends_them(box: Outbox, declared: Endpoint) -> None:
    """Only as long as some wait, and only for a pipeline that sends."""
    shop = declarations.one("shop")
    assert stream._to_deliver(box.log.database, shop, "shop") == []
    box.put(sales(3))

    assert stream._to_deliver(box.log.database, shop, "shop") == [
        "rows that wait in the outbox: 3 of notify. `onlyonce deliver shop` sends them"
    ]
    deliver.main(["shop"])
    assert stream._to_deliver(box.log.database, shop, "shop") == []


def test_rows_of_a_bounded_run_are_sent_only_when_it_is_named(box: Outbox, declared: Endpoint) -> None:
    """It has computed what the stream has sent already."""
    rows = sales(2)
    box.put(rows)
    box.log.start("shop@1", "notify")
    box.log.rows("UPDATE onlyonce_private.outbox SET instance = 'shop@1'")
    deliver.main([])
    assert declared.requests == []

    deliver.main(["shop@1"])

    assert declared.ids() == ids(rows)


def test_delivered_rows_go_when_they_are_old_and_no_others(box: Outbox) -> None:
    """What waits, was given up, or may be at its target twice stays, however old."""
    box.put(sales(6))
    old = "committed_at = now() - interval '40 days', answered_at = now() - interval '31 days'"
    for seq, change in enumerate([
        f"state = 'delivered', attempts = 1, {old}", "state = 'delivered', attempts = 1, answered_at = now()", old,
        f"state = 'dead', {old}", "state = 'delivered', attempts = 2, unanswered = 1, first_unanswered_at = now(), uncertain = true, " f"{old}",
        f"state = 'delivered', attempts = 2, unanswered = 1, first_unanswered_at = now(), {old}",
    ]):  # fmt: skip
        box.log.rows(f"UPDATE onlyonce_private.outbox SET {change} WHERE seq = {seq}")

    gone = []
    for days in (32, 30, 30):
        gone.append(Retention(box.log.database).remove_delivered(days))

    assert gone == [0, 2, 0]
    assert box.log.multiset("SELECT seq FROM onlyonce.outbox") == Counter([(1,), (2,), (3,), (4,)])


@pytest.mark.parametrize("pipeline", [["shop"], []])
def test_an_output_that_is_not_declared_is_refused_with_and_without_a_pipeline(
    box: Outbox, declared: Endpoint, pipeline: list[str]
) -> None:
    """Else a typing error would be taken for an outbox that is empty."""
    with pytest.raises(Refused, match="no output 'notfy'") as told:
        deliver.main([*pipeline, "--output", "notfy"])
    assert "notify" in told.value.hint


@pytest.mark.parametrize("value", ["", "example.org/mail", "https://", "https://example.org/a\nb"])
def test_a_setting_that_is_missing_or_no_address_is_refused_by_name(
    box: Outbox, declared: Endpoint, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """The rows wait; no attempt is counted, and no secret is told."""
    box.put(sales(1))
    monkeypatch.setenv("TEST_ENDPOINT", value)
    with pytest.raises(Refused, match="TEST_ENDPOINT"):
        deliver.main(["shop", "--output", "notify"])

    assert box.log.multiset("SELECT state, attempts FROM onlyonce.outbox") == Counter({("waiting", 0): 1})
