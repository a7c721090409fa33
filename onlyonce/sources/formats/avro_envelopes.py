"""Turns Debezium's envelope in Avro into the text that Debezium's JSON converter would have written, so that both are
taken apart by one reader.

Two things are other than there. A decimal is its number, in a text, and not base64 of its bytes. A column has the name
that Avro allows it.

Who calls it: `decoding`. Errors: Damaged for a schema that is no envelope, or can't be read; any error for messages
that are no such Avro.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from onlyonce.model.record_size import Damaged
from onlyonce.sources.formats import avro_messages
from onlyonce.sources.formats.converting import Columns, Wanted
from onlyonce.sources.formats.schema_registry import Schema

TEXT = "oo_text"
WANTED = Wanted((pa.field(TEXT, pa.string()),), ())
"""One column: the envelope in JSON."""
PARTS = ("before", "after", "source", "op")


def converter(schema: Schema) -> Callable[[pa.Array], Columns]:
    """What turns messages of a schema into TEXT. Raises Damaged."""
    parsed = avro_messages.checked(schema)
    there = [field["name"] for field in parsed["fields"]] if isinstance(parsed, dict) and "fields" in parsed else []
    if missing := [part for part in PARTS if part not in there]:
        raise Damaged(
            f"it is no envelope of Debezium, which is a record with {', '.join(PARTS)}: it has no {missing[0]}"
        )
    read = avro_messages.reader(parsed)

    def convert(bodies: pa.Array) -> Columns:
        texts = [_text(row["value"]) for row in read(bodies)]
        return WANTED.fitted({TEXT: pa.array(texts, pa.string())}, len(bodies), (TEXT,))

    return convert


def _text(envelope: Any) -> str:
    try:
        return ENCODE(envelope)
    except ValueError:
        return ENCODE(_named(envelope))


def _named(value: Any) -> Any:
    """With the names of numbers that JSON has not: NaN and Infinity."""
    if isinstance(value, dict):
        return {name: _named(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_named(one) for one in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain(value: Any) -> str:
    """What JSON has no type for, as a text."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


ENCODE = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_plain
).encode
