"""Answers of endpoints, judged; and what can be declared of a sink that sends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce.api.load import fingerprint
from onlyonce.api.outputs import what_to_do
from onlyonce.api.pipeline import BigQuery, Files, Output, Pipeline, Sent, Webhook
from onlyonce.core.delivery import LONGEST_ASKED_SECONDS, Answer, Row, asked_pause, judge, next_state, of_each
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOOK = Webhook(url="https://example.org/mail")
TABLE = BigQuery(table="my-project.sales.per_shop")


@pytest.mark.parametrize(
    "status, verdict, held",
    [
        (200, "delivered", ""), (204, "delivered", ""), (301, "not now", "wrong"), (400, "no", ""), (401, "not now", "wrong"),
        (403, "not now", "wrong"), (404, "not now", "wrong"), (408, "not now", ""), (409, "not now", ""), (410, "no", ""),
        (422, "no", ""), (429, "not now", ""), (500, "unknown", ""), (502, "unknown", ""), (503, "unknown", ""), (504, "unknown", ""),
    ],
)  # fmt: skip
def test_a_status_tells_whether_the_row_may_be_there(status: int, verdict: str, held: str) -> None:
    """A 5xx tells nothing, since the work may be done behind a proxy; what is no matter of the row holds the
    delivery."""
    answer = judge(status, "text", {}, NOW)

    assert (answer.verdict, answer.held) == (verdict, held)
    assert answer.may_be_there == (verdict in ("delivered", "unknown"))


@pytest.mark.parametrize("status", [200, 401, 422, 429, 500])
def test_the_answer_to_several_rows_is_that_of_each_unless_it_blames_one_of_them(status: int) -> None:
    """Which of them is meant nobody knows: each waits, and no attempt counts. Of one row it is meant."""
    answer = judge(status, "text", {}, NOW)
    states = {next_state(one, 3, 3) for one in of_each(answer, 5)}

    assert of_each(answer, 1) == [answer]
    assert states == ({"waiting"} if status == 422 else {next_state(answer, 3, 3)})
    assert {one.may_be_there for one in of_each(answer, 5)} == {answer.may_be_there}


@pytest.mark.parametrize("verdict", ["not now", "unknown"])
def test_attempts_are_bounded_and_a_held_one_is_none(verdict: Any) -> None:
    """The last attempt without a good answer makes a dead letter."""
    assert [next_state(Answer(verdict, ""), attempt, 3) for attempt in (1, 2, 3)] == ["waiting", "waiting", "dead"]
    assert next_state(Answer("not now", "", held="away"), 3, 3) == "waiting"


@pytest.mark.parametrize("verdict, state", [("delivered", "delivered"), ("no", "dead"), ("invalid", "invalid")])
def test_a_clear_answer_ends_a_row(verdict: Any, state: str) -> None:
    """At the first attempt as at the last."""
    assert {next_state(Answer(verdict, ""), attempt, 3) for attempt in (1, 3)} == {state}


@pytest.mark.parametrize(
    "header, seconds",
    [
        ("120", 120), ("Sun, 01 Mar 2026 12:01:30 GMT", 90), ("Sun, 01 Mar 2026 11:00:00 GMT", 0), ("-5", 0), ("", 0),
        ("soon", 0), ("nan", 0), ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0), ("inf", LONGEST_ASKED_SECONDS), ("99999999", LONGEST_ASKED_SECONDS),
    ],
)  # fmt: skip
def test_a_pause_is_asked_for_in_seconds_or_by_a_date(header: str, seconds: float) -> None:
    """Whatever an endpoint writes there, it is between none and an hour."""
    assert asked_pause(header, NOW) == seconds


def test_the_log_takes_any_answer() -> None:
    """One line, not too long, without the sign that PostgreSQL does not take."""
    text = judge(400, "a\0b\r\n  c" + "x" * 10_000, {}, NOW).text

    assert text.startswith("400 ab c")
    assert len(text) == 500


def test_a_key_is_of_unit_row_and_incarnation() -> None:
    """Two platforms, or two incarnations, with the same unit have other keys."""
    one, other = (Row(1, "shop/notify/1/0/notify/1", 7, checkpoint, None, "{}", "", 0) for checkpoint in ("a", "b"))

    assert one.idempotency_key == "shop/notify/1/0/notify/1/7@a"
    assert one.idempotency_key != other.idempotency_key


@pytest.mark.parametrize(
    "declare, what",
    [
        (lambda: Webhook(), "either url or connection"),
        (lambda: Webhook(url="https://a", connection="A"), "either url or connection"),
        (lambda: Webhook(url="ftp://a"), "not an http"),
        (lambda: Webhook(url="https://a", order_by=("at",)), "order_by without keys"),
        (lambda: Webhook(url="https://a", attempts=0), "attempts=0"),
        (lambda: Webhook(url="https://a", at_once=0), "at_once=0"),
        (lambda: Webhook(url="https://a", pause=timedelta(0)), "pause"),
        (lambda: Webhook(url="https://a", batch=0), "batch=0"),
        (lambda: Webhook(url="https://a", batch=1001), "batch=1001"),
        (lambda: BigQuery(table="dataset.table"), "dataset.table"),
        (lambda: BigQuery(table="p.d.t", remembers=timedelta(seconds=-1)), "remembers"),
        (lambda: output(HOOK, panes="early"), "early panes"),
        (lambda: output(TABLE, on_backfill="correct"), "corrected"),
        (lambda: pipeline(output(HOOK), mode="at_least_once"), "at_least_once"),
        (lambda: pipeline(output(TABLE), output(TABLE, name="other")), "two outputs write"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_a_reason(declare: Callable[[], Any], what: str) -> None:
    """When it is declared."""
    with pytest.raises(Refused, match=what):
        declare()


@pytest.mark.parametrize("sink", [HOOK, TABLE])
def test_a_backfill_of_what_was_sent_is_refused_unless_it_is_declared(sink: Sent) -> None:
    """Whatever its keys: it can't be withdrawn."""
    with pytest.raises(Refused, match="can't be withdrawn") as refusal:
        what_to_do(output(sink))

    assert "on_backfill='skip'" in refusal.value.hint
    assert "'resend'" in refusal.value.hint
    assert what_to_do(output(sink, on_backfill="skip")) == "skip"


@pytest.mark.parametrize("sink", [HOOK, TABLE])
def test_what_was_sent_is_sent_again_where_the_declaration_says_so(sink: Sent) -> None:
    """By the word of the declaration."""
    assert what_to_do(output(sink, on_backfill="resend")) == "resend"


def test_window_keys_make_a_webhook_no_table() -> None:
    """Its rows say their window, and still are out of reach."""
    with pytest.raises(Refused, match="can't be withdrawn"):
        what_to_do(output(Webhook(url="https://a", keys=("window_start", "window_end"))))


def test_how_rows_are_sent_may_change_under_a_begun_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address, its secret, pauses and attempts are in no fingerprint and in no target; the order of rows is."""
    monkeypatch.setattr("onlyonce.api.load.transform", lambda _: what_to_do)
    moved = Webhook(
        connection="MAIL", authorization="TOKEN", attempts=3, pause=timedelta(seconds=9), at_once=2, batch=50
    )
    before, after, ordered = (
        fingerprint(pipeline(output(sink)), "notify")
        for sink in (HOOK, moved, Webhook(url="https://a", keys=("shop",), order_by=("at",)))
    )

    assert before == after
    assert before != ordered
    assert HOOK.target("shop/notify") == moved.target("shop/notify") == "webhook:shop/notify"


def output(sink: Sent, name: str = "notify", **options: Any) -> Output:
    """An output that sends."""
    return Output(name=name, transform="a:b", sink=sink, window=Fixed(timedelta(hours=1)), **options)


def pipeline(*outputs: Output, **options: Any) -> Pipeline:
    """A pipeline of such outputs."""
    return Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at", outputs=outputs,
        **options,
    )  # fmt: skip
