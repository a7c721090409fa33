"""Units: their identity, and when a replay is the same data."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.core.errors import InvariantBroken
from onlyonce.core.units import FLOAT_TOLERANCE, Content, FloatSum, UnitId, compare
from onlyonce.sinks.base import content

QUICK = settings(max_examples=50, deadline=None)
UNIT = UnitId("shop/per_shop/1", 17, "per_shop", 3)
sums = st.dictionaries(st.sampled_from("abc"), st.lists(st.floats(width=64), max_size=3), max_size=3)


def test_the_unique_id_reads_as_incarnation_batch_sink_partition() -> None:
    """Computed from what the unit is, so that every attempt has the same."""
    assert str(UNIT) == "shop/per_shop/1/17/per_shop/3"


@QUICK
@given(st.integers(0, 10**12), st.text(max_size=10), sums)
def test_the_same_content_passes(rows: int, exact: str, values: dict[str, list[float]]) -> None:
    """NaN and infinities included: a sum that is no number is the same sum in the replay."""
    floats = {name: content.of(them) for name, them in values.items()}
    compare(UNIT, Content(rows, exact, floats), Content(rows, exact, dict(reversed(floats.items()))))


@QUICK
@given(
    st.lists(st.floats(-1e12, 1e12) | st.just(math.nan), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
    st.integers(0, 60),
)
def test_float_sums_pass_in_any_order_of_the_rows(values: list[float], chance: random.Random, cut: int) -> None:
    """The last digits of a sum depend on the order of its terms; a healthy job never stops for them, also if debits and
    credits leave a sum of 0."""
    ledger = [*values, *(-value for value in values)]
    shuffled = chance.sample(ledger, len(ledger))
    one, parts = (_added_up(some) for some in ([ledger], [shuffled[:cut], shuffled[cut:]]))

    assert Content(1, "x", {"f": one}).same_as(Content(1, "x", {"f": parts}))


def _added_up(parts: list[list[float]]) -> FloatSum:
    """Return sums that are rounded at each step, as another program adds them up."""
    finite = [[value for value in part if not math.isnan(value)] for part in parts]
    nan = sum(map(len, parts)) - sum(map(len, finite))
    return FloatSum(sum(map(sum, finite)), sum(sum(map(abs, part)) for part in finite), nan)


def test_a_ledger_that_is_added_up_in_another_way_is_the_same() -> None:
    """The rounding of a sum of about 0 is as large as the sum."""
    size = 2000 * 1e4
    there, meant = FloatSum(1e-11, size), FloatSum(-3e-11, size)
    assert Content(4000, "x", {"f": there}).same_as(Content(4000, "x", {"f": meant}))
    assert not Content(4000, "x", {"f": there}).same_as(Content(4000, "x", {"f": FloatSum(0.5, size)}))


@pytest.mark.parametrize(("other", "same"), [(1e308 * (1 + 1e-15), True), (9e307, False), (-1e308, False)])
def test_floats_too_large_to_add_up_still_differ(other: float, same: bool) -> None:
    """The sum of their absolute values is infinite, and the tolerance is not."""
    assert FloatSum(1e308, math.inf).same_as(FloatSum(other, math.inf)) is same


def test_a_nan_hides_no_other_float() -> None:
    """Also an infinity does not."""
    there = content.of([math.nan, math.inf, 1.5])
    for other in (
        [math.nan, math.inf, 1.6],
        [math.nan, math.nan, math.inf, 1.5],
        [math.nan, -math.inf, 1.5],
        [math.inf, 1.5],
    ):
        assert not there.same_as(content.of(other))


@QUICK
@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda f: abs(f) > 1e-290), st.booleans())
def test_a_float_sum_that_differs_by_more_than_the_tolerance_is_another(value: float, up: bool) -> None:
    """A millionth is no rounding."""
    other = value * (1 + 1e-6 if up else 1 - 1e-6)

    assert FLOAT_TOLERANCE < 1e-6
    assert not Content(1, "x", {"f": content.of([value])}).same_as(Content(1, "x", {"f": content.of([other])}))


@pytest.mark.parametrize("other", [math.nan, math.inf, -math.inf, 0.0])
def test_a_number_is_not_the_same_as_none_infinity_or_zero(other: float) -> None:
    """Tolerance is relative; it never bridges to what is no number, in either direction."""
    number, strange = (Content(1, "x", {"f": content.of([value])}) for value in (1.5, other))

    assert not number.same_as(strange)
    assert not strange.same_as(number)
    assert strange.same_as(strange)


@pytest.mark.parametrize(
    "meant",
    [
        Content(8, "abc", {"f": content.of([1.0])}),
        Content(7, "abd", {"f": content.of([1.0])}),
        Content(7, "abc", {"f": content.of([1.1])}),
        Content(7, "abc", {"g": content.of([1.0])}),
        Content(7, "abc"),
    ],
    ids=["rows", "hash", "float", "column", "no floats"],
)
def test_other_content_is_refused_with_a_message_that_names_stable_input(meant: Content) -> None:
    """In both directions; the message names the unit, what is there, what was meant, and the option."""
    there = Content(7, "abc", {"f": content.of([1.0])})
    for one, other in ((there, meant), (meant, there)):
        with pytest.raises(InvariantBroken) as stopped:
            compare(UNIT, one, other)
        assert str(UNIT) in stopped.value.what
        assert f"{one.rows} rows (hash {one.exact})" in stopped.value.what
        assert f"{other.rows} rows (hash {other.exact})" in stopped.value.what
        assert "stable_input=True" in stopped.value.hint
        assert "nothing of the replay was written" in stopped.value.data
