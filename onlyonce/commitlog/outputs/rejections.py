"""Which records an output has rejected, with the reason: one row for each (record, window) pair, beside the counts of
its batch.

A row has the record's id and the batch that has received it; its values stay in `events` alone. Rows are of the batch
that met the record, or of the last backfill of its window. Who calls it: `outputs` and `recompute` in the transaction
that ends a batch or a backfill; trace, erasures, removals. No errors of its own.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlalchemy import Connection

from onlyonce.database.arrays import INSTANT, do_rows
from onlyonce.database.connect import ask, do
from onlyonce.model.stored_names import OO_HIGH, OO_LOW

Row = dict[str, Any]
REJECTED = pa.schema({
    "window_start": INSTANT, "window_end": INSTANT, "event_time": INSTANT, OO_HIGH: pa.int64(), OO_LOW: pa.int64(),
    "received_as": pa.string(), "received_in": pa.int64(), "reason": pa.string(), "rows": pa.int64(),
})  # fmt: skip
"""Rejected records, each in its window: rows of receive's batch `received_in` of the lineage `received_as`."""


def note(connection: Connection, instance: str, output: str, whose: Row, rows: pa.Table) -> None:
    """Store what a batch (`whose`: its lineage and batch_id) has rejected (`REJECTED`), in the transaction that ends
    it."""
    do(connection, "rejected", "forget_batch", **whose)
    do_rows(connection, "rejected", "add", rows, instance=instance, output=output, **whose)


def replace(
    connection: Connection, instance: str, output: str, times: tuple[Any, Any], whose: Row, rows: pa.Table
) -> None:
    """Put what a backfill has rejected of the windows that start in a span in the place of what was rejected of them
    before."""
    start, stop = times
    do(connection, "rejected", "forget_windows", instance=instance, output=output, window_from=start, window_to=stop)
    do_rows(connection, "rejected", "add", rows, instance=instance, output=output, **whose)


def of_record(connection: Connection, instance: str, high: int, low: int) -> list[Any]:
    """The outputs and windows that have rejected a record, and why."""
    return ask(connection, "rejected", "of_record", instance=instance, high=high, low=low)


def some(connection: Connection, instance: str, output: str | None, limit: int) -> tuple[int, list[Row]]:
    """How many (record, window) pairs are rejected, of one output or all, and `limit` of them, by event time, the
    newest first."""
    which = {"instance": instance, "output": output}
    total = ask(connection, "rejected", "count", **which)[0].rows
    return total, [dict(row._mapping) for row in ask(connection, "rejected", "rows", n=limit, **which)]


def forget_ids(connection: Connection, instance: str, ids: list[tuple[int, int]]) -> None:
    """Take erased records out, by their ids (high, low): a reason may tell a value."""
    highs, lows = [high for high, _ in ids], [low for _, low in ids]
    do(connection, "rejected", "forget_ids", instance=instance, highs=highs, lows=lows)


def forget_before(connection: Connection, instance: str, removal: int) -> None:
    """Take out the records that a removal of old ones (keep_events) has taken from `events`."""
    do(connection, "rejected", "forget_before", instance=instance, number=removal)
