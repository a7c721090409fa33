"""The content of rows, whatever their order: a count, a hash over the exact values, and exact sums of the floats.

Also write rows as CSV, in one way for files and for PostgreSQL's COPY.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType, VariantType

from onlyonce.core.units import Content, FloatSum
from onlyonce.engine import encoding, worker
from onlyonce.engine.session import quoted


def csv_writer(file: Any, schema: pa.Schema, *, header: bool) -> csv.CSVWriter:
    """Return a writer of record batches. Each valid value is in quotes, so that null and an empty string differ."""
    return csv.CSVWriter(file, schema, write_options=csv.WriteOptions(include_header=header, quoting_style="all_valid"))


# Add up floats exactly, like `math.fsum`, but over whole arrays. The sum does not depend on the order of the floats,
# nor on how they are split.
#
# A double is a whole number of 53 bits times a power of two. So doubles of one exponent are added up as whole numbers.
# The sums of the exponents are added up as Python integers, in units of 2^-1126. The result is rounded once, at the
# end.


LEAST = -1126
"""The exponent of the unit.

It is the smallest exponent of a double by `frexp` (-1073), less the 53 bits of the double's whole number.
"""
BITS, HALF = 53, 27
AT_ONCE = 1 << 25
"""The largest number of 27-bit halves whose sum a double holds exactly: below 2^53."""


@dataclass
class ExactSum:
    """The sums of positive and negative finite floats, in units of 2^LEAST; the counts of NaN, infinity, -infinity."""

    positive: int = 0
    negative: int = 0
    nan: int = 0
    high: int = 0
    low: int = 0

    def add(self, values: NDArray[np.float64]) -> None:
        """Add floats."""
        finite = np.isfinite(values)
        if not finite.all():
            self.nan += int(np.isnan(values).sum())
            self.high += int((values == np.inf).sum())
            self.low += int((values == -np.inf).sum())
            values = values[finite]
        for first in range(0, len(values), AT_ONCE):
            part = values[first : first + AT_ONCE]
            negative = part < 0
            if negative.any():
                self.negative += _sum(-part[negative])
                part = part[~negative]
            self.positive += _sum(part)

    def merge(self, other: ExactSum) -> None:
        """Add the floats of another sum."""
        self.positive += other.positive
        self.negative += other.negative
        self.nan += other.nan
        self.high += other.high
        self.low += other.low

    def rounded(self) -> FloatSum:
        """Return the sums as the log stores them."""
        return FloatSum(
            _rounded(self.positive - self.negative),
            _rounded(self.positive + self.negative),
            self.nan,
            self.high,
            self.low,
        )


def of(values: Iterable[float]) -> FloatSum:
    """Return the sums of some floats."""
    found = ExactSum()
    found.add(np.array([*values], np.float64))
    return found.rounded()


def _sum(values: NDArray[np.float64]) -> int:
    """Return the sum of finite floats that are not negative."""
    if not len(values):
        return 0
    fractions, exponents = np.frexp(values)
    least = int(exponents.min())
    numbers = np.ldexp(fractions, BITS).astype(np.int64)
    places = exponents - least
    upper = np.bincount(places, (numbers >> HALF).astype(np.float64))
    lower = np.bincount(places, (numbers & ((1 << HALF) - 1)).astype(np.float64))
    total = sum(
        ((int(upper[at]) << HALF) + int(lower[at])) << int(at) for at in np.flatnonzero((upper > 0) | (lower > 0))
    )
    return total << (least - BITS - LEAST)


def _rounded(sum_: int) -> float:
    try:
        return sum_ / (1 << -LEAST)
    except OverflowError:
        return float("inf") if sum_ > 0 else float("-inf")


# The content of rows. Floats inside nested columns are summed, too. `Tally` adds up Arrow batches: in the tasks that
# write rows, in the tasks that measure rows before (`tallied`), and in the driver. The figures don't depend on how the
# rows are split, to the last digit.

MASK = (1 << 64) - 1
CARRIED = "oo_float_"
"""The prefix of a column that carries floats of the rows to a Tally and is not written."""
LOW = 0xFFFFFFFF
HASH = "oo_hash"
"""The column with the `row_hash` of each row, until rows are written to a sink."""
BY, RESULT = "oo_by_", "key array<bigint>, tally binary"
Batches = Iterator[pa.RecordBatch]
Key = tuple[int | None, ...]
Check = Callable[[Content], None]
"""Compares the written content with the expected content. Raises InvariantBroken."""


def row_hash(schema: StructType) -> Column:
    """Return a 64-bit hash of the exact columns of a row. A null counts by its position.

    A null inside an array or struct does not: Spark's hash skips it, so `[1, null]` and `[null, 1]` are alike. The hash
    is stored with units that a replay compares, so another form needs a version.
    """
    exact = [
        _exact(F.col(quoted(f.name)), f.dataType)
        for f in schema.fields
        if not isinstance(f.dataType, FloatType | DoubleType)
    ]
    return F.xxhash64(_nulls(schema), *exact)


class Tally:
    """Adds up the content of Arrow batches that carry their `row_hash` in a column.

    `floats`: column → its name in `floats`.
    """

    def __init__(self, hash_column: str, floats: Mapping[str, str]) -> None:
        self._hash_column, self._names = hash_column, floats
        self._rows, self._total, self._xor = 0, 0, 0
        self._floats = {name: ExactSum() for name in floats.values()}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add one batch."""
        hashes = batch.column(self._hash_column).to_numpy(zero_copy_only=False)
        self._rows += batch.num_rows
        self._total += (int((hashes >> 32).sum()) << 32) + int((hashes & LOW).sum())
        self._xor ^= int(np.bitwise_xor.reduce(hashes)) if len(hashes) else 0
        for column, name in self._names.items():
            self._floats[name].add(_values(batch.column(column)))

    def merge(self, other: Tally) -> None:
        """Add what another Tally has counted."""
        self._rows += other._rows
        self._total += other._total
        self._xor ^= other._xor
        for name, added in other._floats.items():
            self._floats[name].merge(added)

    def content(self) -> Content:
        """Return what was counted so far."""
        return Content(
            self._rows, _text(self._total, self._xor), {name: found.rounded() for name, found in self._floats.items()}
        )


def hashed(rows: DataFrame) -> DataFrame:
    """Return rows with their HASH and the floats that a Tally adds up, as columns after the written ones."""
    return rows.select("*", row_hash(rows.schema).alias(HASH), *carried(rows.schema))


def tally_of(columns: Sequence[str], floats: Sequence[str] = ()) -> Tally:
    """Return the Tally of rows with these columns.

    It adds up the columns that `carried` has added, and the columns in `floats` as they are written.
    """
    beside = names_of(columns)
    return Tally(HASH, {name: name for name in floats if name in columns and name not in beside.values()} | beside)


def unhashed(columns: Sequence[str]) -> list[str]:
    """Return the columns that are written, without HASH and carried floats."""
    return [name for name in columns if name != HASH and not name.startswith(CARRIED)]


def tallied_on_the_way(batches: Batches, found: list[Tally]) -> Batches:
    """Yield rows as they are written; at the end `found` has the Tally of the rows that have a HASH.

    Rows that are written again have no HASH.
    """
    for batch in batches:
        if HASH in batch.schema.names:
            if not found:
                found.append(tally_of(batch.schema.names))
            found[0].add(batch.filter(batch.column(HASH).is_valid()) if batch.column(HASH).null_count else batch)
        yield batch.select(unhashed(batch.schema.names))


def sent(tally: Tally) -> bytes:
    """Serialize what a task has counted, for the driver."""
    return pickle.dumps(tally)


def received(columns: Sequence[str], parts: Iterable[bytes | None]) -> Content:
    """Return what tasks have counted together. `columns`: the columns of the tasks' rows."""
    whole = tally_of(columns)
    for one in parts:
        if one is not None:
            whole.merge(pickle.loads(one))
    return whole.content()


def tallied(rows: DataFrame, schema: StructType, by: Sequence[Column] = ()) -> dict[Key, Tally]:
    """Return the content of each group of rows, by one job.

    `schema`: the columns that count. `by`: whole numbers or conditions that make the groups.
    """
    keys = [column.cast("long").alias(f"{BY}{at}") for at, column in enumerate(by)]
    narrow = rows.select(*keys, row_hash(schema).alias(HASH), *carried(schema))
    found: dict[Key, Tally] = {}
    for one in worker.mapped(narrow, _of_task(nothing(schema), len(keys)), RESULT).toArrow().to_pylist():
        found.setdefault(tuple(one["key"]), nothing(schema)).merge(pickle.loads(one["tally"]))
    return found


def nothing(schema: StructType) -> Tally:
    """Return the Tally of no rows."""
    return Tally(HASH, {CARRIED + name: name for name in floats(schema)})


def total(schema: StructType, groups: Iterable[Tally]) -> Content:
    """Return the content of groups of rows together."""
    whole = nothing(schema)
    for one in groups:
        whole.merge(one)
    return whole.content()


def _of_task(empty: Tally, keys: int) -> Callable[[Batches], Batches]:
    def run_task(batches: Batches) -> Batches:
        found: dict[Key, Tally] = {}
        for batch in batches:
            for key, part in _groups(batch, [f"{BY}{at}" for at in range(keys)]):
                if key not in found:
                    found[key] = deepcopy(empty)
                found[key].add(part)
        for key, tally in found.items():
            yield pa.RecordBatch.from_pydict(
                {"key": pa.array([[*key]], pa.list_(pa.int64())), "tally": [pickle.dumps(tally)]}
            )

    return run_task


def _groups(batch: pa.RecordBatch, by: list[str]) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows of a batch by their keys."""
    if not by or not batch.num_rows:
        yield from [((), batch)] if batch.num_rows else []
        return
    keys = batch.select(by)
    alike = all(column.null_count in (0, len(column)) and len(column.unique()) == 1 for column in keys.columns)
    ordered = batch if alike else batch.take(pc.sort_indices(keys, [(name, "ascending") for name in by]))
    keys = ordered.select(by)
    columns = [pc.fill_null(column, 0).to_numpy() for column in keys.columns] + [
        column.is_null().to_numpy(zero_copy_only=False) for column in keys.columns
    ]
    changes = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    for first, last in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]):
        yield tuple(column[first].as_py() for column in keys.columns), ordered.slice(first, last - first)


def floats(schema: StructType) -> dict[str, Column]:
    """Return the floats that a unit sums up: float columns by name, and floats inside nested columns by path."""
    found = {}
    for field in schema.fields:
        if isinstance(field.dataType, FloatType | DoubleType):
            found[field.name] = F.col(quoted(field.name)).cast("double")
        else:
            found |= {
                quoted(field.name) + path: inside(F.col(quoted(field.name))) for path, inside in _inside(field.dataType)
            }
    return found


def carried(schema: StructType, written: Collection[str] = ()) -> list[Column]:
    """Return the floats as columns to add to the written ones, without floats that are `written` under their own names.

    See `names_of`.
    """
    return [column.alias(CARRIED + name) for name, column in floats(schema).items() if name not in written]


def names_of(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns that `carried` has added, each with the name under which its sum is kept."""
    return {column: column.removeprefix(CARRIED) for column in columns if column.startswith(CARRIED)}


def _inside(kind: DataType) -> list[tuple[str, Callable[[Column], Column]]]:
    """Return the paths to the floats inside a type, each with a function that makes an array of them."""
    if isinstance(kind, FloatType | DoubleType):
        return [("", lambda value: F.array(value.cast("double")))]
    if isinstance(kind, StructType):
        return [
            (f".{quoted(f.name)}{path}", _of_field(f.name, inside))
            for f in kind.fields
            for path, inside in _inside(f.dataType)
        ]
    if isinstance(kind, ArrayType):
        return [(f"[]{path}", _of_each(lambda value: value, inside)) for path, inside in _inside(kind.elementType)]
    if isinstance(kind, MapType):
        keys = [(f"[key]{path}", _of_each(F.map_keys, inside)) for path, inside in _inside(kind.keyType)]
        return keys + [(f"[value]{path}", _of_each(F.map_values, inside)) for path, inside in _inside(kind.valueType)]
    return []


def _of_field(name: str, inside: Callable[[Column], Column]) -> Callable[[Column], Column]:
    return lambda value: inside(value.getField(name))


def _of_each(elements: Callable[[Column], Column], inside: Callable[[Column], Column]) -> Callable[[Column], Column]:
    # Spark's flatten returns null if one of the arrays is null.
    return lambda value: F.flatten(
        F.transform(elements(value), lambda one: F.coalesce(inside(one), F.array().cast("array<double>")))
    )


def _values(column: pa.Array) -> NDArray[np.float64]:
    flat = column.flatten() if pa.types.is_list(column.type) else column
    return flat.drop_null().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)  # type: ignore[no-any-return]


def _text(total: int, xor: int) -> str:
    return f"{total & MASK:016x}{xor & MASK:016x}"


def _nulls(schema: StructType) -> Column:
    """Return a string with one character per column that says whether it is null. Usually it is a constant."""
    nulls = [F.col(quoted(f.name)).isNull() for f in schema.fields]
    if not nulls:
        return F.lit("")
    told = F.concat(F.lit(""), *[one.cast("int").cast("string") for one in nulls])
    return F.when(reduce(or_, nulls), told).otherwise(F.lit("0" * len(nulls)))


def _exact(value: Column, kind: DataType) -> Column:
    """Return a value as it is hashed: each float is replaced by whether it is null."""
    if not _holds_float(kind):
        # Spark can't hash a map: its entries have no order.
        return encoding.json(value, kind) if isinstance(kind, MapType | VariantType) else value
    if isinstance(kind, StructType):
        return F.struct(value.isNull(), *[_exact(value.getField(f.name), f.dataType) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return F.struct(value.isNull(), F.transform(value, lambda one: _exact(one, kind.elementType)))
    if isinstance(kind, MapType):
        entries = F.transform(
            F.map_entries(value), lambda one: F.struct(_exact(one.key, kind.keyType), _exact(one.value, kind.valueType))
        )
        return F.struct(value.isNull(), F.array_sort(entries))
    return value.isNull()


def _holds_float(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_float(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _holds_float(kind.elementType)
    if isinstance(kind, MapType):
        return _holds_float(kind.keyType) or _holds_float(kind.valueType)
    return isinstance(kind, FloatType | DoubleType)
