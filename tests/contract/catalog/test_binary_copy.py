"""A chunk that goes to PostgreSQL by COPY in its binary form comes back as it was."""

from __future__ import annotations

import pytest

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog.chunks import Chunks
from tests.contract.conftest import Log

BUCKET = 3_000_000
ODD = b"\x00\\N\n\xff\xff\t\\.\r" + bytes(range(256)) + bytes(6)
"""What a text would have to escape; sixteen bytes an id."""


@pytest.mark.parametrize("filtered", [ODD[::-1], b"", None], ids=["filter", "empty", "none"])
def test_a_chunk_comes_back_byte_by_byte(log: Log, filtered: bytes | None) -> None:
    """Ids of any bytes, a name that is no ASCII, large numbers, and a filter or none."""
    incarnation = log.start("é € shop").incarnation
    place = catalog.Place("é € shop", BUCKET, 0, incarnation, 2**40, 7, 2**31 - 1)
    key = catalog.ChunkKey(BUCKET, incarnation, 2**40, 7)
    Chunks(log.database).ensure_bucket(place.instance, BUCKET)
    Chunks(log.database).add(place, ODD, filtered)

    assert Chunks(log.database).ids(place.instance, key) == ODD
    assert Chunks(log.database).filters(place.instance, [key]) == {key: filtered}
    assert log.rows("SELECT id_count, partitions FROM onlyonce_private.catalog_chunks") == [(len(ODD) // 16, 2**31 - 1)]
