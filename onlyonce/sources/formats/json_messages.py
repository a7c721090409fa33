"""Holds JSON values against their JSON Schema. They are read as plain JSON by whoever reads lines.

Who calls it: `decoding`. Errors: Damaged for a schema that is none. A schema that it names must be in the registry:
nothing is fetched from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from onlyonce.model.record_size import Damaged
from onlyonce.model.visible import in_line
from onlyonce.sources.formats.converting import Columns, Wanted
from onlyonce.sources.formats.schema_registry import Schema

TOLD = 200
"""Of what the validator says, in signs."""


def converter(schema: Schema, wanted: Wanted, *, validate: bool) -> Callable[[pa.Array], Columns]:
    """What sees that messages are what their schema says. It gives no columns. Raises Damaged."""
    why = _checker(schema)

    def convert(bodies: pa.Array) -> Columns:
        for body in bodies.to_pylist() if validate else ():
            if (reason := why(body)) is not None:
                raise Damaged(reason)
        return wanted.fitted({}, len(bodies), ())

    return convert


def _checker(schema: Schema) -> Callable[[bytes], str | None]:
    """What says why a text is not what the schema says; None where it is, and for what is no JSON: the parser tells
    that."""
    import jsonschema_rs

    named = dict(schema.references)

    def retrieve(uri: str) -> Any:
        name = next((name for name in named if uri == name or uri.endswith(f"/{name}")), None)
        if name is None:
            raise LookupError(uri)
        return json.loads(named[name])

    try:
        validator = jsonschema_rs.validator_for(json.loads(schema.text), retriever=retrieve)
    except Exception as error:  # whatever a wrong schema leads the validator to
        raise Damaged(f"it is no JSON Schema that can be read: {type(error).__name__}") from error

    def why(body: bytes) -> str | None:
        try:
            value = json.loads(body.decode())
        except (ValueError, RecursionError):
            return None
        if validator.is_valid(value):
            return None
        first = next(iter(validator.iter_errors(value)))
        return in_line(first.message[:TOLD])

    return why
