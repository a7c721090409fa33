"""The transaction that ends a batch of an output, and the versions of lookups that batches and windows have seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from onlyonce.api.pipeline import Output
from onlyonce.commitlog.backfills import Backfills, Panes
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.removals import Rejections
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, Outcome
from onlyonce.database.connect import Scope, Transactions, ask, one_transaction

SinkEnd = Callable[[Scope], None]
"""The step of a sink in the transaction that ends a batch: check that its units are in the platform's log."""


@dataclass(frozen=True)
class Counted:
    """The (record, window) pairs that a batch of an output has met.

    counts    (record, window) pairs in time and late, by window (`batches.COUNTED`)
    rejected  the rejected pairs (`removals.REJECTED`); None if the output's declaration rejects none
    held      what it holds back of windows that it does not write yet (`backfills.HELD`); None if it writes all
    """

    counts: pa.Table
    rejected: pa.Table | None
    held: pa.Table | None


@dataclass(frozen=True)
class Windows:
    """The windows that a batch has written (`batches.WRITTEN`), by output.

    outputs  all outputs of the batch
    added    whether rows are added to those of the windows, or replace them
    final    whether a written window is final at once; otherwise it is once it is closed
    version  the version of `events` by which the windows are closed whose rows are all written; None if all are closed
    numbered the numbers of the root's panes (`backfills.NUMBERED`); None if it numbers none
    all_open whether the batch has written all open windows: others that the log has as open were sessions that changed
    """

    written: Mapping[str, pa.Table]
    outputs: list[str]
    added: bool
    final: bool
    version: int | None
    numbered: pa.Table | None = None
    all_open: bool = False


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
        """End a batch of an output and of the outputs that are made from it.

        Raise Superseded, or InvariantBroken if a sink misses units.
        """
        for end in sinks:
            end(self.connection)
        Batches(self.connection).count_windows(batch, root.name, met.counts)
        if met.rejected is not None:
            whose = {"incarnation": batch.plan.incarnation, "batch_id": batch.plan.batch_id}
            Rejections(self.connection).note(instance, root.name, whose, met.rejected)
        if met.held is not None:
            Panes(self.connection).hold(batch, instance, root.name, met.held)
        panes = Panes(self.connection)
        closed_before = panes.last_closed(instance, root.name)
        for output, made in windows.written.items():
            if windows.added:
                panes.add_rows(batch, instance, output, made)
            else:
                Batches(self.connection).add_panes(batch, instance, output, made, final=windows.final)
        if windows.numbered is not None:
            panes.number(batch, instance, root.name, windows.numbered)
        if windows.all_open:
            panes.forget_replaced_sessions(batch, instance, root.name)
        closed = Backfills(self.connection).closed_at(instance, root, windows.version)
        if closed is not None:
            if not windows.final:
                panes.close(instance, windows.outputs, closed)
            panes.close_without_rows(batch, instance, root, closed_before, closed)
        Batches(self.connection).end(driver, batch, outcome)


# Which versions of its lookups a batch or a window of an output has seen.


Versions = dict[str, dict[str, Any]]
"""The version of each lookup's table in a batch's row, by the lookup's name (`onlyonce.lookups.seen`)."""


@dataclass(frozen=True)
class Fixed:
    """The versions of lookups that a batch's row stores, and the declaration."""

    batch_id: int
    state: str
    declaration_hash: str
    lookups: Versions


class SeenLookups(Transactions):
    """The versions of lookups that batches and windows have seen."""

    @one_transaction
    def near(self, incarnation: str, batch_id: int) -> dict[int, Fixed]:
        """Return a batch of an output and the batch before it, by their numbers, if they are in the log."""
        rows = ask(self.connection, "lookups", "near", incarnation=incarnation, batch_id=batch_id)
        return {row.batch_id: Fixed(**row._mapping) for row in rows}

    @one_transaction
    def others(self, incarnation: str, batch_id: int) -> int | None:
        """Return the last earlier batch that saw other versions, or None."""
        rows = ask(self.connection, "lookups", "others", incarnation=incarnation, batch_id=batch_id)
        return rows[0].batch_id if rows else None

    @one_transaction
    def of_windows(self, instance: str, output: str, span: Span) -> list[tuple[datetime, Versions]]:
        """Return the versions that the windows that start in a span saw when they were last written, with each
        start.
        """
        start, stop = span.times
        rows = ask(
            self.connection, "lookups", "of_windows",
            instance=instance, output=output, window_from=start, window_to=stop,
        )  # fmt: skip
        return [(row.window_start, row.lookups) for row in rows]

    @one_transaction
    def asked_for(self) -> set[tuple[int, str]]:
        """Return (version, id of the table) of each lookup table that may be read again."""
        return {(int(row.version), row.table_id) for row in ask(self.connection, "lookups", "asked_for")}
