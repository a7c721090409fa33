"""How two results differ, as multisets of rows, in Arrow: loss and duplicates can't cancel out.

Floats are apart: a sum of doubles differs in its last digits with the order of its terms, which Spark does not promise.
Rows that agree in all else are compared in order, floats within a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onlyonce.model.units import FLOAT_TOLERANCE
from onlyonce.testing.crashing import Difference

SINGLE_TOLERANCE = 1e-5
TO_ZERO = 1e-12
"""Of the largest value of a column: a sum that should be zero is as far from it as its terms are rounded."""
SIGN = "oo_sign"
EXAMPLES = 3


def difference(result: str, wanted: pa.Table, found: pa.Table) -> Difference | None:
    """What is lost of `wanted`, and what is there too often; None when both hold the same rows."""
    if set(wanted.column_names) != set(found.column_names):
        columns = (f"columns {sorted(wanted.column_names)}", f"now {sorted(found.column_names)}")
        return Difference(result, wanted.num_rows, found.num_rows, columns)
    one, other = _plain(wanted), _plain(found.select(wanted.column_names))
    floats = [field.name for field in one.schema if pa.types.is_floating(field.type)]
    exact = [name for name in one.column_names if name not in floats]
    counted = pa.concat_tables([_signed(one, exact, 1), _signed(other, exact, -1)])
    sums = counted.group_by([*exact, "oo_row"]).aggregate([(SIGN, "sum")])
    apart = sums.filter(pc.not_equal(sums[f"{SIGN}_sum"], 0))
    if apart.num_rows:
        by_row = apart[f"{SIGN}_sum"]
        lost = pc.sum(pc.max_element_wise(by_row, 0)).as_py()
        return Difference(result, lost, lost - pc.sum(by_row).as_py(), _examples(apart.select(exact), by_row))
    changed = _changed(one, other, exact, floats) if floats and one.num_rows else None
    if changed is None or not changed.any():
        return None
    examples = _told(_sorted(other, exact, floats).filter(pa.array(changed)).slice(0, EXAMPLES), "changed")
    return Difference(result, int(changed.sum()), int(changed.sum()), examples)


def differences(
    wanted: dict[str, pa.Table], found: dict[str, pa.Table], left_out: Iterable[tuple[str, str]] = ()
) -> list[Difference]:
    """The differences of all results. `left_out` names the columns (result, column) that are not compared."""
    unseen = set(left_out)

    def seen(result: str, table: pa.Table) -> pa.Table:
        return table.select([name for name in table.column_names if (result, name) not in unseen])

    pairs = [(name, seen(name, table), seen(name, found[name])) for name, table in wanted.items()]
    return [apart for pair in pairs if (apart := difference(*pair))]


def _plain(table: pa.Table) -> pa.Table:
    """The same rows in columns that Arrow can group and sort by: structs as their fields, lists and maps as text."""
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(field.type.value_type))
        elif pa.types.is_nested(field.type):
            # Arrow neither groups nor prints these. Few results have them.
            texts = pa.array(
                [None if value is None else repr(value) for value in table.column(at).to_pylist()], pa.string()
            )
            table = table.set_column(at, field.name, texts)
    return table


def _signed(table: pa.Table, exact: list[str], sign: int) -> pa.Table:
    rows = table.num_rows
    signs = pa.array(np.full(rows, sign, dtype=np.int64))
    # A table of floats alone is one group.
    one = pa.array(np.zeros(rows, dtype=np.int8))
    return table.select(exact).append_column(SIGN, signs).append_column("oo_row", one)


def _sorted(table: pa.Table, exact: list[str], floats: list[str]) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in (*exact, *floats)])


def _changed(one: pa.Table, other: pa.Table, exact: list[str], floats: list[str]) -> np.ndarray[Any, Any]:
    """Which rows, in their order, differ in a float."""
    left, right = _sorted(one, exact, floats), _sorted(other, exact, floats)
    changed = np.zeros(left.num_rows, dtype=bool)
    for name in floats:
        single = pa.types.is_float32(left.schema.field(name).type)
        a, b = (side[name].cast(pa.float64()).to_numpy() for side in (left, right))
        finite = np.abs(a[np.isfinite(a)])
        nearly = TO_ZERO * (finite.max() if finite.size else 0.0)
        close = np.isclose(a, b, rtol=SINGLE_TOLERANCE if single else FLOAT_TOLERANCE, atol=nearly, equal_nan=True)
        nulls = [side[name].is_null().to_numpy() for side in (left, right)]
        changed |= ~close | (nulls[0] != nulls[1])
    return changed


def _examples(rows: pa.Table, by_row: Any) -> tuple[str, ...]:
    lost, more = rows.filter(pc.greater(by_row, 0)), rows.filter(pc.less(by_row, 0))
    return (*_told(lost.slice(0, EXAMPLES), "lost"), *_told(more.slice(0, EXAMPLES), "more"))


def _told(rows: pa.Table, how: str) -> tuple[str, ...]:
    return tuple(f"{how}: " + ", ".join(f"{k}={v}" for k, v in row.items()) for row in rows.to_pylist())
