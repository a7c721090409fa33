"""What a declaration says of the changes of a database, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onlyonce import Avro, Debezium, JsonSchema, Kafka, Refused
from onlyonce.api.identity import receive_parts
from onlyonce.api.load import fingerprint
from onlyonce.core.changes import Need, changes
from onlyonce.local import feed_messages
from tests.support.customers import CUSTOMERS

URL = "https://registry:8081"
AVRO = Debezium(format=Avro(registry=URL))


def topic(**options: Any) -> Kafka:
    plain: dict[str, Any] = {"topic": "customers", "servers": "kafka-1:9093", "value": Debezium()}
    return Kafka(**plain | options)


def pipeline(**options: Any) -> Any:
    return replace(CUSTOMERS, **options)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: pipeline(record_id=("key",)), "record_id=('key',) without 'position'"),
        (lambda: pipeline(schema=CUSTOMERS.schema + ", at timestamp", event_time="at"), "event_time='at', and the changes have theirs in 'changed_at'"),
        (lambda: pipeline(schema="key string, position string, changed_at timestamp"), "'op' gets what happened, and is not a declared column"),
        (lambda: pipeline(schema="key string, op string, position long, changed_at timestamp"), "'position' gets the place in the database's log"),
        (lambda: pipeline(source=topic(value=Debezium(time="at"))), "'at' gets the time of the change, and is not a declared column of type timestamp"),
        (lambda: pipeline(source=topic(key="op")), "a column gets two of key, headers and schema ids"),
        (lambda: topic(value=Debezium(format=Avro(registry="https://registry:8081", columns="key"))), "columns of a value"),
        (lambda: pipeline(source=topic(value=AVRO)), "'schema_id' gets the id of the value's schema, and is not a declared column of type int"),
        (lambda: pipeline(source=topic(value=Debezium(format=Avro(registry=URL, schema_id="op")))), "'op' gets the id of the value's schema"),
        (lambda: Debezium(format="avro"), "Debezium(format='avro'): must be Avro"),  # type: ignore[arg-type]
        (lambda: Debezium(format=JsonSchema(registry=URL)), "Debezium(format=JsonSchema(…)): must be Avro"),  # type: ignore[arg-type]
        (lambda: Debezium(lsn="x"), "unknown option 'lsn'"),  # type: ignore[call-arg]
        (lambda: topic(value="debezium"), "value='debezium'"),
    ],
)  # fmt: skip
def test_what_would_lose_changes_is_refused_when_it_is_declared(make: Callable[[], Any], said: str) -> None:
    """With the way out."""
    with pytest.raises(Refused) as told:
        make()
    assert said in told.value.what
    assert told.value.hint


def test_a_change_may_be_known_by_its_place_in_the_topic() -> None:
    """Then what is delivered again is another record, which an upsert by position takes for the same."""
    assert pipeline(record_id=()).by_position


def test_the_envelope_is_part_of_the_declaration() -> None:
    """A topic of plain JSON that becomes one of changes is another pipeline."""
    plain = pipeline(source=topic(value=None))
    assert fingerprint(plain, "receive") != fingerprint(CUSTOMERS, "receive")
    found = changes("receive", receive_parts(plain), receive_parts(pipeline(source=topic())))
    assert {change.part: change.need for change in found} == {"envelope": Need.NOTHING, "format": Need.NAME}


def test_an_envelope_in_avro_is_another_declaration_and_has_its_schema_id_in_a_column() -> None:
    """So a topic that changes its converter needs a new name, as any other format does."""
    grown = CUSTOMERS.schema + ", schema_id int"
    avro, json = (pipeline(source=topic(value=value), schema=grown) for value in (AVRO, Debezium()))
    assert avro.source.beside == ("schema_id", "op", "position", "changed_at")
    assert avro.source.schema_ids == {"value": "schema_id"}
    assert fingerprint(avro, "receive") != fingerprint(json, "receive")
    found = changes("receive", receive_parts(json), receive_parts(avro))
    assert {change.part: change.need for change in found}["format"] == Need.NAME


def test_the_feed_does_not_write_plain_records_to_a_topic_of_changes() -> None:
    """They would all be invalid."""
    with pytest.raises(Refused, match="is declared as Debezium's envelope"):
        feed_messages._producer(topic())
