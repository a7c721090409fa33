"""A new incarnation reads rows again that an earlier one has counted, and counts only the others."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from onlyonce.core.stored_names import COUNTED_UPTO
from onlyonce.outputs import window_log
from onlyonce.outputs.results import Versions
from tests.contract.shop import Shop, at, shop

__all__ = ["shop"]


@pytest.mark.parametrize("cut", [[0], [0, 1], [0, 1, 2]], ids=["one batch", "two batches", "three batches"])
def test_what_was_counted_is_not_counted_again_however_many_batches_read_it_again(shop: Shop, cut: list[int]) -> None:
    """The counted part is the first two of four batches of receive."""
    for number in range(4):
        shop.receive(*[(f"{number}-{sale}", at(number)) for sale in range(number + 1)])
    versions = [row[0] for row in shop.log.rows(
        "SELECT delta_version FROM onlyonce_private.batches WHERE delta_version IS NOT NULL ORDER BY 1"
    )]  # fmt: skip
    query: Any = SimpleNamespace(database=shop.log.database, start_from={COUNTED_UPTO: versions[1]})
    context: Any = SimpleNamespace(instance="shop")
    # The first batch of an incarnation has no offset before it, and begins where the counted part ends.
    ends = [versions[at] for at in cut] + [versions[3]]
    parts = [Versions(versions[1], ends[0]), *(Versions(*pair) for pair in itertools.pairwise(ends))]

    counted = [one.kept for part in parts for one in window_log.received(context, query, part)]

    assert counted == [3, 4]
