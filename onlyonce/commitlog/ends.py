"""The transaction that ends a batch of an output: its units are seen to be there, and what came of it is stored.

Who calls it: `onlyonce.outputs`. Errors: InvariantBroken where units are missing, Superseded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from onlyonce.api.pipeline import Output
from onlyonce.commitlog.backfills import Panes
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.lineages import Driver
from onlyonce.commitlog.removals import Rejections
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, Outcome
from onlyonce.database.connect import Scope, Transactions, ask, one_transaction

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


# Which versions of its lookups a batch or a window of an output has seen.
#
# Who calls it: `onlyonce.outputs`, and `onlyonce.lookups.copies`, which removes copies that nobody can ask for. No
# errors of its own.


Versions = dict[str, dict[str, Any]]
"""By the lookup's name what a batch row says of its table (`onlyonce.lookups.seen`)."""


@dataclass(frozen=True)
class Fixed:
    """What a batch has fixed of its output's lookups, and under which declaration."""

    batch_id: int
    state: str
    declaration_hash: str
    lookups: Versions


class SeenLookups(Transactions):
    """The versions of lookups that batches and windows have seen."""

    @one_transaction
    def near(self, lineage: str, batch_id: int) -> dict[int, Fixed]:
        """A batch of an output and the one before it, by their numbers, where they are in the log."""
        rows = ask(self.connection, "lookups", "near", lineage=lineage, batch_id=batch_id)
        return {row.batch_id: Fixed(**row._mapping) for row in rows}

    @one_transaction
    def others(self, lineage: str, batch_id: int) -> int | None:
        """The last batch before one that saw other versions."""
        rows = ask(self.connection, "lookups", "others", lineage=lineage, batch_id=batch_id)
        return rows[0].batch_id if rows else None

    @one_transaction
    def of_windows(self, instance: str, output: str, span: Span) -> list[tuple[datetime, Versions]]:
        """What the windows that start in a span saw when they were last written, each by its start."""
        start, stop = span.times
        rows = ask(
            self.connection, "lookups", "of_windows",
            instance=instance, output=output, window_from=start, window_to=stop,
        )  # fmt: skip
        return [(row.window_start, row.lookups) for row in rows]

    @one_transaction
    def asked_for(self) -> set[tuple[int, str]]:
        """(version, id of the table) of what may be read again."""
        return {(int(row.version), row.table_id) for row in ask(self.connection, "lookups", "asked_for")}
