"""The windows that an output writes before they close: what was written of each so far, and since when it is final.

Who calls it: `outputs`, in the transaction that ends a batch. No errors of its own. Windows that are written once, when
they close, are noted by `batches.add_panes`.
"""

from __future__ import annotations

import pyarrow as pa

from onlyonce.commitlog import batches
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.database.arrays import INSTANT, do_rows
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.declare.pipeline import Output
from onlyonce.model.batch import Batch, to_micros, to_time
from onlyonce.model.frontier import closed_until
from onlyonce.model.outputs.triggers import Bounds, Held
from onlyonce.model.windows import micros

HELD = pa.schema({"window_start": INSTANT, "window_end": INSTANT, "held": pa.int64(), "held_since": INSTANT})
"""What a batch leaves of each window that it has changed; null where it leaves nothing."""


class Panes(Transactions):
    """The panes of windows that are written before they close."""

    @one_transaction
    def add_rows(self, batch: Batch, instance: str, output: str, windows: pa.Table) -> None:
        """Add the rows that a batch has written (`batches.WRITTEN`) to what is known of their windows."""
        do_rows(
            self.connection, "batches", "add_to_panes", windows, instance=instance, output=output, **batches.by(batch)
        )

    @one_transaction
    def held(self, instance: str, output: str) -> dict[Bounds, Held]:
        """What the batches before have left of an output's open windows: the records that no pane has."""
        found = {}
        for row in ask(self.connection, "triggers", "held", instance=instance, output=output):
            start, end, since = (to_micros(time) or 0 for time in (row.window_start, row.window_end, row.held_since))
            found[start, end] = Held(row.held, since)
        return found

    @one_transaction
    def hold(self, batch: Batch, instance: str, output: str, windows: pa.Table) -> None:
        """Store what a batch leaves of the windows that it has changed (`HELD`)."""
        plan = batch.plan
        do_rows(
            self.connection,
            "triggers",
            "hold",
            windows,
            instance=instance,
            output=output,
            lineage=plan.lineage,
            batch_id=plan.batch_id,
            declaration_hash=plan.declaration_hash,
        )

    @one_transaction
    def close(self, instance: str, root: Output, outputs: list[str], version: int) -> None:
        """Mark the windows as final that nothing in time can come for, once `events` is read up to a version."""
        if root.window is None:
            return
        closed = closed_until(
            Backfills(self.connection).frontier_at(instance, version), root.window, micros(root.lateness)
        )
        if closed is not None:
            do(
                self.connection,
                "batches",
                "close_panes",
                instance=instance,
                outputs=outputs,
                closed_until=to_time(closed),
            )
