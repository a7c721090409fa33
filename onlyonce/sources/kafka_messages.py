"""Turn the messages of a batch into rows by the schema of each, with a reason for each message that can't be read.

The messages of one schema are converted together, in whole arrays. If that fails, they are bisected until each bad
message is alone, so a bad message costs some calls, and its neighbours nothing. A row depends on its message and its
schema alone, never on its neighbours, so a replay gives the same rows however it is cut. Only errors of the machine,
which lacks memory or a library, stop the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.api.messages import JsonSchema, Kafka, MessageFormat
from onlyonce.api.pipeline import Pipeline, split_ddl
from onlyonce.core.errors import Refused
from onlyonce.core.records import Damaged
from onlyonce.core.stored_names import OO_REASON
from onlyonce.engine import worker
from onlyonce.engine.session import quoted
from onlyonce.engine.worker import Batches
from onlyonce.sources import kafka_admin, message_formats, protobuf_messages, schema_registry
from onlyonce.sources.kafka_admin import KEY, VALUE
from onlyonce.sources.kafka_offsets import Range
from onlyonce.sources.lines import LINE_COLUMN
from onlyonce.sources.message_formats import Columns, Wanted
from onlyonce.sources.schema_registry import Schema
from onlyonce.sources.values import coercion
from onlyonce.sources.values.parse import BESIDE

KINDS = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON Schema"}
UNFRAMED = "the message's {part} does not begin with a zero byte and the id of a schema"
UNLIKE = "the message's {part} is not what schema {number} says"
NO_FAULT_OF_A_MESSAGE = (MemoryError, ImportError)
"""Errors of the machine: on another one the message would be read."""
Convert = Callable[[pa.Array], Columns]


@dataclass(frozen=True)
class Part:
    """The value or the key of a message: its format, the schemas by id, and the wanted columns.

    `envelope`: it is Debezium's.
    """

    name: str
    format: MessageFormat
    schemas: Mapping[int, Schema]
    unknown: Mapping[int, str]
    wanted: Wanted
    envelope: bool = False


@dataclass(frozen=True)
class Read:
    """The values read from one part (key or value) of each message.

    It has the wanted columns, the id of the schema, the reason if the part can't be read, and the undeclared names."""

    columns: pa.RecordBatch
    ids: pa.Array
    reasons: pa.Array
    rest: pa.Array


def decoding_reader(part: Part) -> Callable[[pa.Array], Read]:
    """Return a function that reads a part of messages, given as bytes; a null is left alone."""
    converters: dict[int, Convert | str] = {}

    def read(messages: pa.Array) -> Read:
        ids = message_formats.schema_ids(messages)
        there = messages.is_valid().to_numpy(zero_copy_only=False)
        pieces = [_without(part, np.flatnonzero(~there), None)]
        for number in np.unique(ids[there]).tolist():
            rows = np.flatnonzero(there & (ids == number))
            if number not in converters:
                converters[number] = _converter(part, number)
            pieces += _of_schema(
                part, converters[number], number, message_formats.message_bodies(messages.take(pa.array(rows))), rows
            )
        rows = np.concatenate([of for of, _ in pieces])
        batch = pa.concat_batches([one for _, one in pieces]).take(pa.array(np.argsort(rows)))
        columns = pa.RecordBatch.from_arrays(batch.columns[:-2], schema=part.wanted.schema)
        known = pa.array(ids, mask=ids == message_formats.NONE).cast(pa.int64())
        # An id is four unsigned bytes, and the column an int: no registry has assigned larger ids.
        return Read(columns, known.cast(pa.int32(), safe=False), batch.column(-2), batch.column(-1))

    return read


Piece = tuple[NDArray[np.int64], pa.RecordBatch]


def _converter(part: Part, number: int) -> Convert | str:
    """Return what converts messages of a schema, or the reason why none can be read."""
    if number == message_formats.NONE:
        return UNFRAMED.format(part=part.name)
    if number in part.unknown:
        return part.unknown[number]
    schema = part.schemas[number]
    try:
        if schema.kind != part.format.kind:
            raise Damaged(f"it is {KINDS.get(schema.kind, schema.kind)}, and declared is {KINDS[part.format.kind]}")
        if isinstance(part.format, JsonSchema):
            return message_formats.json_converter(schema, part.wanted, validate=part.format.validate)
        if part.envelope:
            return message_formats.envelope_converter(schema)
        if part.format.kind == "AVRO":
            return message_formats.avro_converter(schema, part.wanted)
        return protobuf_messages.converter(schema, part.wanted)
    except NO_FAULT_OF_A_MESSAGE:
        raise
    except Exception as error:  # a schema may be of a kind that was never considered
        told = str(error) if isinstance(error, Damaged) else f"it can't be read ({type(error).__name__})"
        return f"schema {number} of the message's {part.name} does not fit the declaration: {told}"


def _of_schema(
    part: Part, convert: Convert | str, number: int, bodies: pa.Array, rows: NDArray[np.int64]
) -> list[Piece]:
    if isinstance(convert, str):
        return [_without(part, rows, convert)]
    try:
        found = convert(bodies)
    except NO_FAULT_OF_A_MESSAGE:
        raise
    except Exception as error:  # a damaged byte can make the readers raise any error
        if len(rows) == 1:
            told = f"the message's {part.name} by schema {number}: {error}" if isinstance(error, Damaged) else None
            return [_without(part, rows, told or UNLIKE.format(part=part.name, number=number))]
        half = len(rows) // 2
        halves = ((bodies[:half], rows[:half]), (bodies[half:], rows[half:]))
        return [piece for body, of in halves for piece in _of_schema(part, convert, number, body, of)]
    return [
        (
            rows,
            _piece(
                part,
                found.batch.columns,
                pa.nulls(len(rows), pa.string()),
                pa.repeat(pa.scalar(found.rest, pa.string()), len(rows)),
            ),
        )
    ]


def _without(part: Part, rows: NDArray[np.int64], reason: str | None) -> Piece:
    """Return rows without values, with one reason for all."""
    empty = [pa.nulls(len(rows), field.type) for field in part.wanted.fields]
    return rows, _piece(
        part, empty, pa.repeat(pa.scalar(reason, pa.string()), len(rows)), pa.nulls(len(rows), pa.string())
    )


def _piece(part: Part, columns: list[pa.Array], reasons: pa.Array, rest: pa.Array) -> pa.RecordBatch:
    ours = [pa.field(OO_REASON, pa.string()), pa.field("oo_rest", pa.string())]
    return pa.RecordBatch.from_arrays([*columns, reasons, rest], schema=pa.schema([*part.wanted.fields, *ours]))


# Messages whose value or key has a schema in a registry.
#
# The driver reads the first five bytes of the batch's messages for their schema ids, and asks the registry for the
# schemas. So tasks need no registry and no secrets. If the registry does not have an id, the batch's row records that.
# So a replay decides the same, even if the registry has changed since.


MOST_UNKNOWN = 1000
"""The most ids in one batch that the registry does not have. A topic with more is not written by serializers. Any
number of known ids is allowed."""
Ids = dict[str, list[int]]
"""By 'value' and 'key', the schema ids in the messages of a batch."""


def named_schema(spark: SparkSession, source: Kafka, ranges: list[Range]) -> Ids:
    """Return the schema ids in the messages of some ranges."""
    parts = [*source.registered]
    if not parts or not ranges:
        return {part: [] for part in parts}
    framed = [
        F.when(F.substring(part, 1, 1) == F.lit(b"\0"), F.substring(part, 1, message_formats.HEAD)).alias(part)
        for part in parts
    ]
    heads = kafka_admin.read_messages(spark, source, ranges).select(*framed).distinct().toArrow()
    ids = {part: message_formats.schema_ids(pc.cast(heads[part].combine_chunks(), pa.binary())) for part in parts}
    return {part: sorted({*ids[part].tolist()} - {message_formats.NONE}) for part in parts}


def unknown_schemas(source: Kafka, ids: Ids) -> dict[str, Any]:
    """Return the ids without schema in the registry, as facts of the batch's row. Raise Refused for too many."""
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


def rows_of_messages(
    messages: DataFrame, pipeline: Pipeline, source: Kafka, ids: Ids, facts: Mapping[str, Any]
) -> DataFrame:
    """Return messages from `kafka_admin.read_values` as rows with the columns of `gives`.

    Raise Refused for a schema that the registry had when the batch began, and has no more."""
    parts = [_part(pipeline, source, part, ids[part], facts) for part in source.registered]
    schema = gives(pipeline, source, envelope=False)
    wanted = coercion.declared(schema)

    def of_task(batches: Batches) -> Batches:
        readers = {one.name: decoding_reader(one) for one in parts}
        for batch in batches:
            found = {name: read(batch.column(_packed(name))) for name, read in readers.items()}
            yield _row_batch(batch, found, source, wanted)

    return worker.mapped(messages, of_task, schema)


def gives(pipeline: Pipeline, source: Kafka, *, envelope: bool = True) -> str:
    """Return the columns of `rows_of_messages` in DDL.

    They are the declared ones, or a line of JSON with the message's other columns.

    `envelope`: whether the columns of a change's envelope are included.
    """
    if source.format != "json":
        return f"{coercion.BESIDE}, {pipeline.schema}"
    typed = dict(zip(coercion.declared(pipeline.schema).names, split_ddl(pipeline.schema), strict=True))
    beside = [
        f"{quoted(BESIDE + name)} {typed[name].strip().partition(' ')[2]}"
        for name in source.beside
        if envelope or name not in source.of_envelope
    ]
    return ", ".join([LINE_COLUMN, *beside])


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
        return Part(part, of, schemas, no, message_formats.WANTED, envelope=True)
    declared = coercion.declared(pipeline.schema)
    here = source.key_columns if part == "key" else [name for name in declared.names if name not in source.beside]
    fields = [] if isinstance(of, JsonSchema) else [declared.field(name) for name in here]
    needed = [name for name in (*pipeline.record_id, pipeline.event_time) if name in {field.name for field in fields}]
    elsewhere = tuple(name for name in declared.names if name not in here)
    return Part(part, of, schemas, no, Wanted(tuple(fields), tuple(needed), elsewhere))


def _fact(part: str, number: int) -> str:
    """Name a schema that the registry does not know, as the key of a fact in a batch's row. It is stored: keep it."""
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
        # All bytes of an unreadable message are kept; a message that is too large keeps only its beginning.
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
    """Return each message as a line; null if it is not text. Framed JSON is text, whatever its schema says of it."""
    if source.format != "json":
        return pa.nulls(len(values), pa.string())
    if source.of_envelope:
        return read.columns.column(message_formats.TEXT)
    text = pc.ascii_rtrim(
        pc.fill_null(message_formats.message_bodies(values), b"").view(pa.string()), characters="\r\n"
    )
    return pc.if_else(read.ids.is_valid(), text, pa.scalar(None, pa.string()))


def _hex(values: pa.Array, which: pa.Array) -> pa.Array:
    if not which.true_count:
        return pa.nulls(len(values), pa.string())
    texts = iter([value.hex().upper() if value is not None else "" for value in values.filter(which).to_pylist()])
    return pa.array([next(texts) if one else None for one in which.to_pylist()], pa.string())
