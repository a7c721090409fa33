"""Pure numpy for record ids: XXH64 of many strings at once, packed ids, and Bloom filters.

The module has three parts: `hashes_of_texts` to `_mixed` make the halves of ids, `member` to `_packed` store and search
ids, `make` to `_header` are the filters.

XXH64 gives the same as Spark's `xxhash64`. A hash of several columns is a chain: the hash of one is the seed of the
next, and the first seed is 42. The strings of an Arrow array lie one after another in memory. So each step of the
algorithm (github.com/Cyan4973/xxHash, doc/xxhash_spec.md) is one step over all strings that are long enough for it.

An array takes as many steps as its longest string, so strings of very different lengths are slow.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SEED = 42
"""Spark's seed for the first column."""
P1, P2, P3, P4, P5 = (
    np.uint64(p)
    for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
"""The primes of XXH64."""
STRIPE, LANES = 32, 4
"""Bytes that the lanes read at once, and the number of lanes."""

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]
"""Positions of bytes, or numbers of bytes."""


def hashes_of_texts(texts: pa.Array, seeds: Hashes | int = SEED) -> Hashes:
    """Return the hash of each string of an array without nulls. `seeds`: one for all, or one for each."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    begin, end = (int(ends[0]), int(ends[-1])) if len(texts) else (0, 0)
    # One stripe more, so that a stripe can be read at each position.
    text = np.zeros(end - begin + STRIPE, np.uint8)
    if end > begin:
        text[:-STRIPE] = np.frombuffer(data, np.uint8)[begin:end]
    return _of_bytes(text, ends[:-1] - begin, np.diff(ends), _spread(seeds, len(texts)))


def hashes_of_numbers(numbers: NDArray[np.int64], seeds: Hashes | int = SEED) -> Hashes:
    """Return the hash of each 64-bit number, as the hash of its eight bytes."""
    state = _spread(seeds, len(numbers)) + P5 + np.uint64(8)
    return _mixed(_word(state, numbers.view(np.uint64)))


def _spread(seeds: Hashes | int, count: int) -> Hashes:
    return np.full(count, seeds, np.uint64) if isinstance(seeds, int) else seeds


def _of_bytes(text: NDArray[np.uint8], begins: Places, sizes: Places, seeds: Hashes) -> Hashes:
    # `stripe_at[i]` is the stripe that begins at byte i: indexing costs the same for one word as for four.
    stripe_at = np.ndarray(len(text) - STRIPE + 1, f"V{STRIPE}", text, strides=(1,))
    stripes = sizes // STRIPE
    state = seeds + P5
    long = np.flatnonzero(stripes)
    if len(long):
        state[long] = _of_stripes(stripe_at, begins[long], stripes[long], seeds[long])
    state += sizes.view(np.uint64)
    return _mixed(_of_rest(_words(stripe_at, begins + stripes * STRIPE), sizes % STRIPE, state))


def _words(stripe_at: NDArray[np.void], begins: Places) -> Hashes:
    """Return the stripes that begin at some bytes, each as four 64-bit words."""
    return stripe_at[begins].view("<u8").reshape(-1, LANES)


def _of_stripes(stripe_at: NDArray[np.void], begins: Places, stripes: Places, seeds: Hashes) -> Hashes:
    """Hash the whole stripes of each string: one step takes the next stripe of all strings that have one."""
    lanes = np.stack([seeds + P1 + P2, seeds + P2, seeds, seeds - P1], axis=1)
    fewest = int(stripes.min())
    for number in range(int(stripes.max())):
        here = slice(None) if number < fewest else np.flatnonzero(stripes > number)
        lanes[here] = _round(lanes[here], _words(stripe_at, begins[here] + number * STRIPE))
    turned = [_rotated(lanes[:, lane], bits) for lane, bits in enumerate((1, 7, 12, 18))]
    merged = turned[0] + turned[1] + turned[2] + turned[3]
    lanes = _round(np.zeros_like(lanes), lanes)
    for lane in range(LANES):
        merged = (merged ^ lanes[:, lane]) * P1 + P4
    return merged


def _of_rest(words: Hashes, sizes: Places, state: Hashes) -> Hashes:
    """Hash the last bytes, fewer than a stripe: by eight, by four, and one by one."""
    for number in range(LANES - 1):
        here = np.flatnonzero(sizes >= 8 * (number + 1))
        state[here] = _word(state[here], words[here, number])
    last = words[np.arange(len(words)), sizes // 8]
    here = np.flatnonzero(sizes & 4)
    half = last[here] & np.uint64(0xFFFFFFFF)
    state[here] = _rotated(state[here] ^ half * P1, 23) * P2 + P3
    last[here] >>= np.uint64(32)
    for number in range(3):
        here = np.flatnonzero(sizes % 4 > number)
        one = last[here] >> np.uint64(8 * number) & np.uint64(0xFF)
        state[here] = _rotated(state[here] ^ one * P5, 11) * P1
    return state


def _word(state: Hashes, word: Hashes) -> Hashes:
    return _rotated(state ^ _round(np.zeros_like(state), word), 27) * P1 + P4


def _round(state: Hashes, word: Hashes) -> Hashes:
    return _rotated(state + word * P2, 31) * P1


def _rotated(number: Hashes, bits: int) -> Hashes:
    return (number << np.uint64(bits)) | (number >> np.uint64(64 - bits))


def _mixed(state: Hashes) -> Hashes:
    state = (state ^ (state >> np.uint64(33))) * P2
    state = (state ^ (state >> np.uint64(29))) * P3
    return state ^ (state >> np.uint64(32))


# Packed record ids: how they are stored, searched and merged.
#
# An id is two unsigned 64-bit halves of a hash. A chunk is its ids sorted by (high, low), 16 bytes each, big-endian. A
# chunk may have an id twice: merging keeps every id.


Half = NDArray[np.uint64]
Ids = tuple[Half, Half]
"""The upper and the lower halves of some ids."""

BYTES = 16
"""The size of a packed id."""

Slices = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Positions of ids in a chunk: from each start to before each end."""
FENCE = 64
"""Every FENCE-th upper half of a chunk is kept, which bounds the position of an id: an eighth of a byte for each id."""
SPREAD = 4.0
"""Width of a slice, in standard deviations.

Ids are uniform, so the position of one in its chunk is known up to a deviation of sqrt(count) / 2 at most. Four
deviations to either side miss one id in 16,000, and a miss is noticed.
"""


def member(chunk: Ids, wanted: Ids) -> NDArray[np.bool_]:
    """Return for each of the wanted ids whether the sorted chunk holds it. Both halves of an id are compared."""
    high, low = chunk
    found = np.zeros(len(wanted[0]), dtype=bool)
    at = np.searchsorted(high, wanted[0], side="left")
    # Ids with equal upper halves are adjacent; usually the first round is the last.
    waiting = np.flatnonzero(at < len(high))
    while len(waiting):
        here = at[waiting]
        same_high = high[here] == wanted[0][waiting]
        hit = same_high & (low[here] == wanted[1][waiting])
        found[waiting[hit]] = True
        waiting = waiting[same_high & ~hit]
        at[waiting] += 1
        waiting = waiting[at[waiting] < len(high)]
    return found


def slices(count: int, high: Half) -> Slices:
    """Return where in a chunk of `count` ids the ids with these upper halves should be, by their size."""
    near = (high.astype(np.float64) / 2.0**64 * count).astype(np.int64)
    around = int(SPREAD * np.sqrt(count) / 2) + 2
    return np.maximum(near - around, 0), np.minimum(near + around, count)


def fences(chunk: Ids) -> Half:
    """Return what `between` needs to know of a chunk."""
    return chunk[0][::FENCE].copy()


def between(known: Half, count: int, high: Half) -> Slices:
    """Return where in a chunk of `count` ids the ids with these upper halves must be, by its fences."""
    # An id is behind the last fence below it, and before the first fence above it. Both fences are in the slice:
    # `in_slices` checks them to see that the id can't be outside of it.
    before, after = (np.searchsorted(known, high, side=side) for side in ("left", "right"))
    return np.maximum(before - 1, 0) * FENCE, np.minimum(after * FENCE + 1, count)


def joined(where: Slices) -> Slices:
    """Return the same ids in disjoint slices, in order."""
    order = np.argsort(where[0])
    starts, ends = where[0][order], np.maximum.accumulate(where[1][order])
    apart = starts[1:] > ends[:-1]
    return starts[np.append(True, apart)], ends[np.append(apart, True)]


def in_slices(ids: Ids, where: Slices, count: int, wanted: Ids) -> NDArray[np.bool_] | None:
    """Return which of the wanted ids a chunk of `count` holds, by the ids of some joined slices of it.

    Return None if one of the wanted ids may be outside of the slices.
    """
    starts, ends = where
    high = ids[0]
    first_of_slice = np.append(0, np.cumsum(ends - starts))  # where each slice begins in `ids`, and where the last ends
    # The slice that can contain an id is the last one that begins below it.
    own_slice = np.maximum(np.searchsorted(high[first_of_slice[:-1]], wanted[0], side="left") - 1, 0)
    # It contains the id if it has any, since an id of it is below and another one above, or the chunk begins or ends.
    after_start = (starts[own_slice] == 0) | (high[first_of_slice[own_slice]] < wanted[0])
    before_end = (ends[own_slice] == count) | (wanted[0] < high[first_of_slice[own_slice + 1] - 1])
    return member(ids, wanted) if (after_start & before_end).all() else None


def pack(ids: Ids) -> bytes:
    """Sort and pack ids: 16 bytes each, big-endian."""
    return _packed(ids, _order(ids[0]))


def unpack(packed: bytes) -> Ids:
    """Return the halves of packed ids."""
    pairs = np.frombuffer(packed, dtype=">u8").reshape(-1, 2).astype(np.uint64)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def first_of_each(ids: Ids, *order: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return True for one row of each id, the first by `order`.

    A total order decides between twins inside a batch, not their position: with other splits another twin would be
    first.
    """
    first = np.ones(len(ids[0]), dtype=bool)
    by_high = _order(ids[0])
    high = ids[0][by_high]
    same_as_next = high[:-1] == high[1:]
    if not same_as_next.any():
        return first
    shared = np.zeros(len(high), dtype=bool)
    shared[:-1] |= same_as_next
    shared[1:] |= same_as_next
    rows = np.sort(by_high[shared])
    keys = [column[rows] for column in (*reversed(order), ids[1], ids[0])]
    rows = rows[np.lexsort(keys)]
    repeats = (ids[0][rows][1:] == ids[0][rows][:-1]) & (ids[1][rows][1:] == ids[1][rows][:-1])
    first[rows[1:][repeats]] = False
    return first


def merge(parts: Iterable[bytes]) -> bytes:
    """Return the packed ids of several chunks as the packed ids of one chunk."""
    halves = [unpack(part) for part in parts]
    ids = (np.concatenate([high for high, _ in halves]), np.concatenate([low for _, low in halves]))
    # A stable sort finds runs that are in order and merges them: a sixth of the time of a sort.
    return _packed(ids, np.argsort(ids[0], kind="stable"))


def _order(high: Half) -> NDArray[np.intp]:
    """Return the order of upper halves.

    For 16-bit keys numpy's stable sort is a radix sort. Two of these order all hashes except a few, and the last sort
    orders the rest. This takes a third of the time of one sort.
    """
    order = np.argsort((high >> np.uint64(32)).astype(np.uint16), kind="stable")
    order = order[np.argsort((high[order] >> np.uint64(48)).astype(np.uint16), kind="stable")]
    return order[np.argsort(high[order], kind="stable")]


def _packed(ids: Ids, order: NDArray[np.intp]) -> bytes:
    # Equal upper halves are rare, and a sort by one key takes a fifth of the time of a sort by two.
    high = ids[0][order]
    if (high[1:] == high[:-1]).any():
        order = np.lexsort((ids[1], ids[0]))
        high = ids[0][order]
    packed = np.empty((len(order), 2), dtype=">u8")
    packed[:, 0], packed[:, 1] = high, ids[1][order]
    return packed.tobytes()


# The Bloom filter of a chunk: it says "certainly new" without reading the ids.
#
# It is two filters in one. The first is probed for every id: blocked, one 64-bit word in which an id has three bits
# (Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom filters"). One read and one comparison reject
# all except about three of a hundred ids. Only those probe the second, a plain filter of 15 probes: probe i of an id is
# a + i·b + i(i-1)/2·c (Kirsch and Mitzenmacher, "Less hashing, same performance", with the third term of Dillinger and
# Manolios: without it a filter of 50 ids had three times as many false positives). Ids are uniform 128-bit hashes, so
# nothing is hashed again. All values are cut from their halves, and brought into range by a multiplication (Lemire's
# fast range) instead of a slow division.
#
# The size gives one false positive in a million at 3.8 bytes an id, so an id with its filter takes 19.8 bytes. False
# positives are rare because a large batch probes many chunks for many ids: 36 for 250,000 ids in 144 chunks. One in
# 10,000 would be 3,600, each a slice of the ids from the database: 10 s of a batch against 100 million ids.
#
# Measured on two busy cores, a million absent ids in filters of 250,000: 4 ns a look-up. The plain filter alone takes
# 50 ns. `rbloom`, which takes one Python integer after the other, takes 420 ns at ten times the false positives.
#
# A filter that is missing, truncated, changed or of an older version reads as None, and its reader makes it again from
# the ids. If a filter says maybe, the id need not be there.


FALSE_POSITIVES = 1e-6
BLOCKED_BITS_AN_ID, BITS_IN_WORD = 9, 3
PROBES = 15
LEAST_BITS = 512
"""A filter of a handful of ids is rounded up: below this size the probes of one id collide."""
AT_ONCE = 1 << 15
"""Ids probed at once. Their working set stays in the processor's cache, which is six times as fast."""

MAGIC, VERSION = b"oobf", 2
_HEADER = struct.Struct("<4sBBxxIIII")  # magic, version, probes, words, bits, number of ids, CRC-32 of all the rest
_32 = np.uint64(32)


@dataclass(frozen=True)
class Probes:
    """The positions of ids in any filter: the word and the bits in it; then start, step, and how the step grows."""

    word: NDArray[np.uint64]
    mask: NDArray[np.uint64]
    start: NDArray[np.uint32]
    step: NDArray[np.uint32]
    turn: NDArray[np.uint32]


@dataclass(frozen=True)
class Filter:
    """A filter whose checksum was verified. Its arrays are views of the stored bytes.

    words    the blocked filter
    field    the plain filter of `bits` bits, eight in a byte
    probes   how many bits of the plain filter an id has
    count    how many ids it was made of
    stored   the whole filter, as it is stored
    """

    words: NDArray[np.uint64]
    probes: int
    bits: int
    count: int
    field: NDArray[np.uint8]
    stored: bytes | memoryview

    @property
    def nbytes(self) -> int:
        """Return the filter's size in memory."""
        return len(self.stored)


def make(ids: Ids, probes_of_id: int = PROBES) -> bytes:
    """Return the filter of some ids, as it is stored. One probe more halves its false positives, for 1.44 bits an
    id.
    """
    count, asked = len(ids[0]), probes(ids)
    words = np.zeros(math.ceil(max(LEAST_BITS, count * BLOCKED_BITS_AN_ID) / 64), "<u8")
    np.bitwise_or.at(words, _place(asked.word, len(words)), asked.mask)
    bits = max(LEAST_BITS, 8 * math.ceil(count * probes_of_id / math.log(2) / 8))
    flags = np.zeros(bits, dtype=bool)
    at, step = asked.start, asked.step
    for _ in range(probes_of_id):
        flags[_place(at, bits)] = True
        at, step = at + step, step + asked.turn
    fields = words.tobytes() + np.packbits(flags, bitorder="little").tobytes()
    return _header(probes_of_id, len(words), bits, count, fields) + fields


def read(stored: bytes | None, count: int) -> Filter | None:
    """Return the filter of a chunk of `count` ids; None if it is missing, damaged or of another version."""
    if stored is None or len(stored) < _HEADER.size:
        return None
    magic, version, probes, words, bits, ids, _ = _HEADER.unpack_from(stored)
    fields = memoryview(stored)[_HEADER.size :]
    if (magic, version, ids, 8 * len(fields)) != (MAGIC, VERSION, count, 64 * words + bits):
        return None
    return view(stored) if stored[: _HEADER.size] == _header(probes, words, bits, ids, fields) else None


def view(stored: bytes | memoryview) -> Filter:
    """Return the filter in bytes whose checksum was compared before, by `read` or as a whole file. Nothing is
    copied.
    """
    _, _, probes, words, bits, count, _ = _HEADER.unpack_from(stored)
    blocked = np.frombuffer(stored, "<u8", words, _HEADER.size)
    return Filter(
        blocked, probes, bits, count, np.frombuffer(stored, np.uint8, offset=_HEADER.size + 8 * words), stored
    )


def probes(wanted: Ids) -> Probes:
    """Return the positions of ids in any filter: computed once, probed in many."""
    high, low = wanted
    # The upper bits of each 32-bit half decide the position. So the lowest bits don't matter, which decide the
    # partition and the start.
    start = high >> _32
    mask = np.zeros(len(high), np.uint64)
    for bit in range(BITS_IN_WORD):
        mask |= np.uint64(1) << ((start >> np.uint64(6 * bit)) & np.uint64(63))
    word = high & np.uint64(0xFFFFFFFF)
    return Probes(word, mask, start.astype(np.uint32), low.astype(np.uint32), (low >> _32).astype(np.uint32))


def some(known: Probes, at: NDArray[np.intp]) -> Probes:
    """Return the probes of the ids at these positions."""
    return Probes(known.word[at], known.mask[at], known.start[at], known.step[at], known.turn[at])


def maybe(known: Filter, wanted: Probes) -> NDArray[np.intp]:
    """Return the positions of the wanted ids that the filter may hold. All others are certainly not in it."""
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
    """Return the positions of the ids whose bits are all in their word."""
    found, room = [], np.empty((2, AT_ONCE), np.uint64)
    for begin in range(0, len(wanted.word), AT_ONCE):
        mask = wanted.mask[begin : begin + AT_ONCE]
        # The same memory each time: an allocation takes a fifth of the time.
        place, there = room[:, : len(mask)]
        np.multiply(wanted.word[begin : begin + AT_ONCE], np.uint64(len(known.words)), out=place)
        np.right_shift(place, _32, out=place)
        np.take(known.words, place.view(np.int64), out=there, mode="clip")
        np.bitwise_and(there, mask, out=there)
        found.append(np.flatnonzero(there == mask) + begin)
    return np.concatenate(found) if found else np.zeros(0, np.intp)


def _place(at: NDArray[np.uint32] | NDArray[np.uint64], size: int) -> NDArray[np.int64]:
    """Scale 32-bit numbers below `size`."""
    place = at.astype(np.uint64)
    place *= np.uint64(size)
    place >>= _32
    return place.view(np.int64)


def _header(probes: int, words: int, bits: int, count: int, fields: bytes | memoryview) -> bytes:
    facts = _HEADER.pack(MAGIC, VERSION, probes, words, bits, count, 0)
    return _HEADER.pack(MAGIC, VERSION, probes, words, bits, count, zlib.crc32(fields, zlib.crc32(facts)))
