"""What is wrong is told once until it clears, by function or webhook; a hook that fails is tried again.

A real PostgreSQL.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from onlyonce import failed_runs
from onlyonce.cli import app
from onlyonce.core.errors import Refused, Retryable
from onlyonce.operate import alerts
from tests.contract.shop import Shop, at, shop

__all__ = ["shop"]
Message = dict[str, str]
NO_LAG = ["--lag-minutes=99999999"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """What a hook of the user's own was given."""
    messages: list[Message] = []
    monkeypatch.setitem(sys.modules, "my_hooks", SimpleNamespace(tell=messages.append, fail=fail))
    monkeypatch.setenv("ONLYONCE_ALERT_HOOK", "my_hooks:tell")
    return messages


def fail(message: Message) -> None:
    """A hook that is broken."""
    raise OSError("the pager is out of paper")


def kinds(messages: list[Message]) -> list[tuple[str, str]]:
    """What was told, in order."""
    return [(message["kind"], message["subject"]) for message in messages]


def break_conservation(shop: Shop, by: int) -> None:
    """As if a unit had another count than its batch."""
    shop.log.rows(
        "UPDATE onlyonce_private.units SET kept = kept + %s WHERE unique_id = 'shop/receive/1/0/events/0'", by
    )


def wait(shop: Shop, minutes: int) -> None:
    """As if all input had been first seen so long ago."""
    shop.log.rows(
        f"UPDATE onlyonce_private.batches SET ingestion_time = clock_timestamp() - interval '{minutes} minutes'"
    )


def quiet(shop: Shop) -> None:
    """One batch that all outputs have read."""
    shop.receive(("a", at(0)), ("b", at(1)))
    shop.output()
    shop.output("balance")
    # The fixture's outputs count no pairs; the audit would say so.
    shop.log.rows("UPDATE onlyonce_private.incarnations SET ordinal = 2 WHERE query <> 'receive'")


def test_a_healthy_platform_tells_nobody(shop: Shop, told: list[Message]) -> None:
    """Nothing is raised and no hook is called."""
    quiet(shop)

    report = alerts.main([])

    assert (report.title, report.tables["alerts"], told) == ("alerts: none", [], [])


def test_broken_conservation_is_told_once_until_it_clears(shop: Shop, told: list[Message]) -> None:
    """Again when it comes back; the text says what happened, what it means and what to do."""
    quiet(shop)
    break_conservation(shop, 1)
    alerts.main([])
    alerts.main([])
    assert kinds(told) == [("conservation", "shop/receive/1")]
    what, data, hint = told[0]["text"].splitlines()
    assert "shop/receive/1/0 does not add up" in what
    assert data.startswith("  data: ")
    assert hint.startswith("  next: onlyonce audit")

    break_conservation(shop, -1)
    assert [row["subject"] for row in alerts.main([]).tables["cleared"]] == ["shop/receive/1"]
    break_conservation(shop, 1)
    alerts.main([])

    assert kinds(told) == [("conservation", "shop/receive/1")] * 2


def test_lag_over_the_bound_is_told_by_stage(shop: Shop, told: list[Message]) -> None:
    """At the bound it is not; another stage of the same pipeline is another cause."""
    quiet(shop)
    shop.receive(("c", at(2)))
    shop.output()
    wait(shop, 90)

    alerts.main(["--lag-minutes=100"])
    assert told == []
    alerts.main(["--lag-minutes=60"])
    alerts.main(["--lag-minutes=60"])

    assert kinds(told) == [("lag", "shop/balance")]
    assert "90 min (bound: 60 min), 1 batches" in told[0]["what"]


def test_a_batch_without_progress_is_told_while_its_driver_is_at_work(shop: Shop, told: list[Message]) -> None:
    """Its heartbeat does not show that it hangs. Its bound is an hour, since there is no earlier batch to compare."""
    name = shop.receive(("a", at(0)), upto="begin")
    shop.work()
    # No session is as old as the test needs, so the session that there is becomes that of another epoch.
    shop.log.rows("UPDATE onlyonce_private.epochs SET epoch = epoch + 1")
    alerts.main(NO_LAG)
    assert told == []
    for table, column in (("incarnations", "started_at"), ("batches", "begun_at")):
        shop.log.rows(f"UPDATE onlyonce_private.{table} SET {column} = {column} - interval '61 minutes'")

    alerts.main(NO_LAG)
    alerts.main(NO_LAG)

    assert kinds(told) == [("no progress", name)]


def test_duplicates_near_the_horizon_are_told(shop: Shop, told: list[Message]) -> None:
    """With what to lengthen."""
    quiet(shop)
    shop.log.rows(
        "UPDATE onlyonce_private.units SET near_horizon = 3, duplicate = 3 WHERE unique_id = "
        "'shop/receive/1/0/events/0'"
    )
    shop.log.rows(
        "UPDATE onlyonce_private.batches SET duplicate = 3, read = read + 3 WHERE incarnation = 'shop/receive/1'"
    )

    alerts.main([])

    assert kinds(told) == [("near horizon", "shop")]
    assert "dedup_horizon" in told[0]["next"]


def test_a_hook_that_fails_is_tried_again_and_stops_no_other(
    shop: Shop, told: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look fails so that somebody sees it; what was told is not told again."""
    quiet(shop)
    break_conservation(shop, 1)
    monkeypatch.setenv("ONLYONCE_ALERT_HOOK", "my_hooks:fail")
    with pytest.raises(Retryable, match=r"failed for 1 of 1 alert.*out of paper"):
        alerts.main([])

    monkeypatch.setenv("ONLYONCE_ALERT_HOOK", "my_hooks:tell")
    alerts.main([])
    alerts.main([])

    assert kinds(told) == [("conservation", "shop/receive/1")]


def test_a_kill_between_hook_and_note_tells_twice_and_loses_none(
    shop: Shop, told: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once: an alert that is noted and was not told would be worse."""
    quiet(shop)
    break_conservation(shop, 1)

    def killed(point: str) -> None:
        assert point == "alerts-after-hook"
        raise KeyboardInterrupt(point)

    with monkeypatch.context() as patch:
        patch.setattr(alerts, "passing", killed)
        with pytest.raises(KeyboardInterrupt):
            alerts.main([])
    alerts.main([])
    alerts.main([])

    assert kinds(told) == [("conservation", "shop/receive/1")] * 2


class Webhook(ThreadingHTTPServer):
    """Takes messages."""

    got: list[Any]
    answer: int


class _Post(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.answer)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """It listens until the test ends; its URL has a secret."""
    server = Webhook(("127.0.0.1", 0), _Post)
    server.got, server.answer = [], 200
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("ONLYONCE_ALERT_HOOK", f"http://127.0.0.1:{server.server_address[1]}/secret")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_gets_json_and_its_secret_is_told_to_nobody(shop: Shop, webhook: Webhook) -> None:
    """An answer that is no success is a failure of the hook."""
    quiet(shop)
    break_conservation(shop, 1)
    webhook.answer = 500
    with pytest.raises(Retryable) as failed:
        alerts.main([])
    assert "answered 500" in str(failed.value)
    assert "secret" not in str(failed.value)

    webhook.answer = 200
    result = CliRunner().invoke(app, ["alerts", "--json"])

    assert result.exit_code == 1
    assert [got["subject"] for got in webhook.got] == ["shop/receive/1"] * 2
    assert set(webhook.got[0]) == {"kind", "subject", "what", "data", "next", "text"}
    [shown] = json.loads(result.stdout)["tables"]["alerts"]
    assert shown["told_at"] is not None


@pytest.mark.parametrize("named", ["my_hooks:none", "nowhere:tell", "tell", ":"])
def test_a_hook_that_is_not_there_is_refused(named: str, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is looked at: somebody believes that they will be told."""
    monkeypatch.setenv("ONLYONCE_ALERT_HOOK", named)

    with pytest.raises(Refused, match=r"module:function|does not exist"):
        alerts.main([])


def test_failed_run_is_an_alert_until_a_run_ends_well(shop: Shop, told: list[Message]) -> None:
    """Without its error, which may have values of a record."""
    with pytest.raises(ZeroDivisionError), failed_runs.remembered("run", "shop"):
        raise ZeroDivisionError("u17")

    alerts.main(NO_LAG)
    [message] = told
    assert (message["kind"], message["subject"]) == ("failed run", "shop")
    assert message["what"] == "the last run of shop failed (onlyonce run shop, exit code 1)"
    with failed_runs.remembered("run", "shop"):
        pass
    assert [one["kind"] for one in alerts.main(NO_LAG).tables["cleared"]] == ["failed run"]
