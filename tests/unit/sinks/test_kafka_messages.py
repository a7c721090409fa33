"""What a Kafka message is made of, and what a declaration of Kafka or a sink of one's own refuses. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onlyonce.api.pipeline import CustomSink, KafkaSink
from onlyonce.commitlog.outbox import Deliverer, Streams
from onlyonce.core.delivery import Row
from onlyonce.core.errors import Refused
from onlyonce.database.connect import Database
from onlyonce.sinks.outbox.deliver import target_of
from onlyonce.sinks.outbox.send_kafka import headers, message_key, place_of, settings_of

NO_STREAMS = Streams(Database("postgresql+psycopg2://nobody@127.0.0.1:1/nothing"), Deliverer("shop", "kept"))
"""Nobody asks for a stream here."""


def row(key: str | None, payload: str = "{}") -> Row:
    """A row of the outbox."""
    return Row(1, "unit", 7, "incarnation", key, payload, "", 0)


@pytest.mark.parametrize(
    ("keys", "key", "wanted"),
    [((), None, None), (("a",), '{"a": "x\\n🛒"}', "x\n🛒"), (("a",), '{"a": null}', None), (("a",), '{"a": 5}', "5"),
     (("a",), '{"a": 12345678901234567890.123456789012345678}', "12345678901234567890.123456789012345678"), (("a",), '{"a": 0.10}', "0.10"),
     (("a",), '{"a": {"b": ["é", 1.10]}}', '{"b":["é",1.10]}'), (("a", "b"), '{"a": "x", "b": null}', '{"a": "x", "b": null}')],
)  # fmt: skip
def test_a_key_is_the_text_of_one_column_or_json_of_several(
    keys: tuple[str, ...], key: str | None, wanted: str | None
) -> None:
    """Null is no key: such messages go to any partition. A number stays as it is written: two keys never become one."""
    assert message_key(row(key), KafkaSink(topic="t", connection="K", keys=keys)) == wanted


def test_headers_tell_unit_and_number_and_what_was_declared() -> None:
    """Null stays null; what is no text is JSON."""
    sink = KafkaSink(topic="t", connection="K", headers=("a", "b", "c", "d"))
    found = headers("unit@incarnation", row(None, '{"a": "é", "b": null, "c": [1], "d": 12345678901234567.89}'), sink)
    assert found == [
        ("onlyonce-unit", b"unit@incarnation"),
        ("onlyonce-seq", b"7"),
        ("a", "é".encode()),
        ("b", None),
        ("c", b"[1]"),
        ("d", b"12345678901234567.89"),
    ]


@pytest.mark.parametrize(
    "incarnation", ["shop/kept/1", "shop/kept@2013-01-01T00:00:00Z--2013-01-02T00:00:00Z/1", "shop@1/kept/2"]
)
def test_a_units_place_is_all_but_its_batch(incarnation: str) -> None:
    """Of streams, backfills and bounded runs."""
    assert place_of(f"{incarnation}/17/kept/3@some-incarnation") == (f"{incarnation}/kept/3@some-incarnation", 17)


@pytest.mark.parametrize(
    ("declare", "word"),
    [
        (lambda: KafkaSink(topic="a b", connection="K"), "topic"),
        (lambda: KafkaSink(topic="..", connection="K"), "topic"),
        (lambda: KafkaSink(topic="a", connection="K", units_topic="a"), "units_topic"),
        (lambda: CustomSink(target_class="no class"), "module:Class"),
        (lambda: settings_of("{no json"), "JSON"),
        (lambda: target_of(CustomSink(target_class="not_there:Ledger"), "shop/kept", NO_STREAMS), "not_there"),
        (lambda: target_of(CustomSink(target_class="collections:Counter"), "shop/kept", NO_STREAMS), "guarantee"),
    ],
)
def test_what_can_not_work_is_refused(declare: Callable[[], object], word: str) -> None:
    """With what is wrong by name."""
    with pytest.raises(Refused, match=word):
        declare()
