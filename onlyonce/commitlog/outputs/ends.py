"""The transaction that ends a batch of an output: its units are seen to be there, and what came of it is stored.

Who calls it: `onlyonce.outputs`. Errors: InvariantBroken where units are missing, Superseded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.lineages import Driver
from onlyonce.commitlog.outputs.panes import Panes
from onlyonce.commitlog.outputs.rejections import Rejections
from onlyonce.database.transactions import Scope, Transactions, one_transaction
from onlyonce.declare.pipeline import Output
from onlyonce.model.batch import Batch, Outcome

SinkEnd = Callable[[Scope], None]
"""What a sink does in the transaction that ends a batch: see that its units are in the platform's log."""


@dataclass(frozen=True)
class Counted:
    """What a batch of an output has met.

    counts    (record, window) pairs in time and late, by window (`batches.COUNTED`)
    rejected  the rejected ones (`rejections.REJECTED`); None where the output rejects none by its declaration
    held      what it leaves of windows that it does not write yet (`panes.HELD`); None where it writes all
    """

    counts: pa.Table
    rejected: pa.Table | None
    held: pa.Table | None


@dataclass(frozen=True)
class Windows:
    """What a batch has written of windows (`batches.WRITTEN`), by output.

    outputs  all outputs of the batch
    added    rows are added to what the windows have; else they are in the place of that
    final    a window that is written is final at once; else those are that end up to a version of `events`
    """

    written: Mapping[str, pa.Table]
    outputs: list[str]
    added: bool
    final: bool
    version: int


class OutputEnds(Transactions):
    """Ends of outputs' batches."""

    @one_transaction
    def end(
        self,
        driver: Driver,
        instance: str,
        root: Output,
        batch: Batch,
        sinks: Iterable[SinkEnd],
        met: Counted,
        windows: Windows,
        outcome: Outcome,
    ) -> None:
        """End a batch of an output and of those that are made from it."""
        for end in sinks:
            end(self.connection)
        Batches(self.connection).count_windows(batch, root.name, met.counts)
        if met.rejected is not None:
            whose = {"lineage": batch.plan.lineage, "batch_id": batch.plan.batch_id}
            Rejections(self.connection).note(instance, root.name, whose, met.rejected)
        if met.held is not None:
            Panes(self.connection).hold(batch, instance, root.name, met.held)
        for output, made in windows.written.items():
            if windows.added:
                Panes(self.connection).add_rows(batch, instance, output, made)
            else:
                Batches(self.connection).add_panes(batch, instance, output, made, final=windows.final)
        if not windows.final:
            Panes(self.connection).close(instance, root, windows.outputs, windows.version)
        Batches(self.connection).end(driver, batch, outcome)
