"""A task as Spark runs it on an executor, without Spark: the product's own function over Arrow batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark

from onlyonce.sinks.content_hash import HASH
from onlyonce.sinks.postgres.pinned import PARTITION


class Context:
    """What a task asks Spark."""

    def __init__(self, partition: int, attempt: int = 0) -> None:
        self._partition, self._attempt = partition, attempt

    def partitionId(self) -> int:
        return self._partition

    def stageId(self) -> int:
        return 1

    def taskAttemptId(self) -> int:
        return self._attempt


def run_unit(
    task: Callable[[Any], Iterator[pa.RecordBatch]], brought: Iterator[pa.RecordBatch], partition: int
) -> None:
    """A task as Spark runs it on an executor."""
    with mock.patch.object(pyspark.TaskContext, "get", return_value=Context(partition)):
        list(task(brought))


def hashed(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """The batch with the two columns that Spark's plan adds: a hash of the exact columns, the target partition."""
    exact = [c for c in batch.schema.names if not pa.types.is_floating(batch.schema.field(c).type)]
    hashes = [hash_of(row) for row in batch.select(exact).to_pylist()]
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns[HASH] = pa.array(np.array(hashes, dtype=np.int64))
    columns[PARTITION] = pc.cast(pa.repeat(partition, batch.num_rows), pa.int32())
    return pa.RecordBatch.from_pydict(columns)


def hash_of(row: dict[str, Any]) -> int:
    """A 64-bit hash of a row; any will do that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=8).digest(), "big", signed=True)
