"""Units: their identity, and when a replay is the same data."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.model.errors import InvariantBroken
from onlyonce.model.units import FLOAT_TOLERANCE, Content, UnitId, compare

QUICK = settings(max_examples=50, deadline=None)
UNIT = UnitId("shop/per_shop/1", 17, "per_shop", 3)
sums = st.dictionaries(st.sampled_from("abc"), st.floats(width=64), max_size=3)


def test_the_unique_id_reads_as_lineage_batch_sink_partition() -> None:
    """Computed from what the unit is, so that every attempt has the same."""
    assert str(UNIT) == "shop/per_shop/1/17/per_shop/3"


@QUICK
@given(st.integers(0, 10**12), st.text(max_size=10), sums)
def test_the_same_content_passes(rows: int, exact: str, floats: dict[str, float]) -> None:
    """NaN and infinities included: a sum that is no number is the same sum in the replay."""
    compare(UNIT, Content(rows, exact, floats), Content(rows, exact, dict(reversed(floats.items()))))


@QUICK
@given(st.lists(st.floats(0.001, 1e12), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_float_sums_pass_in_any_order_of_the_rows(values: list[float], chance: random.Random) -> None:
    """The last digits of a sum depend on the order of its terms; a healthy job never stops for them."""
    shuffled = list(values)
    chance.shuffle(shuffled)

    assert Content(1, "x", {"f": sum(values)}).same_as(Content(1, "x", {"f": sum(shuffled)}))


@QUICK
@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda f: abs(f) > 1e-290), st.booleans())
def test_a_float_sum_that_differs_by_more_than_the_tolerance_is_another(value: float, up: bool) -> None:
    """A millionth is no rounding."""
    other = value * (1 + 1e-6 if up else 1 - 1e-6)

    assert FLOAT_TOLERANCE < 1e-6
    assert not Content(1, "x", {"f": value}).same_as(Content(1, "x", {"f": other}))


@pytest.mark.parametrize("other", [math.nan, math.inf, -math.inf, 0.0])
def test_a_number_is_not_the_same_as_none_infinity_or_zero(other: float) -> None:
    """Tolerance is relative; it never bridges to what is no number, in either direction."""
    number, strange = Content(1, "x", {"f": 1.5}), Content(1, "x", {"f": other})

    assert not number.same_as(strange)
    assert not strange.same_as(number)
    assert strange.same_as(strange)


@pytest.mark.parametrize(
    "meant",
    [
        Content(8, "abc", {"f": 1.0}),
        Content(7, "abd", {"f": 1.0}),
        Content(7, "abc", {"f": 1.1}),
        Content(7, "abc", {"g": 1.0}),
        Content(7, "abc"),
    ],
    ids=["rows", "hash", "float", "column", "no floats"],
)
def test_other_content_is_refused_with_a_message_that_names_stable_input(meant: Content) -> None:
    """In both directions; the message names the unit, what is there, what was meant, and the option."""
    there = Content(7, "abc", {"f": 1.0})
    for one, other in ((there, meant), (meant, there)):
        with pytest.raises(InvariantBroken) as stopped:
            compare(UNIT, one, other)
        assert str(UNIT) in stopped.value.what
        assert f"{one.rows} rows (hash {one.exact})" in stopped.value.what
        assert f"{other.rows} rows (hash {other.exact})" in stopped.value.what
        assert "stable_input=True" in stopped.value.hint
        assert "nothing of the replay was written" in stopped.value.data
