"""Columns that all rows of a data file share and that are not in it: partition columns, and those of the change data
feed.

The table's log has their values as strings, which the conversion table reads as it reads a value of CSV.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pyarrow as pa

from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.values import conversions
from onlyonce.model.values.conversions import Cell, Unfit
from onlyonce.sources.parse import coercion

ZONED = re.compile(r"(?:Z|[+-][0-9]{2}:?[0-9]{2})\Z")
Shared = tuple[tuple[str, str | None, str], ...]
"""(column, value as the log has it, type in Delta's words) of each."""


def of(mark: str) -> Shared:
    """Those that the entry of a data file in the registry names."""
    return tuple((name, value, kind) for name, value, kind in json.loads(mark)[stored_names.MARK_SHARED])


def check(path: str, shared: Sequence[tuple[str, str | None, str]]) -> None:
    """See that each value can be read. Raises Refused."""
    for name, value, kind in shared:
        try:
            _value(value, kind)
        except Unfit as why:
            because = f" ({why})" if str(why) else ""
            raise Refused(
                f"{path}: its partition column {name} is {value!r}, which can't be read as {kind}{because}",
                data="nothing of its version was read",
                hint="a time without its zone means another instant in each session's zone; leave the column out "
                "of the schema by a copy of the table",
            ) from why


def put(batch: pa.RecordBatch, shared: Shared) -> pa.RecordBatch:
    """The rows with the columns in them; what a file has under such a name gives way."""
    columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
    columns |= {name: pa.repeat(_value(value, kind), batch.num_rows) for name, value, kind in shared}
    return pa.RecordBatch.from_pydict(columns) if columns else batch


def _value(text: str | None, kind: str) -> pa.Scalar:
    wanted = coercion.declared(f"c {kind}").field(0).type
    if not text:
        return pa.scalar(None, wanted)
    if kind == "timestamp" and not ZONED.search(text):
        raise Unfit("it has no zone")
    return pa.scalar(conversions.of_cell(kind)(Cell(text), []), wanted)
