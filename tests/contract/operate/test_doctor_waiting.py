"""What waits and nobody comes for is found by the doctor, each with its way out, and not as long as somebody may still
come.

On the real PostgreSQL. Each state is brought about by the product's own functions; only the time that has passed is put
into the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from onlyonce import settings
from onlyonce.commitlog import outbox
from onlyonce.commitlog.drivers import LongRuns
from onlyonce.commitlog.sources import Subscriptions
from onlyonce.database.statements import make_home
from onlyonce.operate import doctor
from onlyonce.sinks.files import finalize
from onlyonce.sinks.outbox import deliver
from tests.contract.conftest import Log
from tests.contract.outboxes import Outbox, ids, sales
from tests.contract.shards import Shards, wanted
from tests.contract.shards import sales as lines
from tests.contract.shop import SHOP, Shop, shop
from tests.support.endpoints import OK, Endpoint, Reply, Request

__all__ = ["shop"]
Finding = dict[str, Any]
WAITING = (
    "lost long run", "files without final names", "dead letters", "rejected rows", "undelivered rows", "held catalog",
)  # fmt: skip
LONG = timedelta(minutes=10)
SUBSCRIPTION = "projects/p/subscriptions/s"


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing moves between the two looks of a test; its log lines go to no stream that ends with the test."""
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    yield
    structlog.reset_defaults()


@pytest.fixture
def platform(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Log:
    """A log with its folder; no driver has written there."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", SHOP)
    return log


@pytest.fixture
def endpoint(platform: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """The address of the webhook of tests/support/sending.py."""
    with Endpoint(lambda _number, _request: OK) as server:
        monkeypatch.setenv("TEST_ENDPOINT", server.url)
        monkeypatch.setenv("ONLYONCE_PIPELINES", str(settings.ROOT / "tests/support/sending.py"))
        yield server


def waits(*arguments: str, grace: float = 0) -> list[Finding]:
    """The findings about what waits, where a driver without a session is dead at once."""
    found = doctor.main([f"--grace={grace}", *arguments]).tables["findings"]
    return [one for one in found if one["finding"] in WAITING]


def only(found: list[Finding]) -> Finding:
    """The one finding, explained in full."""
    assert len(found) == 1, found
    assert all(found[0][part] for part in ("where", "what", "data", "repair"))
    return found[0]


# --- a long run -------------------------------------------------------------------------------------


def take(shop: Shop, driver: str, beat: timedelta) -> None:
    """A driver of a long run."""
    LongRuns(shop.log.database).take("shop", "run", driver, every=timedelta(seconds=5), beat=beat)


def test_a_lost_long_run_is_found_until_it_is_started_again_or_asked_to_stop(shop: Shop) -> None:
    """Not while it is alive, while another driver has a session, or in the grace time."""
    shop.die()
    take(shop, "m:1:a", LONG)
    alive = waits()
    shop.log.rows("UPDATE onlyonce_private.long_runs SET heartbeat_at = heartbeat_at - interval '3 h'")
    found = only(waits())
    in_grace = waits(grace=300)
    shop.work()
    beside_a_driver = waits()
    shop.die()
    take(shop, "m:2:b", LONG)
    started_again = waits()
    shop.log.rows("UPDATE onlyonce_private.long_runs SET heartbeat_at = heartbeat_at - interval '3 h'")
    lost_again = waits()
    LongRuns(shop.log.database).ask_stop("shop")

    assert (found["finding"], found["where"], found["fix"]) == ("lost long run", "shop", "no")
    assert "attempt 1 on m:1:a ended 3:00:0" in found["what"]
    assert found["repair"].startswith("onlyonce run shop --continuous")
    assert "onlyonce stop shop --shell" in found["repair"]
    assert (alive, in_grace, beside_a_driver, started_again) == ([], [], [], [])
    assert "attempt 2 on m:2:b" in only(lost_again)["what"]
    assert waits() == []


# --- files ------------------------------------------------------------------------------------------


def test_files_that_wait_for_their_final_names_get_them_by_fix(platform: Log) -> None:
    """After an hour from the commit of their batch, however long ago the unit was; then the reader has all rows."""
    shards, rows = Shards(platform, platform.start("shop", "sales")), lines(5)
    shards.begin()
    for partition in range(2):
        shards.task(0, partition, rows)
    platform.rows("UPDATE onlyonce_private.files SET recorded_at = recorded_at - interval '2 h'")
    begun = waits()
    shards.end()
    fresh = waits()
    platform.rows("UPDATE onlyonce_private.batches SET committed_at = committed_at - interval '2 h'")

    found = only(waits())
    after = waits("--fix")

    assert (found["finding"], found["where"], found["fix"]) == ("files without final names", "shop/sales", "yes")
    assert found["repair"] == "onlyonce finalize shop"
    assert found["what"].startswith(
        "4 file(s) of shop/sales in shop/sales wait for their final names, the first for 2:00:0"
    )
    assert (begun, fresh, after) == ([], [], [])
    assert shards.lines() == wanted(*rows)
    assert finalize.main([]).facts == {"files": 0}


# --- the outbox -------------------------------------------------------------------------------------

OLD = "UPDATE onlyonce_private.outbox SET committed_at = committed_at - interval '2 h'"


def test_rows_that_nobody_delivers_are_sent_with_yes_alone(platform: Log, endpoint: Endpoint) -> None:
    """Sending can't be withdrawn. A row whose deliverer died between request and record waits like the others."""
    box, rows = Outbox(platform), sales(4)
    box.put(rows)
    fresh = waits()
    platform.rows(OLD)
    died = "state = 'sending', attempts = 1, begun_at = clock_timestamp() - interval '90 min'"
    platform.rows(f"UPDATE onlyonce_private.outbox SET {died} WHERE seq = 0")

    found = only(waits("--fix"))
    before = list(endpoint.requests)
    after = waits("--fix", "--yes")

    assert (found["finding"], found["where"], found["fix"]) == ("undelivered rows", "shop/notify", "with --yes")
    assert found["repair"] == "onlyonce deliver shop"
    assert found["what"].startswith("4 row(s) of shop/notify wait in the outbox")
    assert "for 1:30:0" in found["what"]
    assert (fresh, before, after) == ([], [], [])
    assert endpoint.ids() == ids(rows)


def test_rows_that_somebody_delivers_are_no_finding(platform: Log, endpoint: Endpoint) -> None:
    """A deliverer holds the lock of this output, not of another; an attempt was made within the hour; or they are of a
    bounded run, which wait until it is named."""
    box = Outbox(platform)
    box.put(sales(4))
    platform.rows(OLD)
    with outbox.alone(platform.database, outbox.Deliverer("shop", "notify")) as ours:
        at_work = waits()
    with outbox.alone(platform.database, outbox.Deliverer("shop", "rows")):
        elsewhere = waits()
    endpoint.script = lambda _number, _request: Reply(429, effect=False, headers={"Retry-After": "900"})
    deliver.main(["shop"])
    tried = waits()
    platform.start("shop@1", "notify")
    platform.rows("UPDATE onlyonce_private.outbox SET instance = 'shop@1', due_at = NULL, begun_at = NULL")
    platform.rows("UPDATE onlyonce_private.outbox SET answer = NULL, answered_at = NULL")

    assert ours
    assert (at_work, tried, waits()) == ([], [], [])
    assert only(elsewhere)["where"] == "shop/notify"
    assert box.states() == {("waiting",): 4}


def test_dead_letters_are_for_a_person_with_their_last_answer(platform: Log, endpoint: Endpoint) -> None:
    """`--fix --yes` sends none again; the command that is named does, and then nothing is found."""
    box, rows = Outbox(platform), sales(6)
    box.put(rows)

    def script(_number: int, request: Request) -> Reply:
        bad = request.body["n"] in (1, 4)
        return Reply(422, effect=False, body=f"no customer {request.body['id']}") if bad else OK

    endpoint.script = script
    deliver.main(["shop"])
    [(last,)] = platform.rows(
        "SELECT answer FROM onlyonce.outbox WHERE state = 'dead' ORDER BY answered_at DESC, seq DESC LIMIT 1"
    )
    sent = len(endpoint.requests)

    found = only(waits("--fix", "--yes"))
    untouched = len(endpoint.requests)
    endpoint.script = lambda _number, _request: OK
    deliver.main(found["repair"].partition("onlyonce deliver ")[2].split())

    assert (found["finding"], found["where"], found["fix"]) == ("dead letters", "shop/notify", "no")
    assert found["what"].startswith("the outbox has 2 dead letter(s)")
    assert found["what"].endswith(last)
    assert found["repair"].endswith("onlyonce deliver shop --output notify --retry-dead")
    assert untouched == sent
    assert endpoint.ids() == ids(rows)
    assert waits() == []


def test_rejected_rows_are_told_apart_from_dead_letters(platform: Log, endpoint: Endpoint) -> None:
    """By output and state, each with its own count, its last answer, and how many may have arrived."""
    for output, number in (("notify", 3), ("rows", 2)):
        Outbox(platform, output).put(sales(number))
    platform.rows(
        "UPDATE onlyonce_private.outbox SET state = CASE WHEN output = 'rows' OR seq = 0 THEN 'invalid' ELSE "
        "'dead' END, "
        "answer = output || ' ' || seq, answered_at = clock_timestamp() + make_interval(secs => seq), "
        "unanswered = (seq = 2)::int, first_unanswered_at = CASE WHEN seq = 2 THEN now() END"
    )

    found = {(one["finding"], one["where"]): one for one in waits()}

    assert {key: one["what"].rpartition(": ")[2] for key, one in found.items()} == {
        ("dead letters", "shop/notify"): "notify 2",
        ("rejected rows", "shop/notify"): "notify 0",
        ("rejected rows", "shop/rows"): "rows 1",
    }
    assert [("may be there" in one["data"]) for one in found.values()] == [True, False, False]
    assert found["rejected rows", "shop/rows"]["what"].startswith("the outbox has 2 row(s)")


# --- Pub/Sub ----------------------------------------------------------------------------------------


def test_unacknowledged_messages_are_found_after_a_day_until_they_lapse_or_are_acknowledged(platform: Log) -> None:
    """With the moment at which they end by themselves; those that are acknowledged do not count."""
    day_old = "UPDATE onlyonce_private.unacknowledged SET pulled_at = pulled_at - interval '25 h'"
    platform.start()
    Subscriptions(platform.database).register(SUBSCRIPTION, "shop")
    note(platform, "a.jsonl", "1", "2", "3")
    fresh = waits()
    platform.rows(day_old)
    Subscriptions(platform.database).settle(SUBSCRIPTION, ["1"])
    found = only(waits())
    [(lapses_at,)] = platform.rows("SELECT lapses_at FROM onlyonce_private.unacknowledged")
    platform.rows("UPDATE onlyonce_private.unacknowledged SET lapses_at = now()")
    lapsed = waits()
    note(platform, "b.jsonl", "4")
    platform.rows(day_old)
    again = waits()
    Subscriptions(platform.database).settle(SUBSCRIPTION, ["4"])

    assert (found["finding"], found["where"], found["fix"]) == ("held catalog", SUBSCRIPTION, "no")
    assert found["what"].startswith(f"2 pulled message(s) of {SUBSCRIPTION}")
    assert "1 day, 1:00:0" in found["what"]
    assert found["repair"].startswith("onlyonce pull shop ")
    assert f"{lapses_at.astimezone(tz=UTC):%Y-%m-%dT%H:%M:%SZ}" in found["repair"]
    assert only(again)["what"].startswith("1 pulled message(s)")
    assert (fresh, lapsed, waits()) == ([], [], [])


def note(platform: Log, path: str, *message_ids: str) -> None:
    """As a pull run does before it puts a file into the inbox."""
    week = timedelta(days=7)
    Subscriptions(platform.database).note(path, SUBSCRIPTION, "shop", 7, list(message_ids), week)
