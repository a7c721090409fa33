"""Batches cut into other numbers of partitions, each by its size and by the cores that there are when it begins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from onlyonce.core import batch as core_batch
from onlyonce.operate import gc
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.contract.receiver import Record, uniform

CORES, MOST, BATCHES = (1, 2, 4, 12), 16, 24


@pytest.mark.parametrize("seed", range(2))
def test_each_record_is_kept_once_whatever_the_layouts_of_its_deliveries(
    log: Log, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Records come again in batches of any size; drivers are killed between two units and go on with other cores;
    chunks are merged, and collected into filters, meanwhile.

    A replay has the partitions of its row. What is kept is the distinct input."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    made, shop = np.random.default_rng(seed), Receive(log)
    sent: list[Record] = []
    layouts: set[int] = set()

    def cut() -> int:
        size = 1 << int(made.integers(10, 33))
        return core_batch.partitions_of_batch(size, int(made.choice(CORES)), MOST)

    for number in range(BATCHES):
        again = [sent[at] for at in made.integers(0, len(sent), 20)] if sent else []
        records = [*uniform(20, 1000 * (seed + 1) + number), *again]
        sent += records
        shop.partitions = cut()
        bucket = 100 + number // 3
        batch = shop.begin(bucket)
        if made.integers(0, 2):
            fixed = batch.plan.partitions
            for partition in range(int(made.integers(0, fixed + 1))):
                shop.unit(batch, records, partition)
            shop.restart()
            shop.partitions = 3 * fixed
            assert shop.begin(bucket, number).plan.partitions == fixed
        batch = shop.batch(bucket, records, number)
        layouts.add(batch.plan.partitions)
        shop.merge(batch)
        if number % 8 == 7:
            gc.main([])

    assert shop.rows() == Counter(("kept", record) for record in set(sent))
    assert len(layouts) > 2
