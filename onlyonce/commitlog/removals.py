"""Which records an output has rejected, with the reason: one row for each (record, window) pair, beside the counts of
its batch.

A row has the record's id and the batch that has received it; its values stay in `events` alone. Rows are of the batch
that met the record, or of the last backfill of its window. Who calls it: `outputs` and `recompute` in the transaction
that ends a batch or a backfill; trace, erasures, removals. No errors of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa

from onlyonce.commitlog import units as commitlog_units
from onlyonce.commitlog.lineages import Lineage, Lineages
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


# Removals of old records from `events`: begun, counted, done; and who is refused what is gone.
# docs/specification/removal.md.
#
# A removal is noted before a file goes. From then on nothing begins that needs its records: a life, a backfill and a
# release look at the note in the transaction in which they begin, and hold it until that ends. What had begun before
# holds the removal. The counts by batch and fate are noted before the commit to Delta, so the log knows at any moment
# what the table may have.
#
# Who calls it: `onlyonce.operate.compact` writes; a starting driver, `lineage new`, backfills, releases, the
# audit and `plan` read. Errors: Refused and Retryable, as the functions say.


Counts = Mapping[tuple[str, int, str], int]
"""Rows by life of receive, batch and fate."""


@dataclass(frozen=True)
class Removal:
    """A removal that has begun: all records from before an event time, of batches of `events` up to a version."""

    number: int
    before: Micros
    upto: int


class Removals(Transactions):
    """Removals of old records from `events`."""

    @one_transaction
    def kept_from(self, instance: str) -> Micros | None:
        """The event time from which `events` has all records; None: from the beginning."""
        rows = ask(self.connection, "removals", "kept_from", instance=instance)
        return to_micros(rows[0].kept_from) if rows else None

    @one_transaction
    def begun(self, instance: str) -> Removal | None:
        """The removal that an earlier attempt has left."""
        rows = ask(self.connection, "removals", "begun", instance=instance)
        return Removal(rows[0].number, to_micros(rows[0].before) or 0, rows[0].upto) if rows else None

    @one_transaction
    def begin(self, instance: str, keep: timedelta, decide: Callable[[], Decision]) -> Removal | None:
        """Decide and note what goes, alone; None where nothing more can go. The one that has begun, if there is one."""
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
        """Note how many rows of which batches the removal takes, in place of what an earlier attempt has counted."""
        do(self.connection, "removals", "forget_counts", instance=instance, number=removal.number)
        rows = [
            {"lineage": lineage, "batch_id": number, "fate": fate, "rows": rows}
            for (lineage, number, fate), rows in sorted(counts.items())
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
        """The rows are gone from the table, by the commit that made a version of it. What was rejected of them goes
        too."""
        Rejections(self.connection).forget_before(instance, removal.number)
        do(self.connection, "removals", "end", instance=instance, number=removal.number, version=version)

    @one_transaction
    def beyond_horizon(self, instance: str) -> int:
        """The last version of `events` whose ids are collected; -1 for none."""
        version = ask(self.connection, "removals", "beyond_horizon", instance=instance)[0].version
        return -1 if version is None else int(version)

    @one_transaction
    def under_way(self, instance: str) -> list[str]:
        """The backfills and releases that have begun."""
        return [row.what for row in ask(self.connection, "removals", "under_way", instance=instance)]

    @one_transaction
    def last_keep(self, instance: str) -> timedelta | None:
        """What keep_events was when records were last removed."""
        rows = ask(self.connection, "removals", "last_keep", instance=instance)
        found: timedelta | None = rows[0].keep_events if rows else None
        return found

    @one_transaction
    def erased(self, instance: str) -> bool:
        """Whether records of it were forgotten at somebody's request."""
        return bool(ask(self.connection, "removals", "erased", instance=instance)[0].found)

    @one_transaction
    def removed_of(self, lineage: str, batch_id: int, fate: str) -> int:
        """How many rows of a batch and fate are removed."""
        return int(ask(self.connection, "removals", "of_batch", lineage=lineage, batch_id=batch_id, fate=fate)[0].rows)

    @one_transaction
    def counts(self, instance: str) -> dict[tuple[str, int, str], tuple[int, int]]:
        """(rows that are removed, rows that are about to be and may be there) by life of receive, batch and fate."""
        rows = ask(self.connection, "removals", "counts", instance=instance)
        return {(row.lineage, row.batch, row.fate): (row.removed, row.about_to_be) for row in rows}

    def _held(self, instance: str) -> Micros | None:
        """The event time from which there is all, which does not move until this transaction has ended."""
        rows = ask(self.connection, "removals", "held_kept_from", instance=instance)
        return to_micros(rows[0].kept_from) if rows else None

    @one_transaction
    def register(self, instance: str, query: str) -> Lineage:
        """The live lineage of a query, made if there is none. Raises Refused where it would begin at records that are
        gone."""
        kept = self._held(instance)
        if kept is not None and Lineages(self.connection).live(instance, query) is None:
            retention.refuse_start(instance, query, kept, None)
        return Lineages(self.connection).register(instance, query, uuid4())

    @one_transaction
    def refuse_life(self, instance: str, query: str, start: dict[str, Any] | None) -> None:
        """The same for a new life, which may begin later, or with what is kept."""
        retention.refuse_start(instance, query, self._held(instance), start)

    @one_transaction
    def refuse_span(self, instance: str, output: str, start: Micros, reach_back: Micros) -> None:
        """Raise Refused for windows whose records are gone. In the transaction that begins their backfill."""
        kept = self._held(instance)
        retention.refuse_span(output, start, None if kept is None else kept + reach_back)

    @one_transaction
    def refuse_changed(self, instance: str, version: int) -> None:
        """Raise Retryable where rows went after a version of `events` was looked at.

        In the transaction that begins a release of them.
        """
        self._held(instance)
        if ask(self.connection, "removals", "came_between", instance=instance, version=version)[0].found:
            raise Retryable(
                f"old records of {instance} were removed from `events` meanwhile (keep_events)",
                data="nothing of this release was begun",
                hint="run the same command again: it releases what is left",
            )

    @one_transaction
    def forget(self, instances: list[str]) -> None:
        """All of dropped instances."""
        do(self.connection, "removals", "forget", instances=instances)


# What the log keeps, and for how long.
#
# Units of batches that were committed long ago are removed; the batch keeps their sums.
#
# - `units`: kept for ONLYONCE_KEEP_UNITS_DAYS after their batch was committed; always of the last batch of a lineage.
#   Why: a committed batch is never replayed, and its row has their sums.
# - `batches` of receive: kept always. Why: frontier, lineage checks, a new output and a backfill ask for any receive
#   batch whose rows are in `events`.
# - `batches` of outputs, `window_counts`: kept always, or for the pipeline's `keep_log`. Why: see
#   `onlyonce/operate/compact.py`; their sums stay, by life and by window.
# - `sums`: kept always: a row for each life. Why: what the batches came to that are older than a day, so nobody adds up
# a
#   log of years.
# - `panes`, `closes`, `backfills`: kept always. Why: what is final, by window; few.
# - `outbox`: kept for ONLYONCE_KEEP_UNITS_DAYS after a row was delivered; always while it is not, or uncertain. Why:
# who
#   asks what was sent, and when.
# - `outbox`, held for a backfill: kept until it ends; of a killed attempt until the same backfill begins again. Why: a
#   driver may still be at work, and `audit` names a begun backfill.
# - `catalog_chunks`: kept for the dedup horizon, in lived time. Why: see `onlyonce/core/gc.py`.
# - `range_filters`: kept until their last bucket is collected, or a longer one has taken their place. Why:
#   `onlyonce/core/gc.py`.
#
# Who calls it: `onlyonce.operate.gc`. The database's clock decides the age; no result depends on it. Not promised:
# that the units in a Postgres sink's own database are removed at the same time. They are removed after the log's, when
# that database answers.


AT_ONCE = 500
"""Batches for each transaction: short locks, also on a log that was never cleaned."""
FOLDED_AT_ONCE = 5000
NOTED_AT_ONCE = 1000
FOLDED_AFTER_HOURS = 24
"""Batches of the last day are compared with their units and windows by each audit, and only then folded into the
sums."""
ROWS_AT_ONCE = 5000


@dataclass(frozen=True)
class Settled:
    """Up to which batch all of a lineage was committed so long ago."""

    instance: str
    output: str
    lineage: str
    upto: int


class Retention(Transactions):
    """What goes from the log when it is old."""

    @one_transaction
    def unfolded(self) -> list[tuple[str, int]]:
        """The lives with batches to fold into their sums, each with the last batch that is in them."""
        return [
            (row.lineage, row.upto) for row in ask(self.connection, "collect", "unfolded", hours=FOLDED_AFTER_HOURS)
        ]

    @one_transaction
    def fold(self, lineage: str, upto: int) -> int:
        """Add the next batches of a life to its sums, `FOLDED_AT_ONCE` at most; gives their number.

        Again, by a new look, until 0.

        A batch that does not add up is never folded, nor any after it: an audit goes on telling of it. Raises nothing
        of its own.
        """
        rows = ask(
            self.connection,
            "collect",
            "fold",
            lineage=lineage,
            upto=upto,
            hours=FOLDED_AFTER_HOURS,
            at_once=FOLDED_AT_ONCE,
        )
        return sum(row.folded for row in rows)

    @one_transaction
    def unsettled(self) -> list[tuple[str, int, int]]:
        """The lives of outputs of which some batches' windows are not known to be final: (life, after which batch, up
        to which)."""
        return [(row.lineage, row.after, row.upto) for row in ask(self.connection, "collect", "unsettled")]

    @one_transaction
    def note_final(self, lineage: str, after: int, upto: int) -> int | None:
        """Note that all windows of the next batches of a life are final, of `NOTED_AT_ONCE` at most; gives the last of
        these, None where the first of them has an open one.

        Beside another collector one of them does it."""
        rows = ask(
            self.connection, "collect", "note_final", lineage=lineage, after=after, upto=upto, at_once=NOTED_AT_ONCE
        )
        return rows[0].final_upto if rows else None

    @one_transaction
    def remove_units(self, keep_days: int) -> tuple[int, int]:
        """Remove the units of the oldest such batches, `AT_ONCE` at most; gives (batches, units). Again until 0
        batches.

        Beside another collector each batch is done by one of them. Raises nothing of its own.
        """
        rows = ask(self.connection, "collect", "remove_units", keep_days=keep_days, at_once=AT_ONCE)
        return len(rows), sum(row.units_removed for row in rows)

    @one_transaction
    def remove_delivered(self, keep_days: int) -> int:
        """Remove rows of the outbox that were delivered so long ago, some at a time; gives their number. Again until
        0."""
        return do(self.connection, "collect", "remove_delivered", keep_days=keep_days, at_once=ROWS_AT_ONCE)

    @one_transaction
    def settled(self, keep_days: int) -> list[Settled]:
        """For each output's lineage the batch up to which all are committed since `keep_days`; a later one may need its
        rows."""
        return [Settled(*tuple(row)) for row in ask(self.connection, "collect", "settled", keep_days=keep_days)]


def remove_elsewhere(database: Database) -> tuple[int, list[str]]:
    """Remove from sinks' own databases the units that `remove_units` has removed from the log; gives their number, and
    what is left for the next time because its database can't be asked."""
    removed, left = 0, []
    for one, upto in Authorities(database).settled():
        try:
            while units := commitlog_units.remove_units(one, upto, ROWS_AT_ONCE):
                removed += units
        except OnlyonceError as error:
            left.append(f"{error.what}. Its old units are left for the next time")
    return removed, left
