"""The sums of floats that a unit keeps are exact: the same in any order, however they are cut."""

from __future__ import annotations

import math
import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlyonce.core.units import FloatSum
from onlyonce.sinks.base import content
from onlyonce.sinks.base.content import ExactSum


@given(st.lists(st.floats()), st.randoms(use_true_random=False), st.integers(0, 20))
def test_a_sum_is_exact_in_any_order_and_cut(values: list[float], chance: random.Random, cut: int) -> None:
    """As `math.fsum` rounds it, which adds Python's floats one by one."""
    ledger = [*values, *(-value for value in values)] if cut % 2 else values
    shuffled = chance.sample(ledger, len(ledger))
    whole, rest = ExactSum(), ExactSum()
    whole.add(np.array(shuffled[:cut], np.float64))
    rest.add(np.array(shuffled[cut:], np.float64))
    whole.merge(rest)

    finite = [value for value in values if math.isfinite(value)]
    assert whole.rounded() == content.of(ledger)
    if sum(map(abs, finite)) < sys.float_info.max / 4:
        added = [value for value in ledger if math.isfinite(value)]
        special = sum(map(math.isnan, ledger)), ledger.count(math.inf), ledger.count(-math.inf)
        assert whole.rounded() == FloatSum(math.fsum(added), math.fsum(map(abs, added)), *special)


@pytest.mark.parametrize("value", [5e-324, -2.2250738585072014e-308, sys.float_info.max, 1 / 3, 0.0])
def test_many_of_one_float_are_a_multiple_of_it(value: float) -> None:
    """More than fit into 2^53 as whole numbers of 53 bits."""
    found = content.of([value] * 3000)

    assert found.total == (math.copysign(math.inf, value) if abs(value) > 1e300 else value * 3000)
