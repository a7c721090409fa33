"""The place of a record in words."""

from __future__ import annotations

import pytest

from onlyonce.core.records import RecordPlaces


@pytest.mark.parametrize(("name", "counts", "compressed", "position", "told"), [
    ("/in/7.jsonl", "byte", (), 1234, "/in/7.jsonl, byte 1234"), ("/in/7.jsonl", "byte", (), -1, "/in/7.jsonl"),
    ("/in/7.gz", "byte", (7,), 0, "/in/7.gz, byte 0 of its content"), ("/in/7.gz", "byte", (7,), -1, "/in/7.gz"), ("/in/{at}.parquet", "row", (), 12, "/in/{at}.parquet, row 12"),
    ("3/dt=1/part-0.parquet", "version", (), 12, "version 3, dt=1/part-0.parquet, row 12"), ("3/part-0.parquet", "version", (), -1, "version 3, part-0.parquet"),
    ("orders/3", "offset", (), 17, "topic orders, partition 3, offset 17"), ("orders/3", "offset", (), -18, "topic orders, partition 3, from offset 17"),
    ("a/b", "record", (), 5, "part a/b, record 5"), ("a/b", "record", (), -1, "part a/b"),
])  # fmt: skip
def test_place_is_told_in_the_words_of_its_source(
    name: str, counts: str, compressed: tuple[int, ...], position: int, told: str
) -> None:
    """A position below zero stands for a whole file, or for a lost range of a topic."""
    places = RecordPlaces({7: name}, counts, compressed)
    assert str(places.of(7, position)) == told
    assert places.of(8, position) is None
