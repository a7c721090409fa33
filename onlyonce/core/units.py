"""The unit: the rows that are committed together. The unit's identity, its content, and the check of a replay. Pure.

The identity is computed from what the unit is, and never from what happened: `flights/per_carrier/1/17/per_carrier/0`
is incarnation, batch, sink and partition. If an attempt finds its unit in the log, it compares its own content with the
committed content (`compare`): a replay may not have the same data.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import datetime
from math import isclose, isfinite

from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken

FLOAT_TOLERANCE = 1e-9
EVENTS = stored_names.EVENTS_BY
"""The sink of receive's units."""
RECEIVED = (
    "the source gave other records than before, such as a file that was changed in place. Put the input back to what "
    "it was and run again; or start a new incarnation, which reads the batch as it is now: onlyonce reset"
)
COMPUTED = (
    "the code or its input is not deterministic (rand(), now(), a look-up that changes, an input file that "
    "changed). Declare stable_input=True on the output, then the rows are staged and a replay reads those; "
    "for this batch put the code or the input back to what it was and run again"
)


@dataclass(frozen=True)
class UnitId:
    """(incarnation, batch, sink, partition). As text it is readable and unique for ever."""

    incarnation: str
    batch_id: int
    sink: str
    partition: int

    def __str__(self) -> str:
        return stored_names.unit(self.incarnation, self.batch_id, self.sink, self.partition)


@dataclass(frozen=True)
class FloatSum:
    """The sum of a column's finite floats and of their absolute values, and its count of NaN, +infinity, -infinity."""

    total: float = 0.0
    size: float = 0.0
    nan: int = 0
    high: int = 0
    low: int = 0

    def same_as(self, other: FloatSum) -> bool:
        """Return whether both are sums of the same floats.

        Each float may differ by FLOAT_TOLERANCE of itself, so a sum may differ by as much of the absolute values. The
        sum itself is not a measure: a ledger's sum is about 0, which is only a rounding error.
        """
        if (self.nan, self.high, self.low) != (other.nan, other.high, other.low) or not _close(self.size, other.size):
            return False
        if not (isfinite(self.total) and isfinite(other.total)):  # more than a double holds
            return str(self.total) == str(other.total)
        # The absolute values may add up to more than a double holds.
        size = min(max(self.size, other.size), sys.float_info.max)
        return abs(self.total - other.total) <= FLOAT_TOLERANCE * size


@dataclass(frozen=True)
class Content:
    """The content of a unit in any order: the number of rows, a hash over the exact columns, sums of the floats.

    A sum of doubles depends in its last digits on the order of its terms. So floats are compared with a relative
    tolerance, all other columns exactly. `floats`: by the path of a column, or of a float inside a nested one.
    """

    rows: int
    exact: str
    floats: dict[str, FloatSum] = field(default_factory=dict)

    def same_as(self, other: Content) -> bool:
        """Return whether both are the same data, floats within the tolerance."""
        if (self.rows, self.exact, self.floats.keys()) != (other.rows, other.exact, other.floats.keys()):
            return False
        return all(value.same_as(other.floats[name]) for name, value in self.floats.items())


@dataclass(frozen=True)
class Counts:
    """The fates of the records that one receive unit saw, and the largest event time that it kept."""

    kept: int = 0
    invalid: int = 0
    expired: int = 0
    duplicate: int = 0
    unknown_fields: int = 0
    largest: datetime | None = None


def compare(unit: UnitId, there: Content, meant: Content) -> None:
    """Raise InvariantBroken if a replay's content differs from its committed unit.

    So a function that gives different rows for the same input is stopped, by the hash of its rows.
    """
    if there.same_as(meant):
        return
    raise InvariantBroken(
        f"unit {unit} is committed with {there.rows} rows (hash {there.exact}), but its replay gives "
        f"{meant.rows} rows (hash {meant.exact})",
        data="what was committed stays as it is; nothing of the replay was written",
        hint=RECEIVED if unit.sink == EVENTS else COMPUTED,
    )


def _close(one: float, other: float) -> bool:
    return one == other or isclose(one, other, rel_tol=FLOAT_TOLERANCE)
