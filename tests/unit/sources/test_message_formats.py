"""Messages in formats of a schema registry become columns by their schema, whatever lies beside them."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlyonce.api.messages import Avro, JsonSchema, MessageFormat, Protobuf
from onlyonce.sources import message_formats
from onlyonce.sources.kafka_messages import Part, decoding_reader
from onlyonce.sources.message_formats import Wanted
from onlyonce.sources.schema_registry import Schema
from onlyonce.sources.values import coercion
from tests.support import framed_messages as messages
from tests.support import schema_registry
from tests.support.framed_messages import CHANGED, GROWN, SALE, avro, framed
from tests.support.schema_registry import Registry

DDL = "id string, shop string, at timestamp, cents bigint, weight double"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MILLIS = 1_767_225_600_000
URL = "http://registry"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry over HTTP."""
    with schema_registry.running() as running:
        yield running


def sale(number: int, **more: Any) -> dict[str, Any]:
    """A sale as producers have it."""
    return {
        "id": f"n{number}",
        "shop": None if number % 3 else "a",
        "at": MILLIS + number,
        "cents": number,
        "weight": 0.5,
    } | more


def as_columns(one: dict[str, Any]) -> dict[str, Any]:
    """The same as the declared columns."""
    return {
        **{name: one[name] for name in ("id", "shop", "cents", "weight")},
        "at": BEGIN + timedelta(milliseconds=one["at"] - MILLIS),
    }


def part(
    of: MessageFormat,
    schemas: dict[int, Schema],
    ddl: str = DDL,
    needed: tuple[str, ...] = ("id", "at"),
    **unknown: Any,
) -> Part:
    """The value of messages."""
    fields = tuple(coercion.declared(ddl)) if ddl else ()
    return Part("value", of, schemas, unknown.get("unknown", {}), Wanted(fields, needed if ddl else ()))


def read(one: Part, values: Sequence[bytes | None]) -> list[tuple[Any, ...]]:
    """What is read: columns, schema id, reason, what is not declared."""
    found = decoding_reader(one)(pa.array(values, pa.binary()))
    rows = found.columns.to_pylist() if one.wanted.fields else [{}] * len(values)
    return list(zip(rows, found.ids.to_pylist(), found.reasons.to_pylist(), found.rest.to_pylist(), strict=True))


def of_avro(*schemas: Any) -> dict[int, Schema]:
    """Schemas of Avro by their ids."""
    return {number: Schema("AVRO", json.dumps(one)) for number, one in enumerate(schemas, 1)}


def test_what_the_ecosystems_serializers_write_is_read_in_columns(registry: Registry) -> None:
    """Avro and Protobuf, with times, wrappers and a message that is not the first of its file; JSON is held against its
    schema."""
    write = messages.Serializers(registry.url)
    sales = [sale(number) for number in range(10)]
    dated = [one | {"at": BEGIN + timedelta(milliseconds=one["at"] - MILLIS)} for one in sales]
    avros, protos = [write.avro(SALE, one) for one in dated], [write.protobuf(one) for one in sales]
    jsons = [write.json({"id": one["id"], "cents": one["cents"]}) for one in sales]
    there = registry.has()
    wanted = [as_columns(one) for one in sales]

    assert [row for row, *_ in read(part(Avro(registry=URL), there), avros)] == wanted
    more = f"{DDL}, kind string, tags array<string>"
    found = read(part(Protobuf(registry=URL), there, more), protos)
    assert [row for row, *_ in found] == [
        row | {"kind": ("PLAIN", "GIFT")[n % 2], "tags": ["a", "b"]} for n, row in enumerate(wanted)
    ]
    assert [reason for _, _, reason, _ in read(part(JsonSchema(registry=URL), there, ""), jsons)] == [None] * 10
    assert {number for number in there if there[number].kind == "PROTOBUF"} == {number for _, number, *_ in found}


DAMAGES = st.sampled_from(["whole", "whole", "whole", "cut", "more", "noise", "unframed", "unknown", "null", "changed"])


@given(st.lists(st.tuples(DAMAGES, st.integers(0, 2**31 - 1), st.sampled_from([1, 2])), max_size=40), st.booleans())
def test_a_message_is_read_as_if_it_were_alone(asked: list[tuple[str, int, int]], protobuf: bool) -> None:
    """Of schemas that grew, cut short, with more behind, of an unknown id: what is whole is what the producer wrote,
    what is not has a reason, and neighbours change neither."""
    schemas = of_avro(SALE, GROWN, CHANGED)
    of: MessageFormat = Avro(registry=URL)
    if protobuf:
        text = base64.b64encode(messages.sale_type().DESCRIPTOR.file.serialized_pb).decode()
        schemas, of = dict.fromkeys((1, 2, 3), Schema("PROTOBUF", text)), Protobuf(registry=URL)
    values: list[bytes | None] = []
    for damage, cents, number in asked:
        sold = sale(cents) | ({"clerk": "c"} if number == 2 else {})
        if protobuf:
            whole = framed(number, b"\2\2" + messages.proto_sale(sold).SerializeToString())
        else:
            whole = avro((SALE, GROWN)[number - 1], sold, number)
        values.append({
            "whole": whole, "cut": whole[:-1], "more": whole + b"\x07", "noise": framed(number, b"\xff" * 30), "unframed": b"\x01" + whole[1:],
            "unknown": framed(9, whole[5:]), "null": None, "changed": framed(3, b"\x01"),
        }[damage])  # fmt: skip
    one = part(of, schemas, unknown={9: "no nine"})

    together = read(one, values)

    assert together == [read(one, [value])[0] for value in values]
    for (damage, cents, number), (row, known, reason, _) in zip(asked, together, strict=True):
        assert (reason is None) == (damage in ("whole", "null"))
        assert known == {"unknown": 9, "changed": 3, "unframed": None, "null": None}.get(damage, number)
        assert row == (as_columns(sale(cents)) if damage == "whole" else dict.fromkeys(row))


def field(name: str, of: Any) -> dict[str, Any]:
    """SALE with another type of one of its columns."""
    return SALE | {
        "fields": [{"name": f["name"], "type": of if f["name"] == name else f["type"]} for f in SALE["fields"]]
    }


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (CHANGED, "column cents is string, which does not fit the declared int64"),
        (field("shop", "int"), "column shop is int32, which does not fit the declared string"),
        (field("cents", ["int", "string"]), "column cents is string, which does not fit the declared int64"),
        (field("cents", ["double", "string"]), "a column is one of several types (double, string), which no declared type is"),
        (field("id", {"type": "array", "items": "string"}), "column id is list<item: string>, which does not fit the declared string"),
        (SALE | {"fields": SALE["fields"][1:]}, "it has no column id; its columns are shop, at, cents, weight"),
        ({"type": "string"}, "its values are not records"),
        (field("shop", {"type": "array", "items": "null"}), "it has lists of values that take no bytes, so nothing bounds their length"),
        (field("shop", ["null", "shop.Sale"]), "its type shop.Sale has values of its own type inside"),
    ],
)  # fmt: skip
def test_a_schema_that_does_not_fit_makes_its_messages_invalid_with_both_types(schema: Any, reason: str) -> None:
    """Whatever a message holds: it is not looked at, and those of other schemas are read."""
    one = part(Avro(registry=URL), of_avro(SALE, schema))

    found = read(one, [avro(SALE, sale(3), 1), framed(2, b"\x02" * 40)])

    assert found[0] == (as_columns(sale(3)), 1, None, None)
    assert found[1][1:3] == (2, f"schema 2 of the message's value does not fit the declaration: {reason}")


def test_a_value_that_does_not_fit_is_told_and_no_other() -> None:
    """A number too large for the declared type; the JSON that its schema forbids, and what is no JSON, which the parser
    tells."""
    narrow = part(Avro(registry=URL), of_avro(GROWN), "id string, at timestamp, cents int")
    large = [avro(GROWN, sale(number, clerk="c", cents=2**number), 1) for number in (30, 31)]
    (_, _, fine, rest), (_, _, reason, _) = read(narrow, large)
    assert (fine, rest) == (None, "shop, weight, clerk")
    assert (
        reason == "the message's value by schema 1: column cents is no int32: 2147483648 (Integer value 2147483648 not "
        "in range: -2147483648 to 2147483647)"
    )

    checked = {
        validate: part(
            JsonSchema(registry=URL, validate=validate), {1: Schema("JSON", json.dumps(messages.JSON_SALE))}, ""
        )
        for validate in (True, False)
    }
    values: list[bytes | None] = [
        framed(1, text) for text in (b'{"id":"a","cents":1}', b'{"id":"a","cents":-1}', b"{}", b"no JSON")
    ]
    reasons = [reason for _, _, reason, _ in read(checked[True], values)]
    assert reasons == [
        None, "the message's value by schema 1: -1 is less than the minimum of 0",
        "the message's value by schema 1: \"id\" is a required property", None,
    ]  # fmt: skip
    assert [reason for _, _, reason, _ in read(checked[False], values)] == [None] * 4


def test_types_that_are_imported_named_twice_or_logical_are_read() -> None:
    """From another subject, as a list, a map, a decimal, a date, a time without a zone; a key that is no record fills
    its one column."""
    money = {
        "type": "record",
        "name": "Money",
        "namespace": "shop",
        "fields": [{"name": "cents", "type": "int"}, {"name": "day", "type": {"type": "int", "logicalType": "date"}}],
    }
    fields = [
        {"name": "one", "type": "shop.Money"}, {"name": "two", "type": ["null", "shop.Money"]}, {"name": "many", "type": {"type": "map", "values": "shop.Money"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "clock", "type": {"type": "long", "logicalType": "local-timestamp-micros"}}, {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
    ]  # fmt: skip
    whole = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    inlined = json.loads(json.dumps(whole).replace('"shop.Money"', json.dumps(money), 1))
    ddl = (
        "one struct<cents:bigint,day:date>, two struct<cents:int,day:date>, many "
        "map<string,struct<cents:int,day:date>>, price decimal(11,2), clock timestamp_ntz, kind string"
    )
    value = {
        "one": {"cents": 1, "day": 20454},
        "two": None,
        "many": {"a": {"cents": 2, "day": 1}},
        "price": 12,
        "clock": 1,
        "kind": "A",
    }
    schema = Schema("AVRO", json.dumps(whole), (("shop.Money", json.dumps(money)),))
    [(row, _, reason, _)] = read(
        part(Avro(registry=URL), {1: schema}, ddl, ()), [avro(inlined, value | {"price": Decimal("12.50")}, 1)]
    )

    assert reason is None
    day = datetime(2026, 1, 1).date()
    assert row["one"] == {"cents": 1, "day": day}
    assert row["two"] is None
    assert dict(row["many"])["a"]["cents"] == 2
    assert (row["price"], row["kind"]) == (Decimal("12.50"), "A")
    assert row["clock"] == datetime(1970, 1, 1, microsecond=1)
    alone = part(Avro(registry=URL), of_avro("string"), "id string", ("id",))
    assert read(alone, [avro("string", "k", 1)])[0][0] == {"id": "k"}


def test_a_library_that_is_not_there_makes_no_message_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an executor without it the task fails, and says what is missing."""
    for name, of, kind in (
        ("jsonschema_rs", JsonSchema(registry=URL), "JSON"),
        ("google.protobuf", Protobuf(registry=URL), "PROTOBUF"),
    ):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=name.partition(".")[0]):
            read(part(of, {1: Schema(kind, "{}")}), [framed(1, b"\x00")])


def test_no_python_runs_for_each_avro_message() -> None:
    """A thousand messages take as many steps of the interpreter as ten: the libraries read them, and Arrow takes the
    columns."""
    convert = message_formats.avro_converter(Schema("AVRO", json.dumps(SALE)), part(Avro(registry=URL), {}).wanted)

    def steps(count: int) -> int:
        found = 0

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal found
            frame.f_trace_opcodes = True
            found += event == "opcode"
            return trace

        bodies = message_formats.message_bodies(
            pa.array([avro(SALE, sale(number), 1) for number in range(count)], pa.binary())
        )
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            assert convert(bodies).batch.num_rows == count
        finally:
            sys.settrace(before)
        return found

    steps(1)
    assert (
        steps(1000) - steps(10) < 500
    )  # less than one for each: a few of what else the interpreter does are counted too
