"""Messages whose value or key is written by a schema of a registry: which schemas a batch has, and its messages as
rows.

The driver looks which schema ids the messages of a batch name, by one more read of their first five bytes, and asks the
registry for those. So tasks need no registry and no secrets, and what a batch does not find is a fact of its row: a
replay decides the same, whatever the registry has by then.

Who calls it: `source_kafka`. Errors: those of `schema_registry`; Refused for a schema that was there when the batch
began, and for very many that the registry does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.declare.pipeline import Pipeline, split_ddl
from onlyonce.declare.sources.kafka import Kafka
from onlyonce.declare.sources.message_formats import JsonSchema
from onlyonce.model.errors import Refused
from onlyonce.session import worker
from onlyonce.session.names import quoted
from onlyonce.session.worker import Batches
from onlyonce.sources.formats import avro_envelopes, decoding, framing, schema_registry
from onlyonce.sources.formats.converting import Wanted
from onlyonce.sources.formats.decoding import Part, Read
from onlyonce.sources.kafka import kafka_reader
from onlyonce.sources.kafka.kafka_reader import KEY, VALUE
from onlyonce.sources.kafka.offsets import Range
from onlyonce.sources.lines import LINE
from onlyonce.sources.parse import coercion
from onlyonce.sources.parse.parse import BESIDE

MOST_UNKNOWN = 1000
"""Ids in one batch that the registry does not know. A topic that has more is written by something else than
serializers. Of those that it knows there may be any number."""
Ids = dict[str, list[int]]
"""By 'value' and 'key', which schemas the messages of a batch name."""


def named(spark: SparkSession, source: Kafka, ranges: list[Range]) -> Ids:
    """Which schemas the messages of some ranges name."""
    parts = [*source.registered]
    if not parts or not ranges:
        return {part: [] for part in parts}
    framed = [
        F.when(F.substring(part, 1, 1) == F.lit(b"\0"), F.substring(part, 1, framing.HEAD)).alias(part)
        for part in parts
    ]
    heads = kafka_reader.messages(spark, source, ranges).select(*framed).distinct().toArrow()
    ids = {part: framing.schema_ids(pc.cast(heads[part].combine_chunks(), pa.binary())) for part in parts}
    return {part: sorted({*ids[part].tolist()} - {framing.NONE}) for part in parts}


def unknown(source: Kafka, ids: Ids) -> dict[str, Any]:
    """What the registry has no schema of, as facts of the batch's row. Raises Refused for too many."""
    of = source.registered
    found = {part: schema_registry.unknown(of[part], numbers, MOST_UNKNOWN) for part, numbers in ids.items()}
    if any(len(numbers) > MOST_UNKNOWN for numbers in found.values()):
        raise Refused(
            f"one batch of topic {source.topic} names more than {MOST_UNKNOWN} schemas that the registry does not "
            "know: its messages are not framed as declared",
            data="nothing of the batch was read; no record became invalid",
            hint="see what is in the topic; a declaration without value= reads plain JSON",
        )
    return {
        _fact(part, number): {
            "reason": f"the message's {part} has the schema id {number}, which the registry does not know",
            "schema": number,
        }
        for part, numbers in found.items()
        for number in numbers
    }


def rows(messages: DataFrame, pipeline: Pipeline, source: Kafka, ids: Ids, facts: Mapping[str, Any]) -> DataFrame:
    """Messages as `kafka_reader.values` gives them → rows as `gives` says."""
    parts = [_part(pipeline, source, part, ids[part], facts) for part in source.registered]
    schema = gives(pipeline, source, envelope=False)
    wanted = coercion.declared(schema)

    def of_task(batches: Batches) -> Batches:
        readers = {one.name: decoding.reader(one) for one in parts}
        for batch in batches:
            found = {name: read(batch.column(_packed(name))) for name, read in readers.items()}
            yield _row_batch(batch, found, source, wanted)

    return worker.mapped(messages, of_task, schema)


def gives(pipeline: Pipeline, source: Kafka, *, envelope: bool = True) -> str:
    """The columns of `rows`, in DDL: the declared ones, or a line of JSON with what comes beside it.

    `envelope`: when the one of a change is taken apart.
    """
    if source.format != "json":
        return f"{coercion.BESIDE}, {pipeline.schema}"
    typed = dict(zip(coercion.declared(pipeline.schema).names, split_ddl(pipeline.schema), strict=True))
    beside = [
        f"{quoted(BESIDE + name)} {typed[name].strip().partition(' ')[2]}"
        for name in source.beside
        if envelope or name not in source.of_envelope
    ]
    return ", ".join([LINE, *beside])


def _part(pipeline: Pipeline, source: Kafka, part: str, ids: Iterable[int], facts: Mapping[str, Any]) -> Part:
    of = source.registered[part]
    no = {number: str(facts[_fact(part, number)]["reason"]) for number in ids if _fact(part, number) in facts}
    schemas = {}
    for number in {*ids} - no.keys():
        found = schema_registry.find(of, number)
        if found is None:
            raise Refused(
                f"the registry has no schema {number} any more, which a message's {part} of topic {source.topic} names",
                data="the batch was begun when the schema was there, and waits for it; nothing was skipped",
                hint="put the schema back under its id (a registry restores what was deleted softly), then run "
                "the same command again",
            )
        schemas[number] = found
    if part == "value" and source.of_envelope:
        return Part(part, of, schemas, no, avro_envelopes.WANTED, envelope=True)
    declared = coercion.declared(pipeline.schema)
    here = source.key_columns if part == "key" else [name for name in declared.names if name not in source.beside]
    fields = [] if isinstance(of, JsonSchema) else [declared.field(name) for name in here]
    needed = [name for name in (*pipeline.record_id, pipeline.event_time) if name in {field.name for field in fields}]
    elsewhere = tuple(name for name in declared.names if name not in here)
    return Part(part, of, schemas, no, Wanted(tuple(fields), tuple(needed), elsewhere))


def _fact(part: str, number: int) -> str:
    return f"the {part}'s schema {number}"


def _packed(part: str) -> str:
    return VALUE if part == "value" else KEY


def _row_batch(batch: pa.RecordBatch, found: Mapping[str, Read], source: Kafka, wanted: pa.Schema) -> pa.RecordBatch:
    reason, line = batch.column("oo_refused"), batch.column("oo_line")
    here: dict[str, pa.Array] = {}
    for part, read in found.items():
        reason = pc.coalesce(reason, read.reasons)
        here |= dict(zip(read.columns.schema.names, read.columns.columns, strict=True))
        here[source.schema_ids[part]] = read.ids
    if "value" in found:
        # Of what can't be read all bytes are kept, but of a message that is too large, which has how it begins.
        value, too_large = batch.column(VALUE), pc.not_equal(line, "")
        text = _text(value, found["value"], source)
        is_text = text.is_valid()
        packed = pc.and_(reason.is_valid(), pc.invert(pc.or_(is_text, too_large)))
        line = pc.if_else(too_large, line, pc.if_else(packed, _hex(value, packed), text))
    here |= {name: batch.column(f"{BESIDE}{name}") for name in source.headers}
    if isinstance(source.key, str):
        here[source.key] = batch.column(f"{BESIDE}{source.key}")
    if source.format == "json":
        here = {f"{BESIDE}{name}": column for name, column in here.items()}
    else:
        here["oo_rest"] = found["value"].rest
    here |= {
        "oo_line": line,
        "oo_refused": reason,
        "oo_file": batch.column("oo_file"),
        "oo_position": batch.column("oo_position"),
    }
    return pa.RecordBatch.from_arrays(
        [here[name].cast(wanted.field(name).type) for name in wanted.names], schema=wanted
    )


def _text(values: pa.Array, read: Read, source: Kafka) -> pa.Array:
    """Each message as a line; null of one that is no text. Framed JSON is one, whatever its schema says of it."""
    if source.format != "json":
        return pa.nulls(len(values), pa.string())
    if source.of_envelope:
        return read.columns.column(avro_envelopes.TEXT)
    text = pc.ascii_rtrim(pc.fill_null(framing.bodies(values), b"").view(pa.string()), characters="\r\n")
    return pc.if_else(read.ids.is_valid(), text, pa.scalar(None, pa.string()))


def _hex(values: pa.Array, which: pa.Array) -> pa.Array:
    if not which.true_count:
        return pa.nulls(len(values), pa.string())
    texts = iter([value.hex().upper() if value is not None else "" for value in values.filter(which).to_pylist()])
    return pa.array([next(texts) if one else None for one in which.to_pylist()], pa.string())
