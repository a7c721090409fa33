"""The log's rows of rejected records and of removals of old records, and the removal of old rows of the log.

A rejected (record, window) pair has one row, with the reason, next to the counts of its batch. The row has the record's
id and the batch that has received it; its values stay in `events` alone. It belongs to the batch that met the record,
or to the last backfill of its window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa

from onlyonce.commitlog import units as commitlog_units
from onlyonce.commitlog.incarnations import Incarnation, Incarnations
from onlyonce.commitlog.units import Authorities
from onlyonce.core import retention
from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.errors import OnlyonceError, Retryable
from onlyonce.core.retention import Decision
from onlyonce.core.stored_names import OO_HIGH, OO_LOW
from onlyonce.core.windows import Micros
from onlyonce.database.connect import Database, Transactions, ask, do, one_transaction
from onlyonce.database.locks import INSTANT, do_rows

Row = dict[str, Any]
REJECTED = pa.schema({
    "window_start": INSTANT, "window_end": INSTANT, "event_time": INSTANT, OO_HIGH: pa.int64(), OO_LOW: pa.int64(),
    "received_as": pa.string(), "received_in": pa.int64(), "reason": pa.string(), "rows": pa.int64(),
})  # fmt: skip
"""Rejected records, each in its window. `received_in` is receive's batch and `received_as` its incarnation."""


@dataclass(frozen=True)
class Rejection:
    """Why an output has rejected a record in a window. The window is None in an output without windows."""

    output: str
    window_start: datetime | None
    window_end: datetime | None
    reason: str


class Rejections(Transactions):
    """The records that outputs have rejected."""

    @one_transaction
    def note(self, instance: str, output: str, whose: Row, rows: pa.Table) -> None:
        """Store what a batch has rejected (`REJECTED`), in the transaction that ends it. `whose`: its incarnation and
        batch_id.
        """
        do(self.connection, "rejected", "forget_batch", **whose)
        do_rows(self.connection, "rejected", "add", rows, instance=instance, output=output, **whose)

    @one_transaction
    def replace(self, instance: str, output: str, times: tuple[Any, Any], whose: Row, rows: pa.Table) -> None:
        """Replace the rejections of the windows that start in a span by a backfill's rejections."""
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
        """Return the outputs and windows that have rejected a record, and why."""
        rows = ask(self.connection, "rejected", "of_record", instance=instance, high=high, low=low)
        return [Rejection(**row._mapping) for row in rows]

    @one_transaction
    def some(self, instance: str, output: str | None, limit: int) -> tuple[int, list[Row]]:
        """Return how many (record, window) pairs are rejected, and the `limit` newest of them by event time.

        `output`: count only the pairs of this output; None counts all.
        """
        which = {"instance": instance, "output": output}
        total = ask(self.connection, "rejected", "count", **which)[0].rows
        return total, [dict(row._mapping) for row in ask(self.connection, "rejected", "rows", n=limit, **which)]

    @one_transaction
    def forget_ids(self, instance: str, ids: list[tuple[int, int]]) -> None:
        """Delete the rejections of erased records by their ids (high, low): a reason may quote a value."""
        highs, lows = [high for high, _ in ids], [low for _, low in ids]
        do(self.connection, "rejected", "forget_ids", instance=instance, highs=highs, lows=lows)

    @one_transaction
    def forget_before(self, instance: str, removal: int) -> None:
        """Delete the rejections of records that removal number `removal` (keep_events) deleted from `events`."""
        do(self.connection, "rejected", "forget_before", instance=instance, number=removal)


# Removals of old records from `events`: begin, counts and end, and the refusal of what needs removed records.
# docs/specification/removal.md.
#
# A removal is noted before a file is deleted. From then on nothing begins that needs its records. An incarnation, a
# backfill and a reprocessing check and lock the note in the transaction in which they begin. What had begun earlier
# delays the removal. The counts by batch and fate are noted before the commit to Delta, so the log knows at any moment
# what the table may have.


Counts = Mapping[tuple[str, int, str], int]
"""Rows by incarnation of receive, batch and fate."""


@dataclass(frozen=True)
class Removal:
    """A begun removal of all records from before an event time, in batches of `events` up to a version."""

    number: int
    before: Micros
    upto: int


class Removals(Transactions):
    """Removals of old records from `events`."""

    @one_transaction
    def kept_from(self, instance: str) -> Micros | None:
        """Return the event time from which `events` has all records; None if from the beginning."""
        rows = ask(self.connection, "removals", "kept_from", instance=instance)
        return to_micros(rows[0].kept_from) if rows else None

    @one_transaction
    def begun(self, instance: str) -> Removal | None:
        """Return the removal that an earlier attempt has left behind."""
        rows = ask(self.connection, "removals", "begun", instance=instance)
        return Removal(rows[0].number, to_micros(rows[0].before) or 0, rows[0].upto) if rows else None

    @one_transaction
    def begin(self, instance: str, keep: timedelta, decide: Callable[[], Decision]) -> Removal | None:
        """Decide and note what is removed; return the removal, or None if nothing more can be removed.

        A removal that has already begun is returned as it is. The instance's row is locked meanwhile.
        """
        known = ask(self.connection, "removals", "lock_instance", instance=instance)
        left = self.begun(instance)
        if left or not known:
            return left
        decision = decide()
        if decision.before <= (to_micros(known[0].kept_from) or 0):
            return None
        before = to_time(decision.before)
        do(self.connection, "removals", "raise_kept_from", instance=instance, before=before)
        do(self.connection, "removals", "begin", instance=instance, keep_events=keep, before=before, upto=decision.upto)
        return self.begun(instance)

    @one_transaction
    def count(self, instance: str, removal: Removal, counts: Counts, files: int) -> None:
        """Note how many rows of each batch and fate the removal deletes, in place of an earlier attempt's counts."""
        do(self.connection, "removals", "forget_counts", instance=instance, number=removal.number)
        rows = [
            {"incarnation": incarnation, "batch_id": number, "fate": fate, "rows": rows}
            for (incarnation, number, fate), rows in sorted(counts.items())
        ]
        do_rows(
            self.connection,
            "removals",
            "add_counts",
            pa.Table.from_pylist(rows),
            instance=instance,
            number=removal.number,
        )
        do(self.connection, "removals", "note_files", instance=instance, number=removal.number, files=files)

    @one_transaction
    def end(self, instance: str, removal: Removal, version: int) -> None:
        """End a removal whose commit made a version of the table. The rejections of the removed records are deleted
        too.
        """
        Rejections(self.connection).forget_before(instance, removal.number)
        do(self.connection, "removals", "end", instance=instance, number=removal.number, version=version)

    @one_transaction
    def beyond_horizon(self, instance: str) -> int:
        """Return the last version of `events` whose ids are removed from the id catalog; -1 if none is."""
        version = ask(self.connection, "removals", "beyond_horizon", instance=instance)[0].version
        return -1 if version is None else int(version)

    @one_transaction
    def under_way(self, instance: str) -> list[str]:
        """Return the backfills, reprocessings and erasures that have begun."""
        return [row.what for row in ask(self.connection, "removals", "under_way", instance=instance)]

    @one_transaction
    def last_keep(self, instance: str) -> timedelta | None:
        """Return the value of keep_events at the last removal of records."""
        rows = ask(self.connection, "removals", "last_keep", instance=instance)
        found: timedelta | None = rows[0].keep_events if rows else None
        return found

    @one_transaction
    def erased(self, instance: str) -> bool:
        """Return whether records of the instance were erased on request."""
        return bool(ask(self.connection, "removals", "erased", instance=instance)[0].found)

    @one_transaction
    def removed_of(self, incarnation: str, batch_id: int, fate: str) -> int:
        """Return how many rows of a batch and fate are removed."""
        return int(
            ask(self.connection, "removals", "of_batch", incarnation=incarnation, batch_id=batch_id, fate=fate)[0].rows
        )

    @one_transaction
    def counts(self, instance: str) -> dict[tuple[str, int, str], tuple[int, int]]:
        """Return (rows removed, rows about to be removed that the table may still have) by incarnation of receive,
        batch and fate.
        """
        rows = ask(self.connection, "removals", "counts", instance=instance)
        return {(row.incarnation, row.batch, row.fate): (row.removed, row.about_to_be) for row in rows}

    def _held(self, instance: str) -> Micros | None:
        """Return the event time from which `events` has all records, locked until this transaction ends."""
        rows = ask(self.connection, "removals", "held_kept_from", instance=instance)
        return to_micros(rows[0].kept_from) if rows else None

    @one_transaction
    def register(self, instance: str, query: str) -> Incarnation:
        """Return the live incarnation of a query, and make it if there is none.

        Raise Refused if it would begin at removed records. Raise Retryable if it has begun no batch and an erasure has
        not ended.
        """
        kept = self._held(instance)
        live = Incarnations(self.connection).live(instance, query)
        if kept is not None and live is None:
            retention.refuse_start(instance, query, kept, None)
        if live is None or Incarnations(self.connection).last_batches(live.incarnation)[0] is None:
            self.refuse_while_erasing(instance)
        return Incarnations(self.connection).register(instance, query, uuid4())

    @one_transaction
    def refuse_while_erasing(self, instance: str) -> None:
        """Raise Retryable if an erasure has begun and not ended: a first batch reads all of `events`, also records that
        are erased meanwhile.

        The caller holds the instance's row, so that no erasure begins until its transaction has ended.
        """
        if ask(self.connection, "removals", "erasing", instance=instance)[0].found:
            raise Retryable(
                f"records of {instance} are being erased (onlyonce forget)",
                data="nothing was read or written",
                hint="run the same command again once the erasure has ended. If it was killed, first run `onlyonce "
                "forget` again with its condition, which finishes it",
            )

    @one_transaction
    def refuse_incarnation(self, instance: str, query: str, start: dict[str, Any] | None) -> None:
        """Raise Refused if a new incarnation would need removed records. It may begin later, or with the records that
        are kept.
        """
        retention.refuse_start(instance, query, self._held(instance), start)

    @one_transaction
    def refuse_span(self, instance: str, output: str, start: Micros, reach_back: Micros) -> None:
        """Raise Refused if records of these windows are removed. Called in the transaction that begins their
        backfill.
        """
        kept = self._held(instance)
        retention.refuse_span(output, start, None if kept is None else kept + reach_back)

    @one_transaction
    def refuse_changed(self, instance: str, version: int) -> None:
        """Raise Retryable if rows were removed after a reprocessing has read a version of `events`.

        Called in the transaction that begins the reprocessing.
        """
        self._held(instance)
        if ask(self.connection, "removals", "came_between", instance=instance, version=version)[0].found:
            raise Retryable(
                f"old records of {instance} were removed from `events` meanwhile (keep_events)",
                data="nothing of this reprocessing was begun",
                hint="run the same command again: it reprocesses the remaining rows",
            )

    @one_transaction
    def forget(self, instances: list[str]) -> None:
        """Delete the removals of dropped instances."""
        do(self.connection, "removals", "forget", instances=instances)


# What the log keeps, and for how long.
#
# Units of batches that were committed long ago are removed; the batch keeps their sums.
#
# - `units`: for ONLYONCE_KEEP_UNITS_DAYS after the commit of their batch, and always for the last batch of an
# incarnation. A   committed batch is never replayed, and its row has their sums.
# - `batches` of receive: always. The frontier, incarnation checks, a new output and a backfill need any receive batch
# whose   rows are in `events`.
# - `batches` of outputs, `window_counts`: always, or for the pipeline's `keep_log`. Their sums stay, by incarnation and
# by   window. See `onlyonce/operate/compact.py`.
# - `sums`: always, one row for each incarnation. They hold the batches older than a day, so that no query adds up a log
# of   years.
# - `panes`, `watermark_markers`, `backfills`: always. They say what is final by window, and are few.
# - `outbox`: for ONLYONCE_KEEP_UNITS_DAYS after delivery; always if a row is not delivered or is uncertain. They answer
#   what was sent, and when.
# - `outbox`, held for a backfill: until it ends, or, after a killed attempt, until the same backfill begins again. A
#   driver may still be at work, and `audit` names a begun backfill.
# - `catalog_chunks`: for the dedup horizon, in lived time. See `onlyonce/core/gc.py`.
# - `range_filters`: until their last bucket is removed, or a longer filter has replaced them. See
#   `onlyonce/core/gc.py`.
#
# The database's clock decides the age; no result depends on it. Units in a sink's own database are removed after the
# log's, when that database answers.


AT_ONCE = 500
"""Batches for each transaction: short locks, even on a log that was never cleaned."""
FOLDED_AT_ONCE = 5000
NOTED_AT_ONCE = 1000
FOLDED_AFTER_HOURS = 24
"""Batches of the last day are compared with their units and windows by each audit, and are only then added to the
sums.
"""
ROWS_AT_ONCE = 5000


@dataclass(frozen=True)
class Settled:
    """An incarnation, and the batch up to which all its batches were committed long enough ago."""

    instance: str
    output: str
    incarnation: str
    upto: int


class Retention(Transactions):
    """Removal of old rows from the log."""

    @one_transaction
    def unfolded(self) -> list[tuple[str, int]]:
        """Return the incarnations with batches to add to their sums, each with the last batch that the sums include."""
        return [(row.incarnation, row.upto) for row in ask(self.connection, "gc", "unfolded", hours=FOLDED_AFTER_HOURS)]

    @one_transaction
    def fold(self, incarnation: str, upto: int) -> int:
        """Add the next batches of an incarnation to its sums, at most `FOLDED_AT_ONCE`, and return their number.

        The caller asks `unfolded` again and repeats until 0. A batch that does not add up is never added, nor any batch
        after it: each audit reports it.
        """
        rows = ask(
            self.connection,
            "gc",
            "fold",
            incarnation=incarnation,
            upto=upto,
            hours=FOLDED_AFTER_HOURS,
            at_once=FOLDED_AT_ONCE,
        )
        return sum(row.folded for row in rows)

    @one_transaction
    def unsettled(self) -> list[tuple[str, int, int]]:
        """Return (incarnation, after which batch, up to which batch) for batches whose windows are not yet noted as
        final.
        """
        return [(row.incarnation, row.after, row.upto) for row in ask(self.connection, "gc", "unsettled")]

    @one_transaction
    def note_final(self, incarnation: str, after: int, upto: int) -> int | None:
        """Note that all windows of an incarnation's next batches are final; return the last of at most `NOTED_AT_ONCE`
        batches.

        Windows that later ones have replaced become final by it: after a change of an output's windows no batch writes
        the old ones that were open. Return None if the first of the batches has an open window. If several gc runs are
        concurrent, one of them notes a batch.
        """
        which = {"incarnation": incarnation, "after": after, "upto": upto, "at_once": NOTED_AT_ONCE}
        do(self.connection, "gc", "close_replaced", **which)
        rows = ask(self.connection, "gc", "note_final", **which)
        return rows[0].final_upto if rows else None

    @one_transaction
    def remove_units(self, keep_days: int) -> tuple[int, int]:
        """Remove the units of the oldest such batches, at most `AT_ONCE`. Return (batches, units).

        The caller repeats until 0 batches. If several gc runs are concurrent, one of them removes a batch's units.
        """
        rows = ask(self.connection, "gc", "remove_units", keep_days=keep_days, at_once=AT_ONCE)
        return len(rows), sum(row.units_removed for row in rows)

    @one_transaction
    def remove_delivered(self, keep_days: int) -> int:
        """Remove some rows of the outbox that were delivered long enough ago. Return their number; the caller repeats
        until 0.
        """
        return do(self.connection, "gc", "remove_delivered", keep_days=keep_days, at_once=ROWS_AT_ONCE)

    @one_transaction
    def settled(self, keep_days: int) -> list[Settled]:
        """Return, for each output's incarnation, the last batch such that it and all earlier ones are committed since
        `keep_days`: of streams and of backfills. Of a closed incarnation, return the largest number.

        A later batch may need its rows.
        """
        return [Settled(*tuple(row)) for row in ask(self.connection, "gc", "settled", keep_days=keep_days)]


def remove_elsewhere(database: Database) -> tuple[int, list[str]]:
    """Remove from sinks' own databases the units that `remove_units` has removed from the log.

    Return their number, and what is left for the next time because its database is unreachable.
    """
    removed, left = 0, []
    for one, upto in Authorities(database).settled():
        try:
            while units := commitlog_units.remove_units(one, upto, ROWS_AT_ONCE):
                removed += units
        except OnlyonceError as error:
            left.append(f"{error.what}. Its old units are left for the next time")
    return removed, left
