"""What the log knows of one record: its batch and unit, who has read it, its windows, and the chunk that holds its id.

Who calls it: `onlyonce.records.trace`. No errors of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from onlyonce.catalog import bloom, packed
from onlyonce.catalog.chunks import ChunkKey
from onlyonce.database.connect import ask
from onlyonce.database.transactions import Transactions, one_transaction


@dataclass(frozen=True)
class Judged:
    """The batch that judged a record, and its unit as far as the log has that."""

    state: str
    run_id: str
    committed_at: datetime | None
    delta_version: int | None
    mode: str
    units_removed: datetime | None
    unique_id: str | None
    unit_committed_at: datetime | None


@dataclass(frozen=True)
class Reading:
    """The first batch of an output that has read a version of `events`, and what its life began with."""

    lineage: str
    batch_id: int
    run_id: str
    committed_at: datetime
    start_from: dict[str, Any] | None


@dataclass(frozen=True)
class SeenWindow:
    """What readers see of a window. `events_version`: what the backfill of it has read."""

    window_start: datetime
    window_end: datetime
    generation: int | None
    state: str
    rows: int | None
    lineage: str
    batch: int
    committed_at: datetime | None
    events_version: int | None


class Traces(Transactions):
    """Questions about one record."""

    @one_transaction
    def judged(self, unit: str, lineage: str, batch_id: int) -> Judged | None:
        """Its batch; None where the log does not know it."""
        rows = ask(self.connection, "trace", "batch_of", unique_id=unit, lineage=lineage, batch_id=batch_id)
        return Judged(**rows[0]._mapping) if rows else None

    @one_transaction
    def read_by(self, instance: str, query: str, version: int | None) -> Reading | None:
        """Who has read it first of an output; None where nobody has, or its version is not known."""
        if version is None:
            return None
        rows = ask(self.connection, "trace", "read_by", instance=instance, query=query, version=version)
        return Reading(**rows[0]._mapping) if rows else None

    @one_transaction
    def windows_at(self, instance: str, output: str, time: datetime | None) -> list[SeenWindow]:
        """The windows of an output that hold a time."""
        rows = ask(self.connection, "trace", "windows_at", instance=instance, output=output, time=time)
        return [SeenWindow(**row._mapping) for row in rows]

    @one_transaction
    def chunk_with(self, instance: str, high: int, low: int) -> ChunkKey | None:
        """The live chunk that holds an id. A filter's "maybe" is settled by the ids."""
        ids = (np.array([high % 2**64], dtype=np.uint64), np.array([low % 2**64], dtype=np.uint64))
        probes = bloom.probes(ids)
        for row in ask(self.connection, "trace", "chunks", instance=instance, high=high):
            key = ChunkKey(row.bucket, row.lineage, row.batch, row.partition)
            known = bloom.read(self._bytes("filter", instance, key), row.id_count)
            if known is None or len(bloom.maybe(known, probes)):
                held = self._bytes("ids", instance, key)
                if held is not None and packed.member(packed.unpack(held), ids)[0]:
                    return key
        return None

    def _bytes(self, column: str, instance: str, key: ChunkKey) -> bytes | None:
        """One column of a chunk; None if it has none, or the chunk was merged meanwhile."""
        at = {"bucket": key.bucket, "lineage": key.lineage, "batch": key.batch_id, "partition": key.partition}
        rows = ask(self.connection, "trace", column, instance=instance, **at)
        return bytes(rows[0][0]) if rows and rows[0][0] is not None else None
