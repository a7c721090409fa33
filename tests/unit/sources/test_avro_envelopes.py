"""Debezium's envelope in Avro becomes the text that its JSON converter writes, so that one reader takes both apart."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.api.messages import Avro
from onlyonce.sources import message_formats
from onlyonce.sources.kafka_messages import Part, decoding_reader
from onlyonce.sources.schema_registry import Schema
from tests.support.changes_of_a_table import Change
from tests.support.debezium_messages import ENVELOPE, envelope_of, of_mysql, of_postgres
from tests.support.framed_messages import SALE, avro

WIDE: list[dict[str, Any]] = [
    {"name": "key", "type": "string"}, {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 20}},
    {"name": "share", "type": ["null", "double"]}, {"name": "photo", "type": "bytes"}, {"name": "tags", "type": {"type": "array", "items": "double"}},
    {"name": "born", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}},
    {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
]  # fmt: skip
ROW = {
    "key": 'é "x"\n',
    "price": Decimal("0.12345678901234567890"),
    "share": 0.1,
    "photo": b"\x00\xff",
    "tags": [1.5],
    "born": 20454,
    "seen": 1_772_366_400_000,
    "kind": "A",
}
AS_TEXT = ROW | {"price": "0.12345678901234567890", "photo": "AP8="}


def read(values: Sequence[bytes], **schemas: Any) -> list[tuple[Any, Any, Any]]:
    """The text, the schema's id and the reason of each; schemas by `s1`, `s2`."""
    known = {int(name[1:]): Schema("AVRO", json.dumps(one)) for name, one in schemas.items()}
    found = decoding_reader(
        Part("value", Avro(registry="http://registry"), known, {9: "no nine"}, message_formats.WANTED, envelope=True)
    )(pa.array(values, pa.binary()))
    return list(zip(found.columns.column(0).to_pylist(), found.ids.to_pylist(), found.reasons.to_pylist(), strict=True))


def change(row: Any) -> dict[str, Any]:
    """A change of PostgreSQL to a row."""
    return of_postgres(Change(7, "k", "u", 1)) | {"before": None, "after": row}


def test_an_envelope_in_avro_says_what_the_one_in_json_says() -> None:
    """Created, deleted, of both databases, and beside each other in one batch."""
    changes = [
        make(Change(position, "a", op, 5))
        for position, op in ((3, "c"), (1, "r"), (9, "d"))
        for make in (of_postgres, of_mysql)
    ]
    found = read([avro(ENVELOPE, one, 1) for one in changes], s1=ENVELOPE)
    for (text, number, reason), one in zip(found, changes, strict=True):
        said = json.loads(text)
        assert (number, reason) == (1, None)
        assert {part: said[part] for part in ("op", "before", "after", "ts_ms")} == {
            part: one[part] for part in ("op", "before", "after", "ts_ms")
        }
        assert {name: value for name, value in said["source"].items() if value is not None} == {
            name: value for name, value in one["source"].items() if name in said["source"] and value is not None
        }


def test_a_row_keeps_its_values() -> None:
    """A decimal all its digits, bytes base64; dates and times stay the numbers that they are, whatever type Avro has
    for them."""
    [(text, _, reason)] = read([avro(envelope_of(WIDE), change(ROW), 1)], s1=envelope_of(WIDE))
    assert reason is None
    assert json.loads(text)["after"] == AS_TEXT


@pytest.mark.parametrize(("value", "name"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_a_number_that_json_has_not_is_its_name(value: float, name: str) -> None:
    """In a list too. The rest of the row is as it was."""
    [(text, *_)] = read(
        [avro(envelope_of(WIDE), change(ROW | {"share": value, "tags": [value]}), 1)], s1=envelope_of(WIDE)
    )
    assert json.loads(text)["after"] == AS_TEXT | {"share": name, "tags": [name]}


def test_a_message_that_is_no_envelope_has_a_reason_and_changes_no_neighbour() -> None:
    """By a schema of something else, by none that is known, cut short, without a frame."""
    sale = {"id": "a", "shop": None, "at": 0, "cents": 1, "weight": 1.0}
    whole = avro(ENVELOPE, of_postgres(Change(3, "a", "c", 5)), 1)
    values = [avro(SALE, sale, 2), b"\0\0\0\0\x09" + whole[5:], whole[:-1], b"{}", avro("string", "x", 3), whole]
    found = read(values, s1=ENVELOPE, s2=SALE, s3="string")
    no = (
        "of the message's value does not fit the declaration: it is no envelope of Debezium, which is a record "
        "with before, after, source, op: it has no before"
    )
    assert [(number, reason) for _, number, reason in found] == [
        (2, f"schema 2 {no}"), (9, "no nine"), (1, "the message's value is not what schema 1 says"),
        (None, "the message's value does not begin with a zero byte and the id of a schema"), (3, f"schema 3 {no}"), (1, None),
    ]  # fmt: skip
    assert [text is None for text, *_ in found] == [True] * 5 + [False]
