"""What the Bloom filters spare and what they ask for in vain is counted by the units, so that the rate people see is a
measured one."""

from __future__ import annotations

import pytest

from onlyonce.catalog import look_up
from onlyonce.operate import gc
from tests.contract.catalog.test_textbook_filter import twin_of
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.contract.receiver import uniform

BUCKET = 1000
OLD = uniform(20, 1)
NEW = uniform(30, 2)


@pytest.fixture
def stream(log: Log, monkeypatch: pytest.MonkeyPatch) -> Receive:
    """A pipeline that has kept twenty records, in one chunk."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    look_up.forget()
    made = Receive(log, partitions=1)
    made.batch(BUCKET, OLD)
    return made


def counted(stream: Receive) -> list[tuple[int | None, int | None]]:
    """(spared, false positives) of each batch, as people read it."""
    return [tuple(row) for row in stream.log.rows(
        "SELECT lookups_spared, false_positives FROM onlyonce.batches ORDER BY batch"
    )]  # fmt: skip


def test_a_batch_counts_what_the_filters_spared_and_asked_in_vain(stream: Receive) -> None:
    """Thirty new ids are spared, a twin of an old one is asked for in vain, three duplicates are neither."""
    stream.batch(BUCKET, [*NEW, twin_of(OLD[0]), *OLD[1:4]])

    assert counted(stream) == [(None, None), (30, 1)]


def test_each_chunk_that_is_asked_counts(stream: Receive) -> None:
    """A pair is an id and a chunk: of two chunks, the other one spares also the duplicate and the twin."""
    stream.batch(BUCKET + 1, NEW[:10])
    stream.batch(BUCKET + 2, [*NEW[10:], twin_of(OLD[0]), OLD[1]])

    assert counted(stream)[2] == (2 * 20 + 2, 1)


def test_a_replay_counts_once(stream: Receive) -> None:
    """Its unit is there already, with what its first attempt has counted."""
    records = [*NEW, twin_of(OLD[0])]
    begun = stream.begin(BUCKET)
    stream.units(begun, records)
    stream.restart()
    stream.batch(BUCKET, records, begun.plan.batch_id)

    assert counted(stream)[1:] == [(30, 1)]


def test_the_counts_outlive_the_units(stream: Receive) -> None:
    """When these are removed, long after."""
    stream.batch(BUCKET, [*NEW, twin_of(OLD[0])])
    stream.batch(BUCKET, uniform(1, 3))
    before = counted(stream)
    stream.log.rows("UPDATE onlyonce_private.batches SET committed_at = committed_at - interval '100 days'")
    assert gc.main([]).facts["units removed"] > 0

    assert stream.log.rows("SELECT count(*) FROM onlyonce_private.units WHERE batch_id = 1") == [(0,)]
    assert counted(stream) == before
    assert before[1] == (30, 1)
