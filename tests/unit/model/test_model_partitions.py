"""In how many partitions a batch is cut: few while it is small, as many as the cores when it is large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlyonce.core.batch import FULL, WORTH_IT, partitions_of_batch


@pytest.mark.parametrize(
    ("size", "cores", "most", "found"),
    [
        (0, 16, 64, 1), (WORTH_IT, 16, 64, 1), (WORTH_IT + 1, 16, 64, 2), (10 * WORTH_IT, 16, 64, 16),
        (10 * WORTH_IT, 2, 64, 2), (10 * WORTH_IT, 12, 64, 8), (3 * FULL, 2, 64, 4), (1000 * FULL, 16, 64, 64),
        (1000 * FULL, 16, 50, 32), (1000 * FULL, 200, 1, 1),
    ],
)  # fmt: skip
def test_a_batch_has_partitions_by_its_size_and_the_cores_up_to_the_maximum(
    size: int, cores: int, most: int, found: int
) -> None:
    """One while it is small; the cores, or more by its bytes."""
    assert partitions_of_batch(size, cores, most) == found


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 1000), st.integers(1, 1000))
def test_of_any_two_batches_one_cut_is_a_part_of_the_other(one: int, other: int, cores: int, most: int) -> None:
    """So a look-up asks no chunk in vain: the common divisor is the smaller number. And a larger batch has no fewer."""
    few, many = (partitions_of_batch(size, cores, most) for size in sorted((one, other)))

    assert 1 <= few <= many <= most
    assert many % few == 0
