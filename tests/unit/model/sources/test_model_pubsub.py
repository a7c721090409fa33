"""Pub/Sub without Pub/Sub: what a declaration refuses, what line a message becomes, how much a pull may ask for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onlyonce.api.pipeline import Delta, Output, Pipeline, PubSub
from onlyonce.api.sources import LARGEST_MESSAGE
from onlyonce.core.errors import Refused
from onlyonce.core.line_values import WHOLE_MESSAGE
from onlyonce.local.feed_messages import paced
from onlyonce.sources.pubsub_lines import Flow, Message, line

NAME = "projects/p/subscriptions/s"
BY_ID = PubSub(subscription=NAME)
BY_ORDER = PubSub(subscription=NAME, record_id_attribute="order")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def message(data: bytes, **attributes: str) -> Message:
    """A delivery."""
    return Message("ack", "17", attributes, data, len(data))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(), VALUES, max_size=5), st.sampled_from([None, 2]), st.booleans())
def test_an_object_keeps_its_fields_and_gets_the_id(fields: dict[str, Any], indent: int | None, escaped: bool) -> None:
    """On one line, however it was laid out; a field of the id's name comes before it, so that the id wins."""
    payload = json.dumps(fields, indent=indent, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    found = line(message(payload), BY_ID)
    if not found.startswith(WHOLE_MESSAGE):
        assert "\n" not in found
        assert json.loads(found, object_pairs_hook=list)[-1] == ("message_id", "17")
        assert json.loads(found) == fields | {"message_id": "17"}
    else:
        assert any("\ud800" <= sign <= "\udfff" for sign in str(fields)), "only half a surrogate pair is no UTF-8"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=50))
def test_any_bytes_become_one_line(data: bytes) -> None:
    """Nothing raises, and what is no object says so."""
    found = line(message(data), BY_ID)
    assert "\n" not in found
    assert found.startswith((WHOLE_MESSAGE, "{"))


@pytest.mark.parametrize("attributes", [{}, {"order": ""}, {"Order": "o1"}])
def test_without_its_attribute_a_message_has_no_id(attributes: dict[str, str]) -> None:
    """Neither the message id nor a field of the payload takes its place."""
    found = line(message(b'{"order": "stolen", "n": 1}', **attributes), BY_ORDER)
    assert json.loads(found) == {"order": None, "n": 1}


def test_a_field_of_the_id_is_taken_out_of_the_payload() -> None:
    """A line with a field twice is invalid. The other fields stay as they are written."""
    name = BY_ID.id_column
    found = line(message(f'{{"a": 1.10, "{name}": "x", "b": [1e0, "é"]}}'.encode()), BY_ID)
    assert found.count(f'"{name}"') == 1
    assert found.startswith('{"a":1.10,"b":[1e0,"é"],')


def test_the_id_is_the_attribute_that_is_named() -> None:
    """Also where the object is empty, begins with a byte order mark, or has numbers that Python would change."""
    assert line(message(b"{}", order='o"1'), BY_ORDER) == '{"order":"o\\"1"}'
    assert line(message(b"\xef\xbb\xbf { }", order="o1"), BY_ORDER) == '{"order":"o1"}'
    numbers = b'{"a":1.10,"b":1E400,"c":' + b"9" * 5000 + b"}"
    assert line(message(numbers, order="o1"), BY_ORDER) == numbers.decode()[:-1] + ',"order":"o1"}'


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.integers(1, LARGEST_MESSAGE), min_size=1, max_size=5), max_size=20))
def test_a_pull_asks_for_at_least_one_and_never_for_more_than_twice_as_many(answers: list[list[int]]) -> None:
    """And never for more than would fit by the largest that came last."""
    flow = Flow.of(BY_ID)
    assert flow.want * LARGEST_MESSAGE <= BY_ID.max_bytes
    for sizes in answers:
        after = flow.after(sizes)
        assert 1 <= after.want <= min(2 * flow.want, BY_ID.max_messages)
        assert after.want == 1 or after.want * max(sizes) <= BY_ID.max_bytes
        flow = after


def test_after_an_answer_that_was_too_large_a_pull_asks_for_what_fits_in_any_case() -> None:
    """Whatever the sizes are that come then."""
    flow = Flow.of(BY_ID)
    for _ in range(20):
        flow = flow.after([1000])
    assert flow.want == 1000
    flow = flow.overflowed().after([1000])
    assert flow.want * LARGEST_MESSAGE <= BY_ID.max_bytes


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "short name": (lambda: PubSub(subscription="s"), "projects/PROJECT"),
    "topic": (lambda: PubSub(subscription="projects/p/topics/s"), "subscriptions/NAME"),
    "empty attribute": (lambda: PubSub(subscription=NAME, record_id_attribute=""), "message id"),
    "many messages": (lambda: PubSub(subscription=NAME, max_messages=1001), "1000"),
    "few bytes": (lambda: PubSub(subscription=NAME, max_bytes=1000), "any message"),
    "no time": (lambda: PubSub(subscription=NAME, pull_for=timedelta(0)), "leave them out"),
    "no file a batch": (lambda: PubSub(subscription=NAME, max_files_a_batch=0), "1000"),
    "another record id": (lambda: pipeline(BY_ID, ("n",)), "('message_id',)"),
    "more of a record id": (lambda: pipeline(BY_ID, ("message_id", "n")), "('message_id',)"),
    "the message id beside an attribute": (lambda: pipeline(BY_ORDER, ("message_id",)), "('order',)"),
    "a number as id": (lambda: pipeline(BY_ID, ("message_id",), "message_id long, at timestamp"), "string"),
    "misspelt": (lambda: PubSub(subscripton=NAME), "did you mean 'subscription'"),  # type: ignore[call-arg]
}


def pipeline(source: PubSub, record_id: tuple[str, ...], schema: str = "") -> Pipeline:
    """A pipeline of messages."""
    return Pipeline(
        name="sales", source=source, schema=schema or "message_id string, order string, n long, at timestamp",
        record_id=record_id, event_time="at", outputs=(Output(name="all", transform="m:f", sink=Delta()),),
    )  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_can_not_work_is_refused(case: str) -> None:
    """With the way out."""
    make, hint = WRONG[case]
    with pytest.raises(Refused) as refusal:
        make()
    assert hint in refusal.value.hint


def test_the_record_id_is_the_message_id_or_the_attribute() -> None:
    """As a declared column."""
    assert pipeline(BY_ID, ("message_id",)).record_id == ("message_id",)
    assert pipeline(BY_ORDER, ("order",)).record_id == ("order",)


def test_a_rate_is_kept() -> None:
    """No message goes out before its time; without a rate they go in few requests."""
    messages: list[dict[str, object]] = [{"data": n} for n in range(1200)]
    begun = time.monotonic()
    parts = list(paced(messages[:40], rate=200.0))
    assert time.monotonic() - begun >= 30 / 200
    assert [one for part in parts for one in part] == messages[:40]
    assert [len(part) for part in parts] == [10] * 4
    assert [len(part) for part in paced(messages, None)] == [500, 500, 200]
