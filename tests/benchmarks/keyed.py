"""A windowed output whose windows stay open, with as many keys as are asked for: the pipeline, its input and what must
come of it.

Record `n` of a fill has a key of its own; a small batch has keys that are there. Keys lie far apart in the state, as
hashes do. All by arrays: no loop over records.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.core.windows import Fixed

FILE = 1_000_000
"""Records of a file of a fill."""


def per_key(rows: DataFrame) -> DataFrame:
    """Count and sum of each key in each window."""
    return rows.groupBy("oo_window", "key").agg(F.count(F.lit(1)).alias("rows"), F.sum("amount").alias("amount"))


PIPELINES = [
    Pipeline(
        name="keyed",
        source=Files(max_files_a_batch=2),
        schema="id long, key long, at timestamp, amount long",
        record_id=("id",),
        event_time="at",
        max_ahead=timedelta(days=36500),
        outputs=(
            Output(
                name="per_key", transform="tests.benchmarks.keyed:per_key", window=Fixed(timedelta(days=30)),
                watermark_delay=timedelta(hours=1), sink=Delta(),
            ),
        ),
    )
]  # fmt: skip


class Input:
    """What was put into the inbox so far."""

    def __init__(self, inbox: Path) -> None:
        self._inbox = inbox
        self._keys: list[np.ndarray] = []
        inbox.mkdir(parents=True, exist_ok=True)

    @property
    def records(self) -> int:
        """How many."""
        return sum(map(len, self._keys))

    def fill(self, first: int, end: int) -> None:
        """A record for each of these keys."""
        for at in range(first, end, FILE):
            self._put(np.arange(at, min(at + FILE, end), dtype=np.int64))

    def small(self, keys: int, records: int, seed: int) -> None:
        """A few records of keys that are there."""
        self._put(np.random.default_rng(seed).integers(0, keys, records))

    def expected(self) -> dict[str, np.ndarray]:
        """The rows that must be there in the end, in the order of their keys."""
        numbers = np.concatenate(self._keys)
        rows = np.bincount(numbers)
        amount = np.bincount(numbers, weights=_amount(np.arange(len(numbers)))).astype(np.int64)  # exact below 2^53
        key = _key(np.arange(len(rows), dtype=np.int64))
        order = np.argsort(key)
        return {"key": key[order], "rows": rows[order], "amount": amount[order]}

    def _put(self, numbers: np.ndarray) -> None:
        ids = np.arange(self.records, self.records + len(numbers))
        columns = [pc.cast(pa.array(values), pa.string()) for values in (ids, _key(numbers), _amount(ids))]
        head, key, time, tail = '{"id":', ',"key":', ',"at":"2026-01-05T00:00:00Z","amount":', "}\n"
        lines = pc.binary_join_element_wise(head, columns[0], key, columns[1], time, columns[2], tail, "")
        partial = self._inbox / f".{len(self._keys):05d}"
        with partial.open("wb") as file:
            for chunk in lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]:
                file.write(chunk.buffers()[2][: chunk.buffers()[2].size])
        partial.rename(self._inbox / f"{len(self._keys):05d}.jsonl")
        self._keys.append(numbers)


def _key(number: np.ndarray) -> np.ndarray:
    """One for each number below 2^32, far from its neighbours'."""
    return (number * 2_654_435_761) % (1 << 32)


def _amount(number: np.ndarray) -> np.ndarray:
    return number % 1000
