"""XXH64 of many texts at once, as Spark's `xxhash64` has it.

A hash of several columns is a chain: the hash of one is the seed of the next, and the first seed is 42. The texts of an
Arrow array lie one after another in memory, so each step of the algorithm (github.com/Cyan4973/xxHash,
doc/xxhash_spec.md) is one step over all texts that are long enough for it.

Who calls it: `onlyonce/sources/parse/plain_records`. `onlyonce/sources/parse/record_id` hashes one text at a time. Not
promised: speed for texts of very different lengths, since an array takes as many steps as its longest text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SEED = 42
"""Spark's own, for the first column."""
P1, P2, P3, P4, P5 = (
    np.uint64(p)
    for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
STRIPE, LANES = 32, 4
"""Bytes that the lanes take at once, and how many lanes."""

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]


def of_texts(texts: pa.Array, seeds: Hashes | int = SEED) -> Hashes:
    """The hash of each text of a string array without nulls; `seeds`: one for all, or one for each."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    begin, end = (int(ends[0]), int(ends[-1])) if len(texts) else (0, 0)
    # A stripe more, so that one can be read at each place.
    text = np.zeros(end - begin + STRIPE, np.uint8)
    if end > begin:
        text[:-STRIPE] = np.frombuffer(data, np.uint8)[begin:end]
    return _of_bytes(text, ends[:-1] - begin, np.diff(ends), _spread(seeds, len(texts)))


def of_numbers(numbers: NDArray[np.int64], seeds: Hashes | int = SEED) -> Hashes:
    """The hash of each 64-bit number: that of its eight bytes."""
    state = _spread(seeds, len(numbers)) + P5 + np.uint64(8)
    return _mixed(_word(state, numbers.view(np.uint64)))


def _spread(seeds: Hashes | int, count: int) -> Hashes:
    return np.full(count, seeds, np.uint64) if isinstance(seeds, int) else seeds


def _of_bytes(text: NDArray[np.uint8], begins: Places, sizes: Places, seeds: Hashes) -> Hashes:
    # Taken by stripes, since to take at a place costs the same for one word as for four.
    at = np.ndarray(len(text) - STRIPE + 1, f"V{STRIPE}", text, strides=(1,))
    stripes = sizes // STRIPE
    state = seeds + P5
    long = np.flatnonzero(stripes)
    if len(long):
        state[long] = _of_stripes(at, begins[long], stripes[long], seeds[long])
    state += sizes.view(np.uint64)
    return _mixed(_of_rest(_words(at, begins + stripes * STRIPE), sizes % STRIPE, state))


def _words(at: NDArray[np.void], places: Places) -> Hashes:
    return at[places].view("<u8").reshape(-1, LANES)


def _of_stripes(at: NDArray[np.void], begins: Places, stripes: Places, seeds: Hashes) -> Hashes:
    lanes = np.stack([seeds + P1 + P2, seeds + P2, seeds, seeds - P1], axis=1)
    fewest = int(stripes.min())
    for number in range(int(stripes.max())):
        here = slice(None) if number < fewest else np.flatnonzero(stripes > number)
        lanes[here] = _round(lanes[here], _words(at, begins[here] + number * STRIPE))
    turned = [_rotated(lanes[:, lane], bits) for lane, bits in enumerate((1, 7, 12, 18))]
    merged = turned[0] + turned[1] + turned[2] + turned[3]
    lanes = _round(np.zeros_like(lanes), lanes)
    for lane in range(LANES):
        merged = (merged ^ lanes[:, lane]) * P1 + P4
    return merged


def _of_rest(words: Hashes, sizes: Places, state: Hashes) -> Hashes:
    """The last bytes, fewer than a stripe: by eight, by four, and one by one."""
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
