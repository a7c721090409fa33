"""How two results are held against each other: as multisets of rows, floats within a tolerance, any type of column."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlyonce.testing.crash_results import difference, differences

Rows = list[tuple[str | None, int | None]]
rows = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None])), max_size=12)


def table(found: Rows) -> pa.Table:
    """Rows of a name and a number."""
    return pa.table(
        {"name": pa.array([r[0] for r in found], pa.string()), "n": pa.array([r[1] for r in found], pa.int64())}
    )


@given(rows, rows)
def test_lost_and_doubled_are_those_of_the_multisets(wanted: Rows, found: Rows) -> None:
    """Whatever rows there are, nulls too, in any order: a loss is never made up for by a double."""
    lost = (Counter(wanted) - Counter(found)).total()
    doubled = (Counter(found) - Counter(wanted)).total()

    apart = difference("out", table(wanted), table(found))

    assert (lost, doubled) == ((apart.lost, apart.doubled) if apart else (0, 0))


@given(rows, st.randoms())
def test_the_order_of_rows_and_columns_is_no_difference(wanted: Rows, chance: Any) -> None:
    """Spark and SQL promise none."""
    mixed = list(wanted)
    chance.shuffle(mixed)

    assert difference("out", table(wanted), table(mixed).select(["n", "name"])) is None


def sums(*values: float | None, name: str = "x") -> pa.Table:
    """Rows of one name with a float."""
    return pa.table({"name": [name] * len(values), "sum": pa.array(values, pa.float64())})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((0.1 + 0.2, 5.0), (5.0, 0.3), True),
        ((1e9, 1e-12), (1e9, 0.0), True),
        ((math.nan, None), (None, math.nan), True),
        ((math.inf,), (math.inf,), True),
        ((1.0,), (1.000001,), False),
        ((math.nan,), (None,), False),
        ((math.inf,), (-math.inf,), False),
        ((1.0, 2.0), (1.0, 1.0), False),
        ((0.0,), (1e-12,), False),
    ],
)
def test_floats_differ_by_more_than_their_last_digits(
    one: tuple[float | None, ...], other: tuple[float | None, ...], same: bool
) -> None:
    """What the order of a sum's terms can do is none; any other value is, and null is not NaN."""
    assert (difference("out", sums(*one), sums(*other)) is None) == same


def test_a_changed_float_is_a_row_lost_and_one_too_many() -> None:
    """And the row that is there now is shown."""
    apart = difference("out", sums(1.0, 2.0), sums(1.0, 3.0))

    assert apart is not None
    assert (apart.lost, apart.doubled) == (1, 1)
    assert apart.examples == ("changed: name=x, sum=3.0",)


@pytest.mark.parametrize(
    ("kind", "value", "other"),
    [
        (pa.decimal128(20, 2), Decimal("1.10"), Decimal("1.11")),
        (pa.timestamp("us", "UTC"), 1, 2),
        (pa.date32(), 1, 2),
        (pa.binary(), b"a", b"b"),
        (pa.bool_(), True, False),
        (pa.list_(pa.int64()), [1, 2], [2, 1]),
        (pa.list_(pa.struct([("a", pa.string())])), [{"a": "x"}], [{"a": None}]),
        (pa.map_(pa.string(), pa.int64()), [("k", 1)], [("k", 2)]),
        (pa.struct([("a", pa.struct([("b", pa.float64())]))]), {"a": {"b": 1.0}}, {"a": {"b": 2.0}}),
        (pa.dictionary(pa.int32(), pa.string()), "a", "b"),
    ],
)  # fmt: skip
def test_any_type_of_column_can_be_compared(kind: pa.DataType, value: Any, other: Any) -> None:
    """The same value is the same, another is not, and a null is neither."""
    one, two, none = (pa.table({"c": pa.array([v, None], kind)}) for v in (value, other, None))

    assert difference("out", one, one) is None
    assert difference("out", one, two) is not None
    assert difference("out", one, none) is not None


def test_other_columns_are_another_result() -> None:
    """A column that came or went makes all rows differ, and the columns are told."""
    apart = difference("out", table([("a", 1)]), table([("a", 1)]).select(["n"]))

    assert apart is not None
    assert (apart.lost, apart.doubled) == (1, 1)
    assert "name" in apart.examples[0]


def test_a_column_that_is_left_out_is_not_compared_and_the_others_are() -> None:
    """Only in the output that is named."""
    wanted = {"out": table([("a", 1)]), "more": table([("a", 1)])}
    found = {"out": table([("a", 2)]), "more": table([("a", 2)])}

    assert [d.result for d in differences(wanted, found, [("out", "n")])] == ["more"]
