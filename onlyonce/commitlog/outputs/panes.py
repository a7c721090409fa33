"""The windows that an output writes before they close: what was written of each so far, and since when it is final.

Who calls it: `outputs`, in the transaction that ends a batch. No errors of its own. Windows that are written once, when
they close, are noted by `batches.add_panes`.
"""

from __future__ import annotations

import pyarrow as pa
from sqlalchemy import Connection

from onlyonce.commitlog import batches
from onlyonce.commitlog.outputs import backfills
from onlyonce.database.arrays import INSTANT, do_rows
from onlyonce.database.connect import ask, do
from onlyonce.declare.pipeline import Output
from onlyonce.model.batch import Batch, to_micros, to_time
from onlyonce.model.frontier import closed_until
from onlyonce.model.outputs.triggers import Bounds, Held
from onlyonce.model.windows import micros

HELD = pa.schema({"window_start": INSTANT, "window_end": INSTANT, "held": pa.int64(), "held_since": INSTANT})
"""What a batch leaves of each window that it has changed; null where it leaves nothing."""


def add_rows(connection: Connection, batch: Batch, instance: str, output: str, windows: pa.Table) -> None:
    """Add the rows that a batch has written (`batches.WRITTEN`) to what is known of their windows."""
    do_rows(connection, "batches", "add_to_panes", windows, instance=instance, output=output, **batches.by(batch))


def held(connection: Connection, instance: str, output: str) -> dict[Bounds, Held]:
    """What the batches before have left of an output's open windows: the records that no pane has."""
    found = {}
    for row in ask(connection, "triggers", "held", instance=instance, output=output):
        start, end, since = (to_micros(time) or 0 for time in (row.window_start, row.window_end, row.held_since))
        found[start, end] = Held(row.held, since)
    return found


def hold(connection: Connection, batch: Batch, instance: str, output: str, windows: pa.Table) -> None:
    """Store what a batch leaves of the windows that it has changed (`HELD`)."""
    plan = batch.plan
    do_rows(
        connection,
        "triggers",
        "hold",
        windows,
        instance=instance,
        output=output,
        lineage=plan.lineage,
        batch_id=plan.batch_id,
        declaration_hash=plan.declaration_hash,
    )


def close(connection: Connection, instance: str, root: Output, outputs: list[str], version: int) -> None:
    """Mark the windows as final that nothing in time can come for, once `events` is read up to a version."""
    if root.window is None:
        return
    closed = closed_until(backfills.frontier_at(connection, instance, version), root.window, micros(root.lateness))
    if closed is not None:
        do(connection, "batches", "close_panes", instance=instance, outputs=outputs, closed_until=to_time(closed))
