"""The hash of many texts at once is the library's of each."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from onlyonce.catalog import filters

TEXTS = st.lists(st.text(max_size=140), max_size=40)


@given(TEXTS, st.integers(0, 2**64 - 1))
def test_texts_have_the_hashes_of_the_library(texts: list[str], seed: int) -> None:
    """Whatever their lengths, one after the other in one array, from any seed."""
    found = filters.hashes_of_texts(pa.array(texts, pa.string()), seed)

    assert found.tolist() == [xxhash.xxh64_intdigest(text.encode(), seed) for text in texts]


@given(st.integers(0, 300), st.integers(0, 40))
def test_a_part_of_an_array_is_hashed_as_that_part(length: int, first: int) -> None:
    """An array that begins within its buffers, with texts of every length about a given one."""
    texts = ["é" * n for n in range(length, length + 45)]
    part = pa.array(texts, pa.string())[first:]

    assert filters.hashes_of_texts(part).tolist() == [
        xxhash.xxh64_intdigest(text.encode(), 42) for text in texts[first:]
    ]


@given(TEXTS)
def test_a_chain_takes_each_hash_as_the_next_seed(texts: list[str]) -> None:
    """As Spark hashes several columns."""
    column = pa.array(texts, pa.string())
    found = filters.hashes_of_texts(column, filters.hashes_of_texts(column))

    once = [xxhash.xxh64_intdigest(text.encode(), 42) for text in texts]
    assert found.tolist() == [
        xxhash.xxh64_intdigest(text.encode(), seed) for text, seed in zip(texts, once, strict=True)
    ]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_numbers_have_the_hashes_of_their_bytes(numbers: list[int]) -> None:
    """Eight bytes, the lowest first."""
    found = filters.hashes_of_numbers(np.array(numbers, np.int64))

    assert found.tolist() == [xxhash.xxh64_intdigest(struct.pack("<q", number), 42) for number in numbers]
