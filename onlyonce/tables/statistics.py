"""The statistics by which Delta skips files: a file's number of rows, and each column's least, largest and nulls.

They come from the file's own footer, without reading the rows, and equal the statistics of Spark's writer (a test
compares them). What a footer does not have is left out. Lists and maps have no statistics: a footer does not count
their nulls. Pure except for the footer, which the caller has read.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType, StructType
from pyarrow import parquet

from onlyonce.core.locations import Location
from onlyonce.tables import opening, stores
from onlyonce.tables.commit import SKIPPING
from onlyonce.tables.opening import LOG

NUMBER = "delta.dataSkippingNumIndexedCols"
FIRST = 32
"""The number of first columns with statistics, if a table does not set another one. A structure counts as its
fields.
"""
PREFIX = 32
"""How many characters of a string are kept."""
LAST = chr(0x10FFFF)
"""Sorts after each other character: a string that was cut, with LAST at the end, is an upper bound of the whole
string.
"""


Column = tuple[str, ...]
"""A column, or a field inside structures, by the names on the path to it."""
PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def columns(table: DeltaTable) -> Sequence[Column]:
    """Return the columns of a table by which its files are skipped: the columns that it names, or its first ones."""
    metadata = table.metadata()
    leaves = [
        leaf
        for field in table.schema().fields
        if field.name not in metadata.partition_columns
        for leaf in _leaves(field)
    ]
    plain = {way for way, kind in leaves if isinstance(kind, PrimitiveType)}
    if named := metadata.configuration.get(SKIPPING):
        asked = [_way(name) for name in re.split(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)", named) if name.strip()]
        return [way for way, _ in leaves if way in plain and any(way[: len(one)] == one for one in asked)]
    number = int(metadata.configuration.get(NUMBER, FIRST))
    return [way for way, _ in (leaves if number < 0 else leaves[:number]) if way in plain]


def _leaves(field: Field, above: Column = ()) -> Iterator[tuple[Column, Any]]:
    way = (*above, field.name)
    if isinstance(field.type, StructType):
        for inside in field.type.fields:
            yield from _leaves(inside, way)
    else:
        yield way, field.type


def _way(name: str) -> Column:
    return tuple((quoted or plain).replace("``", "`") for quoted, plain in PART.findall(name.strip()))


def of(footer: parquet.FileMetaData, names: Sequence[Column]) -> dict[str, Any]:
    """Return the statistics of one file in the form of Delta's log.

    A column is left out if a part of the file lacks its statistics. Times are in whole milliseconds, the largest
    rounded up. A long string is cut.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    if not names:
        return {"numRecords": footer.num_rows}
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    # A footer joins names by dots, and a name may contain one: two equal paths get no statistics.
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    alike = Counter(".".join(name) for name in names)
    for name in names:
        path = ".".join(name)
        if path not in places or alike[path] > 1:
            continue
        parts = [group.column(places[path]).statistics for group in groups]
        if not parts or any(part is None or not part.has_null_count for part in parts):
            continue
        _say(found["nullCount"], name, sum(part.null_count for part in parts))
        known = [part for part in parts if part.has_min_max]
        if known and all(part.has_min_max or not part.num_values for part in parts):
            try:
                least, largest = (
                    _said(min(part.min for part in known), up=False),
                    _said(max(part.max for part in known), up=True),
                )
            except UnicodeDecodeError:
                continue  # a string that is not UTF-8: it has no form in the log, which is JSON
            if least is not None and largest is not None:
                _say(found["minValues"], name, least)
                _say(found["maxValues"], name, largest)
    return found


def _say(found: dict[str, Any], name: Column, value: Any) -> None:
    for above in name[:-1]:
        found = found.setdefault(above, {})
    found[name[-1]] = value


def _said(value: Any, *, up: bool) -> Any:
    """Return a bound as stored in the log; None if it can't have it."""
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, str):
        if up and value[PREFIX : PREFIX + 1] == LAST:
            return None  # no beginning of it with LAST at the end is as large
        return value if len(value) <= PREFIX else value[:PREFIX] + (LAST if up else "")
    if isinstance(value, datetime):
        return _milliseconds(value, up=up)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _exact(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _milliseconds(value: datetime, *, up: bool) -> str | None:
    rest = value.microsecond % 1000
    whole = value - timedelta(microseconds=rest)
    if up and rest:
        try:
            whole += timedelta(milliseconds=1)
        except OverflowError:  # in the last possible millisecond, which has no later bound
            return None
    text = (whole.astimezone(UTC) if whole.tzinfo else whole).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _exact(value: Decimal) -> float | int | None:
    """Return a decimal as a JSON number if that is exact; a rounded one would be no bound."""
    number = int(value) if value == value.to_integral_value() else float(value)
    return number if Decimal(str(number)) == value else None


# Removes the smallest and largest values of columns from a Delta table's log, in the entries that a search names.
#
# The rows stay, and every version can be read as before.
#
# An entry is replaced by one with the same actions without these statistics, so readers skip fewer files. An erasure
# uses this; no driver may write to the table meanwhile.


BOUNDS = ("minValues", "maxValues")


def remove_statistics(path: Location, mentioned: Callable[[Location], bool]) -> None:
    """Rewrite the entries for which `mentioned` is true; replace mentioned checkpoints by a new one of the last
    version.
    """
    store, log = stores.of(path), path / LOG
    # Delta has folders in its log's folder; `look` does not return them as files.
    named = sorted(name for name in store.names(log) if store.look(log / name) and mentioned(log / name))
    for name in named:
        if name.endswith(".json") and name[:20].isdecimal():
            lines = store.read(log / name).decode().splitlines()
            store.put(log / name, "".join(f"{_without(line)}\n" for line in lines).encode())
            store.delete(log / f".{name}.crc")  # Hadoop's checksum of the file as it was
        elif name.endswith(".crc"):
            store.delete(log / name)  # a copy of a version's data, for speed only
    if any(".checkpoint" in name for name in named):
        table = opening.table(path)
        table.create_checkpoint()
        last = f"{table.version():020}.checkpoint.parquet"
        for name in named:
            if ".checkpoint" in name and name != last:
                store.delete(log / name)
                store.delete(log / f".{name}.crc")


def _without(line: str) -> str:
    action = json.loads(line)
    for file in (action.get("add"), action.get("remove")):
        if file and isinstance(file.get("stats"), str):
            stats = {name: value for name, value in json.loads(file["stats"]).items() if name not in BOUNDS}
            file["stats"] = opening.text(stats)
    return opening.text(action)
