"""The Bloom filter of a catalog chunk: "certainly new" without a look at the ids. Pure numpy.

Two filters in one. The first is asked for every id: blocked, one 64-bit word in which an id has three bits (Putze,
Sanders and Singler, "Cache-, hash- and space-efficient Bloom filters"), so that one read and one comparison say no to
all but some three of a hundred. Only those ask the second, a plain one of 15 probes: probe i of an id is a + i·b +
i(i-1)/2·c (Kirsch and Mitzenmacher, "Less hashing, same performance", with the third term of Dillinger and Manolios:
without it a filter of 50 ids had three times as many false positives). Ids are uniform 128-bit hashes, so nothing is
hashed again; all is cut from their halves, and brought into range by a multiplication (Lemire's fast range) and not by
a slow division.

Sized from the count for one false positive in a million, 3.8 bytes an id, so that an id with its filter takes 19.8
bytes. Rare, since a large batch asks many ids of many chunks: of 250,000 ids in 144 chunks 36 are asked for in vain. At
one in 10,000 these were 3,600, each a slice of the ids from the database, and a batch beside 100 million ids spent 10 s
on them.

Measured on two busy cores, a million ids that are not there in filters of 250,000: 4 ns a look-up, where the plain
filter alone (version 1) took 50, and `rbloom`, which is asked for one Python integer after the other, 420 at ten times
the false positives.

Who calls it: `receive_unit` makes filters, `catalog_lookup` probes them. Errors: none; a filter that is
missing, truncated, changed or of an older version reads as None, and its reader makes it again from the ids.
Not promised: that an id which a filter may hold is there.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onlyonce.catalog.packed import Ids

FALSE_POSITIVES = 1e-6
BLOCKED_BITS_AN_ID, BITS_IN_WORD = 9, 3
PROBES = 15
LEAST_BITS = 512
"""A filter of a handful of ids is rounded up: below this the probes of one id meet each other."""
AT_ONCE = 1 << 15
"""So many ids are asked for at once: what they need stays in the processor's cache, which is six times as fast."""

MAGIC, VERSION = b"oobf", 2
_HEADER = struct.Struct("<4sBBxxIIII")  # magic, version, probes, words, bits, number of ids, CRC-32 of all the rest
_32 = np.uint64(32)


@dataclass(frozen=True)
class Probes:
    """Where ids are looked for, in any filter: the word and the bits in it; then start, step, and how the step
    grows."""

    word: NDArray[np.uint64]
    mask: NDArray[np.uint64]
    start: NDArray[np.uint32]
    step: NDArray[np.uint32]
    turn: NDArray[np.uint32]


@dataclass(frozen=True)
class Filter:
    """A filter that has passed its checksum: views of the bytes in which it is stored."""

    words: NDArray[np.uint64]
    probes: int
    bits: int
    count: int
    field: NDArray[np.uint8]
    stored: bytes | memoryview

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return len(self.stored)


def make(ids: Ids, many: int = PROBES) -> bytes:
    """The filter of some ids, as it is stored. Each probe more halves its false positives, for 1.44 bits an id."""
    count, asked = len(ids[0]), probes(ids)
    words = np.zeros(math.ceil(max(LEAST_BITS, count * BLOCKED_BITS_AN_ID) / 64), "<u8")
    np.bitwise_or.at(words, _place(asked.word, len(words)), asked.mask)
    bits = max(LEAST_BITS, 8 * math.ceil(count * many / math.log(2) / 8))
    flags = np.zeros(bits, dtype=bool)
    at, step = asked.start, asked.step
    for _ in range(many):
        flags[_place(at, bits)] = True
        at, step = at + step, step + asked.turn
    fields = words.tobytes() + np.packbits(flags, bitorder="little").tobytes()
    return _header(many, len(words), bits, count, fields) + fields


def read(stored: bytes | None, count: int) -> Filter | None:
    """The filter of a chunk of `count` ids; None when it is missing, damaged or of another version."""
    if stored is None or len(stored) < _HEADER.size:
        return None
    magic, version, probes, words, bits, ids, _ = _HEADER.unpack_from(stored)
    fields = memoryview(stored)[_HEADER.size :]
    if (magic, version, ids, 8 * len(fields)) != (MAGIC, VERSION, count, 64 * words + bits):
        return None
    return view(stored) if stored[: _HEADER.size] == _header(probes, words, bits, ids, fields) else None


def view(stored: bytes | memoryview) -> Filter:
    """The filter in bytes that were compared with their checksum before, by `read` or as a whole file; not copied."""
    _, _, probes, words, bits, count, _ = _HEADER.unpack_from(stored)
    blocked = np.frombuffer(stored, "<u8", words, _HEADER.size)
    return Filter(
        blocked, probes, bits, count, np.frombuffer(stored, np.uint8, offset=_HEADER.size + 8 * words), stored
    )


def probes(wanted: Ids) -> Probes:
    """Where the ids are looked for, in any filter: made once, asked of many."""
    high, low = wanted
    # The upper bits of each half of 32 bits decide about a place: so the lowest ones of the partition, and of the
    # start, are free.
    start = high >> _32
    mask = np.zeros(len(high), np.uint64)
    for bit in range(BITS_IN_WORD):
        mask |= np.uint64(1) << ((start >> np.uint64(6 * bit)) & np.uint64(63))
    word = high & np.uint64(0xFFFFFFFF)
    return Probes(word, mask, start.astype(np.uint32), low.astype(np.uint32), (low >> _32).astype(np.uint32))


def some(of: Probes, at: NDArray[np.intp]) -> Probes:
    """The probes of the ids at these positions."""
    return Probes(of.word[at], of.mask[at], of.start[at], of.step[at], of.turn[at])


def maybe(known: Filter, wanted: Probes) -> NDArray[np.intp]:
    """The positions of the wanted ids that the filter may hold; all others are certainly not there."""
    left = _in_words(known, wanted)
    at, step, turn = wanted.start[left], wanted.step[left], wanted.turn[left]
    for _ in range(known.probes):
        if not len(left):
            break
        place = _place(at, known.bits)
        hit = np.flatnonzero((known.field[place >> 3] >> (place & 7).astype(np.uint8)) & 1)
        left, step, turn = left[hit], step[hit], turn[hit]
        at, step = at[hit] + step, step + turn
    return left


def _in_words(known: Filter, wanted: Probes) -> NDArray[np.intp]:
    """Those whose bits are all in their word."""
    found, room = [], np.empty((2, AT_ONCE), np.uint64)
    for begin in range(0, len(wanted.word), AT_ONCE):
        mask = wanted.mask[begin : begin + AT_ONCE]
        # In the same memory each time: to ask for new memory takes a fifth of the time.
        place, there = room[:, : len(mask)]
        np.multiply(wanted.word[begin : begin + AT_ONCE], np.uint64(len(known.words)), out=place)
        np.right_shift(place, _32, out=place)
        np.take(known.words, place.view(np.int64), out=there, mode="clip")
        np.bitwise_and(there, mask, out=there)
        found.append(np.flatnonzero(there == mask) + begin)
    return np.concatenate(found) if found else np.zeros(0, np.intp)


def _place(at: NDArray[np.uint32] | NDArray[np.uint64], size: int) -> NDArray[np.int64]:
    """Numbers of 32 bits, brought below `size`."""
    place = at.astype(np.uint64)
    place *= np.uint64(size)
    place >>= _32
    return place.view(np.int64)


def _header(probes: int, words: int, bits: int, count: int, fields: bytes | memoryview) -> bytes:
    facts = _HEADER.pack(MAGIC, VERSION, probes, words, bits, count, 0)
    return _HEADER.pack(MAGIC, VERSION, probes, words, bits, count, zlib.crc32(fields, zlib.crc32(facts)))
