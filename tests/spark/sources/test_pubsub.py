"""Messages from Google's fake to `events`: each has one fate, whatever was delivered, sent or killed twice."""

from __future__ import annotations

import base64
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.sources import pubsub
from tests.support.platform import Platform, multiset
from tests.support.pubsub import Fake, pulled, running
from tests.support.pullers import Pullers

pytestmark = pytest.mark.spark


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """With the subscription of `orders`."""
    with running(monkeypatch) as started:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", started.address)
        started.subscribe("orders")
        yield started


def order(number: int, **more: object) -> dict[str, object]:
    """A payload, of one minute."""
    return {"shop": "a", "at": "2026-03-01T12:00:00Z", "cents": number, "weight": 1.0} | more


def test_each_message_has_one_fate(spark: Any, new_platform: Callable[..., Platform], fake: Fake) -> None:
    """Sent twice under new message ids, delivered twice, killed before the acknowledgement, poisoned, without its
    attribute.

    The payload's own field of the id's name gives no record another id.
    """
    platform = new_platform("tests/support/messages.py")
    for number in range(40):
        text = json.dumps(order(number), indent=1).encode() if number % 2 else order(number, order="stolen")
        for _ in range(2):
            fake.publish(text, order=f"o{number}")
    fake.publish(order(100, order="own"))
    fake.publish(order(101), order="")
    fake.publish(b"no json", b"\xff\xfe", b'{"a":1}{"b":2}', order="poison")
    fake.publish(order(102, at="never"), order="no-time")
    fake.publish(order(103, more={"x": 1}), order="unknown-field")
    passes = platform.home / "failpoints"
    passes.mkdir()
    with Pullers() as pullers:
        kill = {"ONLYONCE_FAILPOINTS": "pull-before-acknowledge:1:kill", "ONLYONCE_FAILPOINT_DIR": str(passes)}
        assert pullers.wait(pullers.start("orders", **kill))[0] == -signal.SIGKILL
    fake.tell("advance 61s")
    fake.tell("lose 1")
    pubsub.main(["orders"])
    fake.tell("advance 61s")
    pubsub.main(["orders"])
    lines = pulled(settings.inbox("orders"))
    platform.run("orders", "--close")

    events = platform.events("orders")
    of = {kind: events[events.oo_kind == kind] for kind in ("kept", "invalid", "expired")}
    kept = Counter({(f"o{number}", number): 1 for number in range(40)} | {("unknown-field", 103): 1})
    assert multiset(of["kept"], "order", "cents") == kept
    assert of["expired"].empty
    bad = Counter(line for line in lines if _is_bad(line))
    assert Counter(of["invalid"].oo_raw) == bad
    assert {_held(line) for line in bad} == {b"no json", b"\xff\xfe", b'{"a":1}{"b":2}', 100, 101, 102}
    no_id = of["invalid"][of["invalid"].oo_reason.str.contains("record id column order is missing")]
    assert {_held(line) for line in no_id.oo_raw} == {100, 101}
    assert [json.loads(line)["more"] for line in of["kept"].oo_unknown.dropna()] == [{"x": 1}]
    fates = platform.sql("""SELECT sum(records_in), sum(kept), sum(invalid), sum(expired), sum(duplicate), sum(unknown_fields)
                            FROM onlyonce.batches WHERE query = 'receive'""")
    invalid = sum(bad.values())
    assert [int(n) for n in fates.iloc[0]] == [len(lines), 41, invalid, 0, len(lines) - 41 - invalid, 1]
    assert len(lines) > 2 * 40 + 7, "some were delivered twice"
    [total] = platform.table("orders/per_shop").to_dict("records")
    assert (total["sales"], total["cents"]) == (41, sum(range(40)) + 103)


def _is_bad(line: str) -> bool:
    return not line.startswith("{") or json.loads(line)["order"] is None or json.loads(line)["at"] == "never"


def _held(line: str) -> object:
    if line.startswith("{"):
        return json.loads(line)["cents"]
    found = json.loads(line.partition(": ")[2])
    return base64.b64decode(found["base64"]) if "base64" in found else found["data"].encode()
