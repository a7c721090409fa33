"""In how many partitions a batch is cut: by its size, by the cores there are, and up to a maximum. Pure.

The number is a power of two. The catalog answers a batch of P partitions from chunks of P' by their common divisor,
which of two powers of two is the smaller one: each look-up of the finer cut asks one chunk of a coarser batch, each of
the coarser cut asks P'/P chunks, which hold the ids of its own partition and no others. With 6 and 4, say, half of what
is asked would be in vain. And the layouts that a bucket can have, of all sizes of its batches, have together less than
twice as many partitions as the finest.

Who calls it: `RunContext.partitions_of`, when a batch begins. The batch's row keeps the number, and a replay takes it
from there.
"""

from __future__ import annotations

WORTH_IT = 8 << 20
"""Bytes for which a task of its own pays: fewer take a core less time than its task and its transaction take."""
FULL = 128 << 20
"""Bytes that a partition has at most, also where there are not so many cores, as long as the maximum allows it."""
A_RECORD = 100
"""Bytes of a record where only the number of records is known: about."""


def of_batch(size: int, cores: int, most: int) -> int:
    """For a batch of about so many bytes: one while it is small, as many as the cores where it is large, more where its
    bytes ask for it, and never more than `most`.

    Where `cores` or `most` is no power of two, the one below it counts."""
    by_cores = min(_up(-(-size // WORTH_IT)), _down(cores))
    return min(max(by_cores, _up(-(-size // FULL))), _down(most))


def _up(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def _down(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)
