"""The data files of a Delta table's version, and which of them may hold rows with certain values. No JVM.

Partition values and statistics decide, without reading the files. A file that may hold such a row need not hold one. A
file without statistics may hold anything. Any file may have the value if the bounds of the column are not compared here
(floats, decimals, bytes, nested values).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any, TypeVar, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from onlyonce.core import ownership, stored_names
from onlyonce.core.locations import Location
from onlyonce.tables import arrow_files, opening

ROUNDING = pa.scalar(timedelta(milliseconds=1))
"""A log has times in milliseconds, and Spark truncates a largest one."""


@dataclass(frozen=True)
class Held:
    """A data file.

    path       relative to the table, as it is in the store (the log escapes some characters)
    partition  the values of the partition columns as the log writes them
    whole      whether all its rows have the values that were asked for
    """

    path: str
    bytes: int
    rows: int | None
    partition: tuple[tuple[str, str | None], ...]
    whole: bool


@dataclass(frozen=True)
class Bounds:
    """Values of one column.

    They lie between `least` and `largest` (None: no value), and are among `among` if it is given. `null`: nulls too.
    """

    least: Any
    largest: Any
    null: bool = False
    among: tuple[Any, ...] | None = None


def holding(table: DeltaTable, asked: Mapping[str, Bounds]) -> list[Held]:
    """Return the files that may hold a row whose every column has one of these values, sorted by path."""
    actions = pa.table(table.get_add_actions(flatten=True))
    by = table.metadata().partition_columns
    kinds = {field.name.lower(): field.name for field in table.schema().fields}
    every = pa.array([True] * actions.num_rows, pa.bool_())
    told = [_told(actions, kinds.get(name.lower(), name), name_by=by, bounds=bounds) for name, bounds in asked.items()]
    may, whole = (reduce(pc.and_, (one[side] for one in told), every) for side in (0, 1))
    columns = ["path", "size_bytes", "num_records", *(f"partition.{name}" for name in by)]
    rows = (
        actions.select([name for name in columns if name in actions.column_names])
        .append_column("whole", whole)
        .filter(may)
    )
    found = (
        Held(
            unquote(row["path"]),
            row["size_bytes"],
            row.get("num_records"),
            tuple((name, partition_text(row[f"partition.{name}"])) for name in by),
            row["whole"],
        )
        for row in rows.to_pylist()
    )
    return sorted(found, key=lambda held: held.path)


def _told(actions: pa.Table, name: str, *, name_by: Sequence[str], bounds: Bounds) -> tuple[pa.Array, pa.Array]:
    """Return for each file whether it may hold such a value, and whether it has no other."""
    if name in name_by:
        value = actions[f"partition.{name}"]
        nulls = pc.is_null(value)
        least = largest = value
    else:
        # A column with a dot in its name may read as a field within a structure: two equal names are unknown.
        known = (
            f"{side}.{name}" if actions.column_names.count(f"{side}.{name}") == 1 else None
            for side in ("min", "max", "null_count")
        )
        least, largest, count = (actions[one] if one else None for one in known)
        nulls = pa.nulls(actions.num_rows, pa.bool_()) if count is None else pc.greater(count, 0)
    within, inside = _compared(actions.num_rows, least, largest, bounds)
    within, inside, nulls = (one.cast(pa.bool_()) for one in (within, inside, nulls))
    may = pc.or_kleene(within, nulls) if bounds.null else within
    only = (
        pc.and_kleene(inside, pc.invert(nulls)) if not bounds.null else pa.array([False] * actions.num_rows, pa.bool_())
    )
    return pc.fill_null(may, True), pc.fill_null(only, False)


def _compared(number: int, least: Any, largest: Any, bounds: Bounds) -> tuple[Any, Any]:
    unknown = pa.nulls(number, pa.bool_())
    if bounds.least is None:
        none = pa.array([False] * number, pa.bool_())
        return none, none
    if least is None or largest is None or not _is_compared(least.type):
        return unknown, unknown
    if pa.types.is_timestamp(largest.type):
        largest = pc.add_checked(largest, ROUNDING.cast(pa.duration(largest.type.unit)))
    low, high = (_as(value, least.type) for value in (bounds.least, bounds.largest))
    within = pc.and_kleene(pc.less_equal(least, high), pc.greater_equal(largest, low))
    if bounds.among is not None:
        exact = pc.equal(least, largest)
        of_them = pc.is_in(least, pa.array([_as(value, least.type).as_py() for value in bounds.among], least.type))
        within = pc.and_kleene(within, pc.or_kleene(of_them, pc.invert(exact)))
        return within, pc.and_kleene(exact, of_them)
    return within, pc.and_kleene(pc.greater_equal(least, low), pc.less_equal(largest, high))


def _is_compared(kind: pa.DataType) -> bool:
    return any(
        told(kind)
        for told in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_integer,
            pa.types.is_date32,
            pa.types.is_timestamp,
        )
    )


def _as(value: Any, kind: pa.DataType) -> pa.Scalar:
    return value.cast(kind) if isinstance(value, pa.Scalar) else pa.scalar(value, kind)


def partition_text(value: Any) -> str | None:
    """Return the value of a partition column as stored in Delta's log.

    It equals what the Delta sink writes, up to the number of zeros in a fraction.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, datetime):
        # Not strftime: on Linux its %Y has no zeros before a year below 1000, and readers take such a time for null.
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, date) else str(value)


# The table next to a sink's Delta table that keeps the keys of deleted rows: where it is, and whether it is the
# platform's. No Spark.


KEEPS = stored_names.KEEPS_PROPERTY
"""The property of that table, with the value DELETED_NOTE."""
PROPERTIES = {KEEPS: stored_names.DELETED_NOTE}


At = TypeVar("At", bound=Location)


def beside(path: At) -> At:
    """Return where the deleted keys of a table are."""
    return cast("At", path.with_name(ownership.FOLDER.deleted(path.name)))


def is_ours(path: Location) -> bool:
    """Return whether there is a table of deleted keys that the platform has made."""
    return opening.any_in(path) and opening.table(path).metadata().configuration.get(KEEPS) == stored_names.DELETED_NOTE


# The rows of `events`, or of a manifest, for a reader without Spark: an Arrow dataset over its files.
#
# delta-rs's own dataset reads through a file system written in Python. If a read stops early (the first rows of many),
# its threads then wait for an interpreter that is ending. The process crashes at its exit, or never ends (deltalake
# 1.6.6 with pyarrow 26.0.1). Here Arrow reads the files itself.
#
# Only for the platform's own tables: other tables may have paths with characters that the Delta log escapes.


def dataset_of_events(events: Location, table: DeltaTable | None = None) -> ds.Dataset:
    """Return the rows as of the table's version, by default its last."""
    return (table or opening.table(events)).to_pyarrow_dataset(filesystem=arrow_files.folder(events))
