"""As `test_forget_everywhere`: a value comes from a subscription of Pub/Sub, whose messages are pulled in an inbox."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from onlyonce.core.erasure import Mentions, read_conditions
from onlyonce.operate import forget
from onlyonce.sources import pubsub
from tests.support import value_finder
from tests.support.erasure_places import plants
from tests.support.platform import Platform, Server
from tests.support.pubsub import running

pytestmark = [pytest.mark.spark, pytest.mark.whole]

WHO = 'o/né "il\\17'
WHERE = f"shop = '{WHO}'"
MENTIONS = Mentions(read_conditions(WHERE, {"shop": "string"}))
ORDERS = "projects/test/subscriptions/orders"


def order(shop: str, at: str) -> bytes:
    """The payload of a message, with escapes."""
    return json.dumps({"shop": shop, "at": at, "cents": 7, "weight": 1.0}).replace("/", "\\/").encode()


@plants("messages of a subscription")
def test_of_pulled_messages_the_receipt_names_what_a_search_finds(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, server: Server, spark: object
) -> None:
    """One is a record, one an invalid record, and one no JSON. The pulled lines of all three go."""
    platform = new_platform("tests/support/messages.py")

    def everywhere() -> set[str]:
        spelled = (WHO, json.dumps(WHO, ensure_ascii=False))
        in_database = {*value_finder.in_database(server, platform.database, spelled)} - {value_finder.WAL}
        return {*value_finder.in_files(str(platform.home), MENTIONS), *in_database}

    with running(monkeypatch) as fake:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", fake.address)
        fake.subscribe("orders")
        fake.publish(order(WHO, "2026-03-01T12:00:00Z"), order(WHO, "never"), order(WHO, "cut")[:-1], order="a")
        fake.publish(order("other", "2026-03-01T12:00:01Z"), order="b")
        pubsub.main(["orders"])
        platform.run("orders", "--close")
        fake.publish(order("last", "2026-03-01T14:00:00Z"), order="z")
        pubsub.main(["orders"])
        platform.run("orders", "--close")
    platform.end_sessions()
    before = everywhere()

    report = forget.main(["orders", "--where", WHERE, "--yes", "--master", "local[2]"])

    left = {row["place"]: row["goes"] for row in report.tables[forget.LEFT]}
    kinds = [f"{platform.home}/{name}/" for name in ("inbox/orders", "data/orders/events", "tables/orders/per_shop")]
    assert [kind for kind in kinds if not any(place.startswith(kind) for place in before)] == []
    assert everywhere() == set()
    assert left.keys() - {one.place for one in forget.UNKNOWN} == {
        f"messages of the Pub/Sub subscription {ORDERS}",
        "write-ahead log of PostgreSQL",
    }
    assert left[f"messages of the Pub/Sub subscription {ORDERS}"] == forget.PUBSUB_GOES
    assert (report.facts["kept"], report.facts["invalid"], report.facts["lines"], report.facts[forget.WITHOUT]) == (
        1,
        2,
        3,
        0,
    )
