"""Plays what becomes of messages by their schemas, without Kafka and Spark: each alone and all together give what the
transcript says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from onlyonce.api.messages import Avro, JsonSchema, MessageFormat
from onlyonce.sources.kafka_messages import Part, decoding_reader
from onlyonce.sources.message_formats import Wanted
from onlyonce.sources.schema_registry import Schema
from onlyonce.sources.values import coercion
from tests.support.framed_messages import avro, framed

STORIES = sorted((Path(__file__).parent / "messages").glob("*.yaml"))
FORMATS: dict[str, type[MessageFormat]] = {"avro": Avro, "json": JsonSchema}
WORDS = {"schema", "value", "text", "bytes", "becomes", "invalid", "fine", "not declared"}


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_each_message_becomes_what_the_transcript_says(path: Path) -> None:
    """Its columns, or why it is invalid, and what of it is not declared."""
    told = yaml.safe_load(path.read_text())
    of = FORMATS[told["format"]](registry="http://registry")
    schemas = {number: Schema(of.kind, json.dumps(one)) for number, one in told["schemas"].items()}
    columns = tuple(coercion.declared(told["declared"])) if told["format"] == "avro" else ()
    unknown = {9: "the registry does not know 9"}
    wanted = Wanted(columns, tuple(told["needed"].split(", ")) if columns else ())
    read = decoding_reader(Part("value", of, schemas, unknown, wanted))
    values = [_bytes(one, told["schemas"]) for one in told["messages"]]

    together = read(pa.array(values, pa.binary()))

    assert together.reasons.to_pylist() == [one.get("invalid") for one in told["messages"]]
    assert together.rest.to_pylist() == [one.get("not declared") for one in told["messages"]]
    if columns:
        rows = [
            {name: value if name != "at" or value is None else str(value) for name, value in row.items()}
            for row in together.columns.to_pylist()
        ]
        assert rows == [one.get("becomes", dict.fromkeys(row)) for one, row in zip(told["messages"], rows, strict=True)]
    assert [read(pa.array([value], pa.binary())).reasons[0].as_py() for value in values] == together.reasons.to_pylist()


def _bytes(one: dict[str, Any], schemas: dict[int, Any]) -> bytes:
    assert set(one) <= WORDS, f"no words of a transcript: {set(one) - WORDS}"
    if "bytes" in one:
        return bytes.fromhex(one["bytes"])
    if "text" in one:
        return framed(one["schema"], one["text"].encode())
    return avro(schemas[one["schema"]], one["value"], one["schema"])
