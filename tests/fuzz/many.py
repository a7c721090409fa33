"""Compares the readers over many blocks, in several processes."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.fuzz import compare, hostile
from tests.fuzz.compare import Difference

PART = 200
"""How many blocks are compared before the sums are told."""
Found = list[tuple[int, Difference]]


def in_parts(
    seeds: Sequence[int], processes: int | None = None, minutes: float | None = None
) -> Iterator[tuple[int, Found]]:
    """Yield, for each part of the blocks in order, how many lines were read, and the seed and line of each difference.

    Stop after some minutes. An executor, since it raises if one of its processes dies, while a `Pool` waits for ever.
    """
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for begin in range(0, len(seeds), PART):
            if time.monotonic() > end:
                return
            part = seeds[begin : begin + PART]
            found = list(pool.map(_of_seed, part, chunksize=4))
            yield len(part) * hostile.LINES, [(seed, one) for seed, ones in found for one in ones]


def _of_seed(seed: int) -> tuple[int, list[Difference]]:
    return seed, compare.differences(hostile.block(seed))
