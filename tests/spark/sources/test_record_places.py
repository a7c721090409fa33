"""A refused record names its place, its column and the value, whatever its source: by the readers of each form, up to
the row of `events`."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet
from pyspark.sql import SparkSession

from onlyonce.api.messages import Avro, Debezium, JsonSchema, Protobuf
from onlyonce.api.pipeline import Custom, DeltaSource, Files, Growing, Pipeline, PubSub
from onlyonce.core.frontier import Frontier
from onlyonce.engine import session
from onlyonce.receive import batch_files, exchange
from onlyonce.receive.events import Stamp
from onlyonce.sources import folders, source_files
from onlyonce.sources.lines import Lines
from onlyonce.sources.pubsub_lines import Message, line
from onlyonce.sources.source_files import Inbox
from onlyonce.sources.source_kafka import Topic
from tests.spark.sources.test_kafka_source import DRIVER, NOON, Run
from tests.support import debezium_messages, schema_registry
from tests.support.broker import Broker
from tests.support.framed_messages import SALE, Serializers
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOW = datetime(2026, 6, 1, tzinfo=UTC)
AT = datetime(2026, 1, 1, tzinfo=UTC)
EVIL = "x\x1b\0y"
OF_LINES = "column shop: x\\x1b\\x00y"
OF_COLUMNS = "column shop is no string: x\\x1b\\x00y"
SALES = [
    {"id": name, "shop": shop, "at": AT.isoformat(), "cents": 1, "weight": 0.5}
    for name, shop in (("a", "x"), ("b", "y"), ("c", EVIL), ("d", "z"))
]
"""The third is refused."""
TYPED = pa.Table.from_pylist([sale | {"at": AT} for sale in SALES])
JSON = [json.dumps(sale).encode() + b"\n" for sale in SALES]
CSV = [",".join(map(str, sale.values())).encode() + b"\n" for sale in SALES]
PUBSUB = PubSub(subscription="projects/shop/subscriptions/sales", record_id_attribute="id")
LANDED = [
    line(Message("", "m", {"id": str(sale["id"])}, json.dumps(sale | {"id": "stolen"}).encode(), 1), PUBSUB).encode()
    + b"\n"
    for sale in SALES
]


def refused(spark: SparkSession, lines: Lines, pipeline: Pipeline, folder: Path) -> dict[str, str]:
    """Return the reasons of the invalid rows that a task of receive writes, by their places."""
    task = batch_files.without_catalog(Stamp(NOW, "shop/receive/1", 7, Frontier(), places=lines.places), folder)
    rows = exchange.mapped(
        exchange.records(spark, lines, pipeline, NOW), task, session.schema_of(batch_files.GIVES)
    ).collect()
    found = [
        (Path(row.path).parent.name, one) for row in rows for one in parquet.ParquetFile(row.path).read().to_pylist()
    ]
    assert all("oo_place" not in one for kind, one in found if kind == "oo_kind=kept"), "a kept record has no place"
    return {one["oo_place"]: one["oo_reason"] for kind, one in found if kind == "oo_kind=invalid"}


def of_files(spark: SparkSession, source: Any, inbox: Path, home: Path) -> dict[str, str]:
    """Return the reasons of the invalid records of all that a source has now, by their places."""
    pipeline = replace(SHOP, source=source)
    listed = source_files.placed(
        Inbox("shop", inbox, home / "files", 100, pipeline, folders=folders.of(pipeline)), lambda: spark
    )
    files = [file for batch in source_files.waiting(listed) for file in batch]
    lines, _ = source_files.lines(spark, pipeline, files, source_files.unreadable(pipeline, files))
    return refused(spark, lines, pipeline, home / "events")


def _avro(path: Path) -> None:
    schema = SALE | {
        "fields": [
            one | {"type": {"type": "long", "logicalType": "timestamp-micros"}} if one["name"] == "at" else one
            for one in SALE["fields"]
        ]
    }
    with path.open("wb") as file:
        fastavro.writer(file, schema, TYPED.to_pylist())


BYTE, OF_CSV, OF_LANDED = (len(lines[0]) + len(lines[1]) for lines in (JSON, CSV, LANDED))
FORMS: dict[str, tuple[Any, str, Callable[[Path], Any], str]] = {
    # source, file, what writes it, the place
    "JSON lines": (Files(), "a.jsonl", lambda path: path.write_bytes(b"".join(JSON)), f"{{path}}, byte {BYTE}"),
    "CSV": (Files(format="csv"), "a.csv", lambda path: path.write_bytes(b"".join(CSV)), f"{{path}}, byte {OF_CSV}"),
    "compressed JSON": (Files(), "a.jsonl.bz2", lambda path: path.write_bytes(bz2.compress(b"".join(JSON))), f"{{path}}, byte {BYTE} of its content"),
    "packed CSV": (Files(format="csv"), "a.csv.gz", lambda path: path.write_bytes(gzip.compress(b"".join(CSV))), f"{{path}}, byte {OF_CSV} of its content"),
    "growing": (Growing(), "a.log", lambda path: path.write_bytes(b"".join(JSON)), f"{{path}}, byte {BYTE}"),
    "Pub/Sub": (PUBSUB, "pubsub-1.jsonl", lambda path: path.write_bytes(b"".join(LANDED)), f"{{path}}, byte {OF_LANDED}"),
    "Parquet": (Files(format="parquet"), "a.parquet", lambda path: parquet.write_table(TYPED, path, row_group_size=2), "{path}, row 2"),
    "Avro": (Files(format="avro"), "a.avro", _avro, "{path}, row 2"),
    "Delta": (None, "table", lambda path: write_deltalake(str(path), TYPED), "version 0, {path}, row 2"),
    "custom": (None, "a.jsonl", lambda path: path.write_bytes(b"".join(JSON)), "part a.jsonl, record 2"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_refused_record_names_place_column_and_value(form: str, spark: SparkSession, tmp_path: Path) -> None:
    """Control characters of the value are written out. A kept record costs nothing: it has no such column."""
    source, name, write, place = FORMS[form]
    inbox = tmp_path / "in"
    inbox.mkdir()
    path = inbox / name
    write(path)
    if form == "Delta":
        source = DeltaSource(path=str(path))
        [path] = path.glob("*.parquet")
    if form == "custom":
        source = Custom(reader="tests.support.readers:Lines", options={"folder": str(inbox)}, needs_dedup=True)

    [(found, reason)] = of_files(spark, source, inbox, tmp_path).items()

    named = path.name if form == "Delta" else str(path)
    assert found == place.format(path=named)
    assert (OF_COLUMNS if form in ("Parquet", "Avro", "Delta", "custom") else OF_LINES) in reason


def test_refused_file_and_line_name_their_places(spark: SparkSession, tmp_path: Path) -> None:
    """A file that can't be read is named as a whole; a line that is too large, too, by its first byte."""
    (tmp_path / "in").mkdir()
    lines = tmp_path / "in/a.jsonl"
    wrong = JSON[1].replace(b'"cents": 1', b'"cents": "\\u001b"')
    lines.write_bytes(JSON[0] + b"{\n" + wrong + b"x" * 300 + b"\n")
    (tmp_path / "in/b.jsonl.gz").write_bytes(b"bad")

    found = of_files(spark, Files(max_record_bytes=200), tmp_path / "in", tmp_path)

    after = len(JSON[0]) + 2
    long = after + len(wrong)
    by_place = {place.removeprefix(f"{tmp_path}/in/"): reason for place, reason in found.items()}
    assert "no JSON object" in by_place["a.jsonl, byte " + str(len(JSON[0]))]
    assert by_place[f"a.jsonl, byte {after}"] == "column cents is no bigint: \\x1b"
    assert "b.jsonl.gz" in by_place
    assert [place for place, reason in by_place.items() if "max_record_bytes" in reason] == [f"a.jsonl, byte {long}"]


def test_refused_message_names_topic_partition_and_offset(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """By each format of its value, and of Debezium's envelopes."""
    sale = SALES[2] | {"at": 0}
    customer = [{"name": "id", "type": "string"}, {"name": "shop", "type": "string"}]
    change = debezium_messages.envelope("c", None, {"id": "c", "shop": EVIL}, {"connector": "postgresql", "lsn": 5})
    with schema_registry.running() as registry:
        write = Serializers(registry.url, "sales")
        forms: dict[str, tuple[Any, bytes]] = {
            "json": (None, JSON[2]), "avro": (Avro(registry=registry.url), write.avro(SALE, sale)),
            "protobuf": (Protobuf(registry=registry.url), write.protobuf(sale)), "schema": (JsonSchema(registry=registry.url), write.json(SALES[2])),
            "debezium": (Debezium(), json.dumps(change).encode()),
            "debezium avro": (Debezium(format=Avro(registry=registry.url)), write.avro(debezium_messages.envelope_of(customer), change | {"source": change["source"] | {"snapshot": "false"}})),
        }  # fmt: skip
        for form, (value, message) in forms.items():
            run = Run(spark, broker, tmp_path / form, broker.topic("shop"))
            broker.produce(run.name, message, message)
            source = replace(run.source, **({"value": value} if value else {}))
            declared: dict[str, Any] = {"schema": SHOP.schema}
            if isinstance(value, Debezium):
                kinds = "id string, shop string, op string, position string, changed_at timestamp"
                declared = {"schema": kinds, "record_id": ("id", "position"), "event_time": "changed_at"}
            if value and form != "debezium":
                declared["schema"] += ", schema_id int"
            topic = Topic(replace(SHOP, source=source, **declared), source, "shop", tmp_path / form / "ranges")
            topic.register(spark, DRIVER, NOON)
            [batch] = run.batches(topic)
            lines, _ = batch.lines(batch.unreadable())

            found = refused(spark, lines, topic.pipeline, tmp_path / form / "events")

            assert sorted(found) == [f"topic {run.name}, partition 0, offset {offset}" for offset in (0, 1)], form
            shown = OF_COLUMNS if form in ("avro", "protobuf") else OF_LINES
            assert all(shown in reason for reason in found.values()), (form, found)
