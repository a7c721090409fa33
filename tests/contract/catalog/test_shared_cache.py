"""Workers of a machine fetch each piece of the catalog from PostgreSQL once, and each finds what a worker alone would
find."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import look_up, worker_cache
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.filters import Ids
from onlyonce.catalog.range_filters import RangeFilters
from onlyonce.catalog.worker_cache import WorkerCache
from onlyonce.database.connect import Database
from onlyonce.operate import gc
from tests.contract.catalog.test_range_filters import FIRST, buckets, stream
from tests.contract.receive import Receive
from tests.contract.receiver import Record, ids_of, uniform
from tests.support.other_process import done_apart

__all__ = ["stream"]


def asked(
    folder: Path, least: int, database: Database, place: catalog.Place, wanted: Ids
) -> tuple[list[bool], Counter[str]]:
    """A worker's look-up: what it has found, and how many pieces it has fetched, by kind."""
    fetched: Counter[str] = Counter()

    def counted(kind: str, fetch: Any) -> Any:
        def count(*given: Any) -> Any:
            fetched[kind] += len(given[-1]) if kind == "filters" else 1
            return fetch(*given)

        return count

    here = pytest.MonkeyPatch()
    for name in ("filters", "ids", "slices"):
        here.setattr(Chunks, name, counted(name, getattr(Chunks, name)))
    here.setattr(RangeFilters, "stored", counted("range filters", RangeFilters.stored))
    here.setattr(worker_cache, "LEAST", least)
    look_up.share_below(folder)
    return look_up.seen(database, place, wanted).tolist(), fetched


def worker(
    stream: Receive, folder: Path, wanted: list[Record], least: int = 0, bucket: int = FIRST + 10
) -> tuple[list[bool], Counter[str]]:
    """One in a process of its own, of the executor that spills into this folder."""
    folder.mkdir(exist_ok=True)
    place = stream.place(stream.begin(bucket, 1000))
    return done_apart(asked, folder, least, stream.log.database, place, ids_of(wanted))


def test_a_second_worker_asks_the_database_for_nothing_that_the_first_has_loaded(
    stream: Receive, tmp_path: Path
) -> None:
    """No filter of a chunk or over several, and no ids.

    One of another executor asks for all of it again, and so does one for small pieces.
    """
    known = buckets(stream, 10)
    gc.main([])
    wanted = [*known[::2], *uniform(50, 9999)]
    found = [True] * 100 + [False] * 50
    loaded = Counter({"range filters": 1, "filters": 10, "ids": 10})
    one, other, small = tmp_path / "one", tmp_path / "other", tmp_path / "small"

    assert worker(stream, one, wanted) == (found, loaded)
    assert worker(stream, one, wanted) == (found, Counter())
    assert worker(stream, other, wanted) == (found, loaded)
    for _ in range(2):
        assert worker(stream, small, wanted, worker_cache.LEAST) == (found, loaded)


def test_what_a_worker_has_committed_no_other_fetches(
    stream: Receive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written the chunk's filter and ids itself."""
    monkeypatch.setattr(worker_cache, "LEAST", 0)
    monkeypatch.setattr(look_up, "_cache", WorkerCache())
    look_up.share_below(tmp_path)
    known = buckets(stream, 3)

    assert worker(stream, tmp_path, [*known, *uniform(50, 9999)]) == ([True] * 60 + [False] * 50, Counter())
