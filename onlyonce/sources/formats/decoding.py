"""Turns the messages of a task into rows: by the schema of each, in whole arrays, with a reason for each that can't be
read.

The messages of one schema are converted together. Where that fails they are halved until those that fail stand alone,
so a bad message costs some calls, and its neighbours nothing.

Who calls it: `kafka_schemas`. Errors: none of a message, each has a row; those of a machine that lacks memory or a
library. A row depends on its message and its schema alone, never on its neighbours, so a replay gives the same however
it is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onlyonce.declare.sources.message_formats import JsonSchema, MessageFormat
from onlyonce.model.stored_names import OO_REASON
from onlyonce.sources.files.listing import Damaged
from onlyonce.sources.formats import avro_envelopes, avro_messages, framing, json_messages, protobuf_messages
from onlyonce.sources.formats.converting import Columns, Wanted
from onlyonce.sources.formats.schema_registry import Schema

KINDS = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON Schema"}
UNFRAMED = "the message's {part} does not begin with a zero byte and the id of a schema"
UNLIKE = "the message's {part} is not what schema {number} says"
NO_FAULT_OF_A_MESSAGE = (MemoryError, ImportError)
"""The machine's: elsewhere the message would be read."""
Convert = Callable[[pa.Array], Columns]


@dataclass(frozen=True)
class Part:
    """The value or the key of a message, its format, the schemas that there are by id, and what is wanted of it.

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
    """What has become of a part of each message: the wanted columns, its schema's id, why it can't be read, and what is
    not declared."""

    columns: pa.RecordBatch
    ids: pa.Array
    reasons: pa.Array
    rest: pa.Array


def reader(part: Part) -> Callable[[pa.Array], Read]:
    """What reads a part of messages, as bytes; a null is left alone."""
    converters: dict[int, Convert | str] = {}

    def read(messages: pa.Array) -> Read:
        ids = framing.schema_ids(messages)
        there = messages.is_valid().to_numpy(zero_copy_only=False)
        pieces = [_without(part, np.flatnonzero(~there), None)]
        for number in np.unique(ids[there]).tolist():
            rows = np.flatnonzero(there & (ids == number))
            if number not in converters:
                converters[number] = _converter(part, number)
            pieces += _of_schema(part, converters[number], number, framing.bodies(messages.take(pa.array(rows))), rows)
        rows = np.concatenate([of for of, _ in pieces])
        batch = pa.concat_batches([one for _, one in pieces]).take(pa.array(np.argsort(rows)))
        columns = pa.RecordBatch.from_arrays(batch.columns[:-2], schema=part.wanted.schema)
        known = pa.array(ids, mask=ids == framing.NONE).cast(pa.int64())
        # An id is four bytes without a sign, and the column an int: no registry has given out more.
        return Read(columns, known.cast(pa.int32(), safe=False), batch.column(-2), batch.column(-1))

    return read


Piece = tuple[NDArray[np.int64], pa.RecordBatch]


def _converter(part: Part, number: int) -> Convert | str:
    """What converts messages of a schema; or why none can be read."""
    if number == framing.NONE:
        return UNFRAMED.format(part=part.name)
    if number in part.unknown:
        return part.unknown[number]
    schema = part.schemas[number]
    try:
        if schema.kind != part.format.kind:
            raise Damaged(f"it is {KINDS.get(schema.kind, schema.kind)}, and declared is {KINDS[part.format.kind]}")
        if isinstance(part.format, JsonSchema):
            return json_messages.converter(schema, part.wanted, validate=part.format.validate)
        if part.envelope:
            return avro_envelopes.converter(schema)
        of = avro_messages if part.format.kind == "AVRO" else protobuf_messages
        return of.converter(schema, part.wanted)
    except NO_FAULT_OF_A_MESSAGE:
        raise
    except Exception as error:  # a schema may be of a kind that nobody has thought of
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
    except Exception as error:  # the readers raise whatever a damaged byte leads them to
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
    """Rows of which nothing was read."""
    empty = [pa.nulls(len(rows), field.type) for field in part.wanted.fields]
    return rows, _piece(
        part, empty, pa.repeat(pa.scalar(reason, pa.string()), len(rows)), pa.nulls(len(rows), pa.string())
    )


def _piece(part: Part, columns: list[pa.Array], reasons: pa.Array, rest: pa.Array) -> pa.RecordBatch:
    ours = [pa.field(OO_REASON, pa.string()), pa.field("oo_rest", pa.string())]
    return pa.RecordBatch.from_arrays([*columns, reasons, rest], schema=pa.schema([*part.wanted.fields, *ours]))
