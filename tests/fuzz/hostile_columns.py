"""Makes typed columns of hostile values from a seed: every declared type with every type that Arrow has in Parquet and
Avro files, tables and readers.

The values are near the edges of all types, whatever the column is declared as. The same seed makes the same column on
every machine.
"""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from tests.fuzz import reference_columns
from tests.fuzz.reference_columns import (
    DAY_US,
    FIRST_DAY,
    INVALID,
    KEPT,
    LAST_DAY,
    MICROSECONDS,
    REFUSED,
    UNITS_PER_SECOND,
)

ROWS = 20
DECLARED = {
    "tinyint": "tinyint", "smallint": "smallint", "int": "int", "bigint": "bigint", "float": "float", "double": "double", "decimal(4,1)": "decimal(4,1)",
    "decimal(38,0)": "decimal(38,0)", "string": "string", "binary": "binary", "boolean": "boolean", "date": "date", "timestamp": "timestamp", "timestamp_ntz": "timestamp_ntz",
    "list": "array<int>", "map": "map<string,int>", "struct": "struct<a:int>",
}  # fmt: skip
"""The declared types as the reference reader has them, and as people write them."""
EDGES = [
    sign * (1 << power) + by for power in (7, 8, 15, 16, 24, 31, 32, 53, 63) for sign in (1, -1) for by in (-1, 0, 1)
] + [0, 1, -1, 999, 1000, 9999]
DAYS = [0, -1, FIRST_DAY, FIRST_DAY - 1, LAST_DAY, LAST_DAY + 1]
TIMES = [at for day in (FIRST_DAY, LAST_DAY + 1) for at in (day * DAY_US - 1, day * DAY_US)] + [0, -1, 1_999]
DECIMALS = [Decimal(one) for one in ("0", "-0.10", "999.90", "-999.90", "1000.00", "1.25", "99999999.99")]
FLOATS = [0.5, -0.0, 1e300, -1e300, 3.5e38, 16777217.0, float("inf"), float("-inf"), float("nan")]


class Kind(NamedTuple):
    """A type of columns: as the reference reader has it, as Arrow has it, and values that fit into it as Arrow stores
    them."""

    there: Any
    arrow: pa.DataType
    values: list[Any]


def _integers(bits: int, *, signed: bool = True) -> Kind:
    first, last = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    kind = pa.type_for_alias(f"{'' if signed else 'u'}int{bits}")
    return Kind("integer", kind, [one for one in {*EDGES, first, last} if first <= one <= last])


def _times(unit: str, zone: str | None) -> Kind:
    counts = {count * UNITS_PER_SECOND[unit] // MICROSECONDS + by for count in TIMES for by in (0, 1, -1)}
    return Kind(
        f"{'zoned' if zone else 'time'} {unit}",
        pa.timestamp(unit, zone),
        sorted(one for one in counts if abs(one) < 1 << 63),
    )


def _kinds() -> dict[str, Kind]:
    numbers = [_integers(bits, signed=signed) for bits in (8, 16, 32, 64) for signed in (True, False)]
    others = [
        Kind("float", pa.float32(), [0.5, -0.0, 3.0, float("inf"), float("-inf")]), Kind("float", pa.float64(), FLOATS),
        Kind("decimal", pa.decimal128(10, 2), DECIMALS), Kind("string", pa.string(), ["", "é", "a\0", b"\xff"]), Kind("string", pa.large_string(), ["", "é", "\0"]),
        Kind("string", pa.dictionary(pa.int32(), pa.string()), ["", "é", "\0"]), Kind("binary", pa.binary(), [b"", b"\xff"]), Kind("binary", pa.large_binary(), [b"", b"\xff"]),
        Kind("binary", pa.binary(2), [b"\0\xff"]), Kind("boolean", pa.bool_(), [True, False]), Kind("date", pa.date32(), DAYS),
        Kind("date ms", pa.date64(), [day * 86_400_000 for day in DAYS]), Kind("null", pa.null(), []), Kind("clock", pa.time64("us"), [1]), Kind("duration", pa.duration("us"), [1]),
    ]  # fmt: skip
    times = [_times(unit, zone) for unit in UNITS_PER_SECOND for zone in (None, "UTC", "+05:30")]
    longs, names = [7, -1, 1 << 31, (1 << 31) - 1, None], pa.string()
    within = [
        Kind(("list", "integer"), pa.list_(pa.int64()), [[], *([one] for one in longs)]), Kind(("list", "integer"), pa.large_list(pa.int64()), [[7, 1 << 31]]),
        Kind(("map", "integer"), pa.map_(names, pa.int64()), [[], [("a", 1), ("a", 2)], [("a\0", 1)], *([("a", one)] for one in longs)]), Kind(("struct", "integer"), pa.struct([("a", pa.int64())]), [{"a": one} for one in longs]),
        Kind(("list", "string"), pa.list_(names), [["7"]]), Kind(("map", "string"), pa.map_(names, names), [[("a", "7")]]), Kind(("struct", "string"), pa.struct([("a", names)]), [{"a": "7"}]),
    ]  # fmt: skip
    return {str(one.arrow): one for one in [*numbers, *others, *times, *within]}


KINDS = _kinds()
Cell = tuple[str, str, str]
"""The declared type, the type of the column, and what becomes of a value."""


def cell(declared: str, name: str, value: Any) -> Cell:
    """Return the cell that a value touches."""
    return declared, name, reference_columns.read(declared, KINDS[name].there, value)[0]


CELLS = frozenset(
    cell(declared, name, value)
    for declared in DECLARED
    for name, kind in KINDS.items()
    for value in [None, *kind.values]
)
SEEDS = range(len(DECLARED) * len(KINDS))
"""These columns touch each cell; a test checks it."""


class Column(NamedTuple):
    """A column of values with the type that it is declared as."""

    declared: str
    name: str
    values: list[Any]

    @property
    def cells(self) -> set[Cell]:
        """Return the cells that its values touch."""
        return {cell(self.declared, self.name, value) for value in self.values}

    def array(self) -> pa.Array:
        """Return the values as Arrow has them."""
        kind = KINDS[self.name].arrow
        if self.name == "string":
            return pa.array([one.encode() if isinstance(one, str) else one for one in self.values], pa.binary()).view(
                kind
            )
        if pa.types.is_temporal(kind):
            return pa.array(self.values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
        return pa.array(self.values, kind)


def column(seed: int) -> Column:
    """Return the column of a seed: all values of its type in any order, some again, and nulls."""
    chance = random.Random(seed)
    declared = [*DECLARED][seed % len(DECLARED)]
    name = [*KINDS][seed // len(DECLARED) % len(KINDS)]
    values = [None, *KINDS[name].values]
    values += chance.choices(values, k=ROWS)
    chance.shuffle(values)
    return Column(declared, name, values)


def wanted(one: Column) -> list[Any] | None:
    """Return what the reference reader has of each value: (KEPT, the value) or (INVALID, None); None of a column whose
    file is refused."""
    found = [reference_columns.read(one.declared, KINDS[one.name].there, value) for value in one.values]
    return None if any(fate == REFUSED for fate, _ in found) else found


def ours(one: Column) -> list[Any] | None:
    """Return the same by the product's own reader."""
    from onlyonce.core.records import Damaged
    from onlyonce.sources.values import coercion

    batch = pa.RecordBatch.from_arrays([one.array()], names=["value"])
    declared = coercion.declared(f"value {DECLARED[one.declared]}")
    try:
        rows = pa.Table.from_batches(coercion.fit(batch, ["value"], declared, coercion.Place("row %s", 7, 1 << 20), 0))
    except Damaged:
        return None
    values, reasons = rows.column("value"), rows.column("oo_refused").to_pylist()
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return [
        (INVALID, None) if reason else (KEPT, value) for reason, value in zip(reasons, values.to_pylist(), strict=True)
    ]
