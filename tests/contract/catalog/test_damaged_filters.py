"""A filter that is missing or damaged is found by its checksum and made again: never a false negative."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onlyonce.catalog import filters, look_up
from onlyonce.catalog.worker_cache import WorkerCache
from tests.contract.conftest import Log
from tests.contract.receiver import Worker, ids_of, uniform

KNOWN = uniform(500, 1)
HEADER = 24
DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "header only": lambda stored: stored[:HEADER],
    "truncated": lambda stored: stored[:-1],
    "a bit flipped": lambda stored: stored[:200] + bytes([stored[200] ^ 4]) + stored[201:],
    "all bits cleared": lambda stored: stored[:HEADER] + bytes(len(stored) - HEADER),
    "another version": lambda stored: stored[:4] + b"\x01" + stored[5:],
    "of another chunk": lambda _: filters.make(ids_of(uniform(499, 2))),
}


def stored(log: Log) -> bytes:
    """The filter of the first batch."""
    [(found,)] = log.rows("SELECT filter FROM onlyonce_private.catalog_chunks WHERE batch_id = 0")
    return bytes(found)


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_id_is_found_and_the_filter_is_whole_again(
    log: Log, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """By a worker that starts after the damage; new records are told from known ones as ever."""
    worker = Worker(log).watch(monkeypatch)
    worker.receive(101, KNOWN)
    whole = stored(log)
    log.rows("UPDATE onlyonce_private.catalog_chunks SET filter = %s", DAMAGE[damage](whole))
    worker.restart()
    fates = worker.receive(102, [*uniform(500, 3), *KNOWN])

    assert fates == ["kept"] * 500 + ["duplicate"] * 500
    assert stored(log) == whole == filters.make(ids_of(KNOWN))


def test_a_filter_that_was_made_again_spares_the_next_worker_the_ids(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stored: loaded once to make it, and not again."""
    worker = Worker(log).watch(monkeypatch)
    worker.receive(101, KNOWN)
    log.rows("UPDATE onlyonce_private.catalog_chunks SET filter = NULL")
    for batch in range(3):
        worker.restart()
        worker.receive(102, uniform(5, 10 + batch))

    assert [key.batch_id for key in worker.loaded] == [0]


def test_a_worker_that_has_the_filter_notices_no_damage(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is right all the same."""
    worker = Worker(log).watch(monkeypatch)
    worker.receive(101, KNOWN)
    worker.receive(102, uniform(5, 3))
    log.rows("UPDATE onlyonce_private.catalog_chunks SET filter = NULL")

    assert worker.receive(103, KNOWN) == ["duplicate"] * 500


def test_a_cache_too_small_for_one_chunk_is_only_slow(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each filter pushes the one before out; each answer is right."""
    monkeypatch.setattr(look_up, "_cache", WorkerCache(1))
    worker = Worker(log)
    chunks = [uniform(50, 20 + number) for number in range(look_up.AT_ONCE + 3)]
    for number, records in enumerate(chunks):
        worker.receive(101 + number, records)

    assert worker.receive(200, [records[0] for records in chunks]) == ["duplicate"] * len(chunks)


def test_a_batch_below_the_floor_is_expired_as_a_whole_and_keeps_no_ids(log: Log) -> None:
    """New or known, nobody can tell: counted in its unit, and nothing is added to the catalog."""
    worker = Worker(log)
    worker.receive(101, KNOWN)
    worker.floor = 150
    fates = worker.receive(102, [*KNOWN[:3], *uniform(2, 3)])

    assert fates == ["expired"] * 5
    assert log.rows("SELECT rows, kept, duplicate, expired FROM onlyonce_private.units WHERE batch_id = 1") == [
        (5, 0, 0, 5)
    ]
    assert log.rows("SELECT batch_id FROM onlyonce_private.catalog_chunks") == [(0,)]
