"""Which records an output has rejected, with the reason: one row for each (record, window) pair, beside the counts of
its batch.

A row has the record's id and the batch that has received it; its values stay in `events` alone. Rows are of the batch
that met the record, or of the last backfill of its window. Who calls it: `outputs` and `recompute` in the transaction
that ends a batch or a backfill; trace, erasures, removals. No errors of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from onlyonce.database.arrays import INSTANT, do_rows
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.stored_names import OO_HIGH, OO_LOW

Row = dict[str, Any]
REJECTED = pa.schema({
    "window_start": INSTANT, "window_end": INSTANT, "event_time": INSTANT, OO_HIGH: pa.int64(), OO_LOW: pa.int64(),
    "received_as": pa.string(), "received_in": pa.int64(), "reason": pa.string(), "rows": pa.int64(),
})  # fmt: skip
"""Rejected records, each in its window: rows of receive's batch `received_in` of the lineage `received_as`."""


@dataclass(frozen=True)
class Rejection:
    """Why an output has rejected a record in a window; without one the window is None."""

    output: str
    window_start: datetime | None
    window_end: datetime | None
    reason: str


class Rejections(Transactions):
    """The records that outputs have rejected."""

    @one_transaction
    def note(self, instance: str, output: str, whose: Row, rows: pa.Table) -> None:
        """Store what a batch (`whose`: its lineage and batch_id) has rejected (`REJECTED`), in the transaction that
        ends it."""
        do(self.connection, "rejected", "forget_batch", **whose)
        do_rows(self.connection, "rejected", "add", rows, instance=instance, output=output, **whose)

    @one_transaction
    def replace(self, instance: str, output: str, times: tuple[Any, Any], whose: Row, rows: pa.Table) -> None:
        """Put what a backfill has rejected of the windows that start in a span in the place of what was rejected of
        them before."""
        start, stop = times
        do(
            self.connection,
            "rejected",
            "forget_windows",
            instance=instance,
            output=output,
            window_from=start,
            window_to=stop,
        )
        do_rows(self.connection, "rejected", "add", rows, instance=instance, output=output, **whose)

    @one_transaction
    def of_record(self, instance: str, high: int, low: int) -> list[Rejection]:
        """The outputs and windows that have rejected a record, and why."""
        rows = ask(self.connection, "rejected", "of_record", instance=instance, high=high, low=low)
        return [Rejection(**row._mapping) for row in rows]

    @one_transaction
    def some(self, instance: str, output: str | None, limit: int) -> tuple[int, list[Row]]:
        """How many (record, window) pairs are rejected, of one output or all, and `limit` of them, by event time, the
        newest first."""
        which = {"instance": instance, "output": output}
        total = ask(self.connection, "rejected", "count", **which)[0].rows
        return total, [dict(row._mapping) for row in ask(self.connection, "rejected", "rows", n=limit, **which)]

    @one_transaction
    def forget_ids(self, instance: str, ids: list[tuple[int, int]]) -> None:
        """Take erased records out, by their ids (high, low): a reason may tell a value."""
        highs, lows = [high for high, _ in ids], [low for _, low in ids]
        do(self.connection, "rejected", "forget_ids", instance=instance, highs=highs, lows=lows)

    @one_transaction
    def forget_before(self, instance: str, removal: int) -> None:
        """Take out the records that a removal of old ones (keep_events) has taken from `events`."""
        do(self.connection, "rejected", "forget_before", instance=instance, number=removal)
