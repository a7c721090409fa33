"""What a declaration says of messages that a schema registry knows, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onlyonce import Avro, JsonSchema, Kafka, Protobuf, Refused
from onlyonce.api.identity import receive_parts
from onlyonce.api.load import fingerprint
from onlyonce.local import feed_messages
from tests.support.shop import SHOP

URL = "https://registry:8081"


def topic(**options: Any) -> Kafka:
    """A topic."""
    return Kafka(topic="sales", servers="kafka-1:9093", **options)


def pipeline(more: str, **options: Any) -> Any:
    """The shop, fed by it."""
    return replace(SHOP, schema=SHOP.schema + more, source=topic(**options))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Avro(registry="registry:8081"), "registry='registry:8081'"),
        (lambda: Avro(registry="https://me:secret@registry:8081"), "the registry's URL holds a password"),
        (lambda: Protobuf(registry=URL, options={"basic.auth.user.info": "me:secret"}), "'basic.auth.user.info' is a secret"),
        (lambda: JsonSchema(registry=URL, options={"url": URL}), "'url' is the platform's to set"),
        (lambda: Avro(url=URL), "unknown option 'url'"),  # type: ignore[call-arg]
        (lambda: topic(value="avro"), "value='avro'"),
        (lambda: topic(value=Avro(registry=URL, columns="id")), "columns of a value"),
        (lambda: topic(key=Avro(registry=URL)), "the key's Avro names no columns"),
        (lambda: topic(key=JsonSchema(registry=URL)), "Kafka(key=JsonSchema(…)): must be a string, Avro or Protobuf"),
        (lambda: pipeline("", value=Avro(registry=URL)), "'schema_id' gets the id of the value's schema, and is not a declared column of type int"),
        (lambda: pipeline(", n long", value=Avro(registry=URL, schema_id="n")), "'n' gets the id of the value's schema"),
        (lambda: pipeline(", key_schema_id int", key=Avro(registry=URL, columns="other")), "'other' comes from the message's key, and is not declared"),
        (lambda: pipeline(", key_schema_id int", key=Avro(registry=URL, columns="shop"), headers="shop"), "a column gets two of key, headers and schema ids"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_when_it_is_declared(make: Callable[[], Any], said: str) -> None:
    """With a password nowhere in the message."""
    with pytest.raises(Refused) as told:
        make()
    assert said in told.value.what
    assert "gets the id of" not in said or "schema_id= of Avro gives it another name" in str(told.value.hint)
    assert "me:secret" not in str(told.value)


def test_a_format_is_part_of_the_declaration_and_where_its_registry_is_is_not() -> None:
    """So a batch that was begun under another one is not replayed by it; a topic of plain JSON has the fingerprint that
    it had."""
    of = {
        "plain": pipeline(", schema_id int", key="id"),
        "avro": pipeline(", schema_id int", value=Avro(registry=URL), key="id"),
        "moved": pipeline(", schema_id int", value=Avro(registry="env:OTHER"), key="id"),
        "protobuf": pipeline(", schema_id int", value=Protobuf(registry=URL), key="id"),
        "checked": pipeline(", schema_id int", value=JsonSchema(registry=URL), key="id"),
        "unchecked": pipeline(", schema_id int", value=JsonSchema(registry=URL, validate=False), key="id"),
        "keyed": pipeline(
            ", schema_id int, key_schema_id int", value=Avro(registry=URL), key=Avro(registry=URL, columns="id")
        ),
    }
    marks = {name: fingerprint(one, "receive") for name, one in of.items()}
    assert marks.pop("moved") == marks["avro"]
    assert len({*marks.values()}) == len(marks)
    parts = receive_parts(of["keyed"])
    assert parts["source"]["format"] == {"kind": "avro", "schema_id": "schema_id"}
    assert parts["source"]["key"] == {"kind": "avro", "schema_id": "key_schema_id", "columns": ["id"]}
    assert receive_parts(of["plain"])["source"]["key"] == "id"
    with pytest.raises(Refused, match="the feed writes JSON"):
        feed_messages._producer(of["avro"].source)
