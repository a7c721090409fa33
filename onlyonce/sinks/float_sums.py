"""Add up floats exactly: the sum is the same in any order and however the floats are cut, as `math.fsum` has it, and
arrays are added as a whole.

A double is a whole number of 53 bits times a power of two. So doubles of one exponent are added up as whole numbers,
and the sums of the exponents are added up as integers of Python, in units of 2^-1126. They are rounded once, at the
end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onlyonce.model.units import FloatSum

LEAST = -1126
"""The exponent of the unit: the least exponent of a double as `frexp` has it (-1073), less the 53 bits of its whole
number."""
BITS, HALF = 53, 27
AT_ONCE = 1 << 25
"""So many halves of 27 bits have a sum that a double holds exactly: below 2^53."""


@dataclass
class ExactSum:
    """The sums of positive and of negative finite floats, in units of 2^LEAST, and how many floats are NaN, infinity
    and minus infinity."""

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
        """Return the sums as the log has them."""
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
