"""The Bloom filter of a catalog chunk: "certainly new" without a look at the ids (SYSTEMS.md, 2). Pure numpy.

Ids are uniform 128-bit hashes, so nothing is hashed again: probe i of an id is a + i·b + i(i-1)/2·c, with a, b
and c cut from its two halves (Kirsch and Mitzenmacher, "Less hashing, same performance", with the third term of
Dillinger and Manolios: without it a filter of 50 ids had three times as many false positives), brought into
the filter's range by a multiplication (Lemire's fast range) and not by a slow division.

Sized from the count for one false positive in a million: 20 probes and 3.6 bytes an id, so that an id with its filter
takes 19.6 bytes. Rare, since a large batch asks many ids of many chunks: of 250,000 ids in 144 chunks 36 are asked for in
vain. At one in 10,000 (2.4 bytes) these were 3,600, each a slice of the ids from the database, and a batch beside 100
million ids spent 10 s on them. An id that is not there still costs two probes, on average, whatever their number.

Measured on two busy cores, for 1 million ids in filters of 250,000, made / probed with ids that are not there:
0.11 s / 0.04 s. `rbloom`, which is asked for one Python integer after the other, took 0.33 s / 0.42 s at ten
times the false positives, and 0.33 s more to make the integers: 3 and 10 times as long.

Who calls it: `receive_unit` makes filters, `catalog_lookup` probes them. Errors: none; a filter that is
missing, truncated or changed reads as None, and its reader makes it again from the ids.
Not promised: that an id which a filter may hold is there.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jobs.chunks.packed import Ids

Probes = tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]
"""Start, step, and how the step grows, of each id."""

FALSE_POSITIVES = 1e-6
PROBES = round(math.log2(1 / FALSE_POSITIVES))
BITS_AN_ID = PROBES / math.log(2)
LEAST_BITS = 512
"""A filter of a handful of ids is rounded up: below this the probes of one id meet each other."""

MAGIC, VERSION = b"oobf", 1
_HEADER = struct.Struct("<4sBBxxIII")  # magic, version, probes, bits, number of ids, CRC-32 of all the rest
_32 = np.uint64(32)


@dataclass(frozen=True)
class Filter:
    """A filter that has passed its checksum."""

    probes: int
    bits: int
    count: int
    field: NDArray[np.uint8]


def make(ids: Ids) -> bytes:
    """The filter of some ids, as it is stored."""
    count = len(ids[0])
    bits = max(LEAST_BITS, 8 * math.ceil(count * BITS_AN_ID / 8))
    flags = np.zeros(bits, dtype=bool)
    at, step, turn = probes(ids)
    for _ in range(PROBES):
        flags[_place(at, bits)] = True
        at, step = at + step, step + turn
    field = np.packbits(flags, bitorder="little").tobytes()
    return _header(PROBES, bits, count, field) + field


def read(stored: bytes | None, count: int) -> Filter | None:
    """The filter of a chunk of `count` ids; None when it is missing, damaged or of another version."""
    if stored is None or len(stored) < _HEADER.size:
        return None
    magic, version, probes, bits, ids, _ = _HEADER.unpack_from(stored)
    field = stored[_HEADER.size :]
    if (magic, version, ids, 8 * len(field)) != (MAGIC, VERSION, count, bits):
        return None
    if stored[: _HEADER.size] != _header(probes, bits, ids, field):
        return None
    return Filter(probes, bits, count, np.frombuffer(field, dtype=np.uint8))


def probes(wanted: Ids) -> Probes:
    """Where the ids are looked for, in any filter: made once, asked of many."""
    # The upper bits of the first half: the lower ones choose the partition.
    low = wanted[1].astype(np.uint32)
    return (wanted[0] >> _32).astype(np.uint32), low, (wanted[1] >> _32).astype(np.uint32)


def maybe(known: Filter, wanted: Probes) -> NDArray[np.intp]:
    """The positions of the wanted ids that the filter may hold; all others are certainly not there."""
    at, step, turn = wanted
    left = np.arange(len(at))
    for _ in range(known.probes):
        place = _place(at, known.bits)
        hit = np.flatnonzero((known.field[place >> 3] >> (place & 7).astype(np.uint8)) & 1)
        if not len(hit):
            return hit
        left, step, turn = left[hit], step[hit], turn[hit]
        at, step = at[hit] + step, step + turn
    return left


def _place(at: NDArray[np.uint32], bits: int) -> NDArray[np.int64]:
    place: NDArray[np.int64] = ((at.astype(np.uint64) * np.uint64(bits)) >> _32).view(np.int64)
    return place


def _header(probes: int, bits: int, count: int, field: bytes) -> bytes:
    facts = _HEADER.pack(MAGIC, VERSION, probes, bits, count, 0)
    return _HEADER.pack(MAGIC, VERSION, probes, bits, count, zlib.crc32(field, zlib.crc32(facts)))
