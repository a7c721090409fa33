"""The identity of a declaration: which options it has, under which keys, and the values that it must keep."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from onlyonce.api import identity
from onlyonce.api.joins_and_state import Join, Lookup, Stateful
from onlyonce.api.messages import Avro, Debezium, JsonSchema, Kafka, Protobuf
from onlyonce.api.pipeline import ONE_OF_SEVERAL, Input, Output, Pipeline
from onlyonce.api.sinks import (
    BigQuery,
    BigQueryStream,
    CustomSink,
    Delta,
    FileSink,
    Iceberg,
    KafkaSink,
    MySQL,
    Postgres,
    Webhook,
)
from onlyonce.api.sources import Custom, DeltaSource, Files, Growing, PubSub
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.frontier import Frontier
from onlyonce.core.triggers import AfterAny, AfterRecords, AfterTime
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Sliding, Timed
from tests.support.shop import SHOP

MINUTE = timedelta(minutes=1)
REGISTRY = "http://registry"
DECIDES_NOTHING: list[tuple[Any, set[str]]] = [
    (Files(), {"start", "links", "recursive"}),
    (Growing(), {"start", "links"}),
    (PubSub(subscription="projects/p/subscriptions/s"), set()),
    (Custom(reader="m:R", needs_dedup=True), {"start"}),
    (DeltaSource(path="a"), {"start", "ignore_deletes"}),
    (Kafka(topic="t", servers="s:1"), {"servers", "start", "max_offsets_a_batch", "on_loss", "consumer_group", "options"}),
    (Avro(registry=REGISTRY), {"registry", "options"}),
    (Protobuf(registry=REGISTRY), {"registry", "options"}),
    (JsonSchema(registry=REGISTRY), {"registry", "options"}),
    (Debezium(), {"op", "position", "time"}),  # Kafka has them, as `envelope`
    (Lookup(name="shops", table=Delta(path="a"), keys="id"), {"refresh"}),
    (FileSink(), {"path", "keys", "names"}),  # the output has them, as `target`, `keys` and `names`
    (Join(left="m:a", right="m:b", on="id", within=MINUTE), set()),
    (Stateful(processor="m:P", keys="id", schema="id string", timers_within=MINUTE), set()),
    (Fixed(MINUTE), set()),
    (Joined(MINUTE), set()),
    (Timed(MINUTE), set()),
    (Chained(MINUTE), set()),
    (Sliding(MINUTE, MINUTE), set()),
    (Session(MINUTE), set()),
    (AfterRecords(1), set()),
    (AfterTime(MINUTE), set()),
    (AfterAny(1, MINUTE), set()),
]  # fmt: skip


SENDING = {"remembers", "attempts", "pause", "timeout", "at_once"}
OF_A_SINK: list[tuple[Any, set[str]]] = [
    (Delta(), {"table"}),  # its name in a catalog, for readers
    (Postgres(table="s.t"), set()),
    (MySQL(table="t", connection="C"), set()),
    (Iceberg(table="a.t"), set()),
    (FileSink(), set()),
    (Webhook(url="https://a/b"), SENDING | {"url", "connection", "authorization", "secret", "batch"}),
    (BigQuery(table="p.d.t"), SENDING),
    (BigQueryStream(table="p.d.t"), {"timeout"}),
    (KafkaSink(topic="t", connection="C"), {"units_topic", "prefix", "timeout"}),
    (CustomSink(target_class="m:T"), set()),
]
"""The sinks, and which of their options decide no result. `write` is no option of each."""


def watched(value: Any) -> tuple[Any, set[str]]:
    """Return a copy of a declared value, and the set of the attributes that are read of it from now on."""
    read: set[str] = set()

    class Watched(type(value)):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    copy = object.__new__(Watched)
    for one in fields(value):
        object.__setattr__(copy, one.name, getattr(value, one.name))
    read.clear()
    return copy, read


def unread(value: Any, read: set[str]) -> set[str]:
    """Return the options of a value that were not read."""
    return {one.name for one in fields(value)} - read


def parts_of(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return the parts of receive and of the first output."""
    output = pipeline.outputs[0].name
    return [
        identity.receive_parts(pipeline),
        identity.output_parts(pipeline, output, {one.name: "f" for one in pipeline.outputs}),
    ]


@pytest.mark.parametrize(("value", "decides_nothing"), DECIDES_NOTHING, ids=lambda one: type(one).__name__)
def test_every_option_is_in_the_identity_or_named(value: Any, decides_nothing: set[str]) -> None:
    """So a new option is a decision: it is read by `identity`, or stands in this table."""
    copy, read = watched(value)
    parts = identity.of(copy)

    assert unread(value, read) == decides_nothing
    assert json.loads(json.dumps(parts)) == parts


@pytest.mark.parametrize(("sink", "decides_nothing"), OF_A_SINK, ids=lambda one: type(one).__name__)
def test_every_option_of_a_sink_is_in_the_identity_or_named(sink: Any, decides_nothing: set[str]) -> None:
    """An output has its sink's options in its own parts."""
    copy, read = watched(sink)
    pipeline = replace(SHOP, outputs=(replace(SHOP.outputs[0], sink=copy),))
    read.clear()
    parts = parts_of(pipeline)

    assert unread(sink, read) == decides_nothing
    assert json.loads(json.dumps(parts)) == parts


def test_every_option_of_an_output_is_in_the_identity_or_named() -> None:
    """Whether rows are staged is in the row of each batch. All others decide."""
    copy, read = watched(SHOP.outputs[0])
    pipeline = replace(SHOP, outputs=(copy,))
    read.clear()
    parts_of(pipeline)

    assert unread(copy, read) == {"stable_input"}


def test_every_option_of_a_pipeline_and_an_input_is_in_the_identity_or_named() -> None:
    """How much is read at once, and how long something is kept, decide no result.

    The mode is in the row of each batch, and an end by silence in the log."""
    source, read_of_source = watched(Input(source=Files(inbox="/a")))
    several = replace(
        SHOP, source=ONE_OF_SEVERAL, sources={"a": source, "b": Input(source=Files(inbox="/b"))}, id_space="shared"
    )
    read_of_source.clear()
    read: set[str] = set()
    for one in (SHOP, several):
        copy, read_of_one = watched(one)
        parts_of(copy)
        read |= read_of_one

    assert unread(source, read_of_source) == set()
    assert unread(SHOP, read) == {"partitions", "dedup_horizon", "mode", "keep_events", "keep_log", "idle_after"}


def test_a_class_without_an_identity_stops() -> None:
    """A class that is declared and not named in `identity` is not stored as something else."""
    with pytest.raises(InvariantBroken, match="has no identity"):
        identity.of(object())


def test_an_option_of_a_reader_that_is_no_plain_value_is_refused() -> None:
    """Its text would differ from process to process; a time has a text that stays."""
    assert identity.of(Custom(reader="m:R", needs_dedup=True, options={"every": MINUTE}))["options"] == {
        "every": "0:01:00"
    }
    with pytest.raises(Refused, match=r"options\['client'\] is not a plain value"):
        identity.of(Custom(reader="m:R", needs_dedup=True, options={"client": object()}))


def test_the_stored_parts_and_their_hash_stay() -> None:
    """These literals are in the log of every platform.

    Whoever changes them changes the identity of every declaration.
    """
    received, written = (
        identity.receive_parts(SHOP),
        identity.output_parts(SHOP, "per_shop", {"per_shop": "f", "total": "g"}),
    )
    columns = [["id", "string"], ["shop", "string"], ["at", "timestamp"], ["cents", "bigint"], ["weight", "double"]]
    assert received == {
        "version": 1, "columns": columns, "record_id": ["id"], "event_time": "at", "max_ahead": "1 day, 0:00:00",
        "source": {"kind": "files", "format": "json", "max_files_a_batch": 1},
    }  # fmt: skip
    assert written["events"] == {"columns": columns, "event_time": "at"}
    assert written["outputs"]["per_shop"] == {
        "transform": "tests.support.shop_transforms:per_shop", "source": "f", "window": {"kind": "fixed", "size": "0:01:00"},
        "watermark_delay": "0:01:00", "panes": "on_time", "from_output": "events", "target": "delta:shop/per_shop", "write": "append", "keys": [],
        "late": "keep", "on_backfill": "refuse",
    }  # fmt: skip
    assert [identity.digest(received), identity.digest(written)] == ["e23efe9c55def686", "9c77ea2f018e3681"]


def test_the_order_of_columns_and_the_schema_are_part_of_every_query() -> None:
    """A file of CSV has its columns in that order, and a function gets them."""

    def of(schema: str) -> tuple[str, str]:
        output = Output(name="rows", transform="m:f", sink=Delta())
        pipeline = Pipeline(
            name="p", source=Files(format="csv"), schema=schema, record_id="id", event_time="at", outputs=output
        )
        return identity.digest(identity.receive_parts(pipeline)), identity.digest(
            identity.output_parts(pipeline, "rows", {"rows": "f"})
        )

    plain, turned, grown = (
        of("id string, at timestamp"),
        of("at timestamp, id string"),
        of("id string, at timestamp, more int"),
    )
    assert all(len({*each}) == 3 for each in zip(plain, turned, grown, strict=True))
    assert of("id  STRING,at TIMESTAMP") == plain


def test_a_frontier_is_noted_under_the_names_of_its_column() -> None:
    """The note of a commit is compared when the commit is tried again."""
    assert (
        Frontier(max_event_time=5).content
        == '{"ended": null, "max_event_time": 5, "silent_clock": null, "silent_max_event_time": null}'
    )
