"""What Delta skips files by: the number of rows of a file, and of each column least, largest and nulls, from the file's own footer.

The same as Spark's writer would have put into the log (a test holds it beside that), without a second look at the rows. Pure but for
the footer, which the caller has read. Who calls it: `own_tables`. Errors: none; of what a footer does not say, nothing is said.
Not promised: anything of fields inside a structure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from deltalake import DeltaTable
from deltalake.schema import PrimitiveType
from pyarrow import parquet

from onlyonce.storage.delta import SKIPPING

NUMBER = "delta.dataSkippingNumIndexedCols"
FIRST = 32
"""Of so many columns Delta keeps them, where a table does not say another number."""
PREFIX = 32
"""So many characters of a text are kept."""
LAST = chr(0x10FFFF)
"""Comes after each other character: a text that was cut, with it at the end, bounds what it was cut from."""


def columns(table: DeltaTable) -> Sequence[str]:
    """The columns of a table by which its files are skipped: those that it names, or its first ones."""
    configuration = table.metadata().configuration
    if named := configuration.get(SKIPPING):
        return [name for name in named.split(",") if name]
    number = int(configuration.get(NUMBER, FIRST))
    fields = table.schema().fields
    plain = [field for field in (fields if number < 0 else fields[:number]) if isinstance(field.type, PrimitiveType)]
    return [field.name for field in plain]


def of(footer: parquet.FileMetaData, names: Sequence[str]) -> dict[str, Any]:
    """Of one file, as Delta's log has it.

    A column of which a part of the file says nothing is left out. Times are in whole milliseconds, the largest rounded up; of
    a long text there is the beginning.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    if not names:
        return {"numRecords": footer.num_rows}
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    for name in names:
        if name not in places:
            continue
        parts = [group.column(places[name]).statistics for group in groups]
        if not parts or any(part is None or not part.has_null_count for part in parts):
            continue
        found["nullCount"][name] = sum(part.null_count for part in parts)
        known = [part for part in parts if part.has_min_max]
        if known and all(part.has_min_max or not part.num_values for part in parts):
            least, largest = (
                _said(min(part.min for part in known), up=False),
                _said(max(part.max for part in known), up=True),
            )
            if least is not None and largest is not None:
                found["minValues"][name], found["maxValues"][name] = least, largest
    return found


def _said(value: Any, *, up: bool) -> Any:
    """A bound as the log has it; None for one that it does not have."""
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, str):
        return value if len(value) <= PREFIX else value[:PREFIX] + (LAST if up else "")
    if isinstance(value, datetime):
        return _milliseconds(value, up=up)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _exact(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _milliseconds(value: datetime, *, up: bool) -> str:
    rest = value.microsecond % 1000
    whole = value - timedelta(microseconds=rest)
    if up and rest:
        with suppress(OverflowError):  # in the last millisecond that there is
            whole += timedelta(milliseconds=1)
    text = (whole.astimezone(UTC) if whole.tzinfo else whole).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _exact(value: Decimal) -> float | int | None:
    """As a number of JSON, where that is the same number; a rounded one would be no bound."""
    number = int(value) if value == value.to_integral_value() else float(value)
    return number if Decimal(str(number)) == value else None
