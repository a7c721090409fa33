"""What no sink can hold of a column, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from onlyonce.core import column_types
from onlyonce.sinks.base import held_values

MICROS = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "values", "outside"),
    [
        (pa.date32(), [-719_162, 2_932_896, None], False), (pa.date32(), [-719_163], True), (pa.date32(), [2_932_897], True),
        (MICROS, [-62_135_596_800_000_000, 253_402_300_799_999_999], False), (MICROS, [253_402_300_800_000_000], True),
        (pa.timestamp("us"), [0, -62_135_596_800_000_001], True), (pa.date32(), [], False), (pa.int64(), [2**62], False),
    ],
)  # fmt: skip
def test_rows_in_memory_are_of_the_years_1_to_9999(kind: pa.DataType, values: list[Any], outside: bool) -> None:
    """To the day, and to the microsecond."""
    assert held_values.any_outside(pa.table({"a": pa.array(values, kind)}), {}) is outside


@pytest.mark.parametrize(
    ("kind", "nested"),
    [
        (pa.struct([("a", pa.int64()), ("at", MICROS)]), lambda at: {"a": 1, "at": at}), (pa.list_(MICROS), lambda at: [0, at]),
        (pa.map_(pa.string(), MICROS), lambda at: [("a", at)]), (pa.map_(MICROS, pa.string()), lambda at: [(at, "a")]),
        (pa.list_(pa.struct([("days", pa.map_(pa.string(), MICROS))])), lambda at: [None, {"days": [("a", at)]}]),
    ],
)  # fmt: skip
def test_times_inside_columns_of_rows_in_memory_are_checked(kind: pa.DataType, nested: Callable[[int], Any]) -> None:
    """As in Spark's tasks: a batch has the same fate whether the driver or a task writes it."""
    last = 253_402_300_799_999_999
    for at, outside in ((last, False), (last + 1, True)):
        whole = pa.array([None, nested(0), nested(at), nested(0)], kind)
        assert held_values.any_outside(pa.table({"a": whole}), {}) is outside
        assert not held_values.any_outside(pa.table({"a": whole.slice(3)}), {})


@pytest.mark.parametrize("nested", [False, True])
def test_strings_in_memory_that_are_not_utf8_are_found(nested: bool) -> None:
    """Each by itself, although two of them may be valid when joined."""
    for first, second, outside in ((b"\xc3\xa9", b"", False), (b"\xc3", b"\xa9", True), (None, b"\xff", True)):
        strings = pa.array([b"a", first, second]).view(pa.string())
        column = pa.StructArray.from_arrays([pa.array([1, 2, 3]), strings], ["n", "s"]) if nested else strings
        assert held_values.any_outside(pa.table({"a": column}), {}) is outside


def test_a_limit_is_looked_for_inside_columns() -> None:
    """A NaN inside a nested value is a string in MySQL, so only plain floats are limited there."""
    inner = T.StructType([T.StructField("at", T.ArrayType(T.MapType(T.StringType(), T.DateType())))])
    floats = T.ArrayType(T.DoubleType())

    limits = (held_values.YEARS, held_values.UTF8, held_values.NUL, held_values.NOT_FINITE)
    assert [held_values._has(inner, limit) for limit in limits] == [True, True, True, False]
    assert [held_values._has(kind, held_values.NOT_FINITE) for kind in (T.DoubleType(), floats)] == [True, False]
    assert not held_values._has(floats, held_values.YEARS)


@pytest.mark.parametrize(
    ("kind", "value", "longer"),
    [
        ("varchar(3)", "𠮷é ", False), ("varchar(3)", "abc ", True), ("character varying(3)", None, False), ("varbinary(3)", b"\0\0\0\0", True),
        ("tinytext", "é" * 127, False), ("tinytext", "é" * 128, True),
    ],
)  # fmt: skip
def test_a_value_longer_than_its_column_is_found_in_memory(kind: str, value: Any, longer: bool) -> None:
    """Also by spaces at its end, which a database cuts without an error. A length is one of characters, or of bytes."""
    length = column_types.length(kind, mysql=True)
    assert length
    assert (
        held_values.any_outside(
            pa.table(
                {"a": pa.array([value], pa.binary() if isinstance(value, bytes) else pa.string()), "b": ["x" * 999]}
            ),
            {"a": length},
        )
        is longer
    )
