"""Begin and end of a batch, the frontier, and the watermark markers between batches.

docs/specification/receive-batch.md, docs/specification/output-batch.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

import pyarrow as pa

from onlyonce.catalog.chunks import Chunks
from onlyonce.commitlog import incarnations, units
from onlyonce.commitlog.incarnations import Driver, Incarnations, SourceBatches
from onlyonce.commitlog.removals import Removals
from onlyonce.commitlog.units import Authorities, Units
from onlyonce.core.batch import (
    EXACTLY_ONCE,
    Batch,
    Outcome,
    Plan,
    check_declaration,
    check_files,
    check_lookups,
    check_receive,
    check_replay,
    is_other,
    read_upto,
    to_micros,
    to_time,
)
from onlyonce.core.frontier import Frontier, Progress
from onlyonce.core.units import Counts
from onlyonce.database.connect import Transactions, ask, do, one_transaction
from onlyonce.database.locks import INSTANT, do_rows

COUNTED = pa.schema({
    "window_start": INSTANT, "window_end": INSTANT, "in_time": pa.int64(), "late": pa.int64(), "rejected": pa.int64(),
    "late_from": INSTANT, "late_to": INSTANT,
})  # fmt: skip
"""The records that a batch met, by window. Only sessions have late_from and late_to; without windows times are null."""
WRITTEN = pa.schema({"window_start": INSTANT, "window_end": INSTANT, "rows": pa.int64()})
"""How many rows a batch has written of each window."""


@dataclass(frozen=True)
class Received:
    """A committed batch of receive. If `compacted`, its rows may be in other files than its commit named."""

    incarnation: str
    batch_id: int
    kept: int
    delta_version: int
    compacted: bool


@dataclass(frozen=True)
class MetFirst:
    """A batch that has met the first records of some windows.

    The second field says whether the log still has all such batches and all belong to the incarnation that asked.
    """

    source_from: dict[str, Any] | None
    told: bool


class Batches(Transactions):
    """Batches of receive and of outputs, and the frontier after them."""

    @one_transaction
    def frontier(self, instance: str) -> Frontier:
        """Return the frontier after the committed batches and watermark markers of an instance."""
        return frontier_of(ask(self.connection, "batches", "frontier", instance=instance)[0])

    @one_transaction
    def begin(
        self,
        driver: Driver,
        instance: str,
        plan: Plan,
        known: Frontier | None,
        landed: Callable[[], bool] = lambda: False,
        sources: Collection[str] = (),
    ) -> Batch:
        """Return the batch as the log stores it: a new row, or the row that an earlier attempt left.

        - `known`: the frontier to stamp; None takes the committed one.
        - `sources`: the sources of a pipeline that has several.
        - `landed`: whether the batch has written anything. It is called only for a batch without units.

        Raise Superseded. Raise Refused if the replay reads other data. Raise it too if the declaration or an input file
        has changed although a unit is committed in any database. Raise DatabaseAway if a database that may hold a unit
        is unreachable, and Retryable for the first batch of an incarnation while an erasure has not ended.
        """
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        there = self.logged(plan.incarnation, plan.batch_id)
        if there is None:
            return self._insert(driver, instance, plan, known, sources)
        check_replay(there.plan, plan)
        check_lookups(there.plan, plan)
        if there.committed:
            return there
        committed_units = len(Units(self.connection).of_batch(plan.incarnation, plan.batch_id))
        if there.without_catalog and not committed_units:
            committed_units = int(landed())
        if not committed_units and is_other(there.plan, plan):
            committed_units = len(Authorities(self.connection).units_elsewhere(driver, plan.batch_id))
        anew = check_declaration(there.plan, plan, committed_units)
        if check_files(there.plan, plan, committed_units) or anew:
            do(self.connection, "batches", "forget_begun", incarnation=plan.incarnation, batch_id=plan.batch_id)
            return self._insert(driver, instance, plan, known, sources)
        do(
            self.connection, "batches", "taken_over",
            incarnation=plan.incarnation, batch_id=plan.batch_id, epoch=driver.epoch, run_id=driver.run_id,
        )  # fmt: skip
        return there

    @one_transaction
    def end(self, driver: Driver, batch: Batch, outcome: Outcome) -> None:
        """Mark the batch as committed, with its outcome. The caller has checked that records are conserved."""
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        do(
            self.connection, "batches", "end",
            incarnation=batch.plan.incarnation, batch_id=batch.plan.batch_id, conserved=True, **asdict(outcome),
        )  # fmt: skip

    @one_transaction
    def fated(self, plan: Plan) -> int:
        """Return how many records of a receive batch have a fate, by its units."""
        there = Units(self.connection).of_batch(plan.incarnation, plan.batch_id)
        return sum(u.kept + u.invalid + u.expired + u.duplicate for u in there)

    @one_transaction
    def end_receive(
        self, driver: Driver, batch: Batch, read: int, delta_version: int, *, bounded: bool
    ) -> dict[str, int]:
        """End a receive batch whose rows are in `events`: add up its units, check conservation, and return the counts
        by fate.

        Raise InvariantBroken if units are missing or the counts don't add up.
        """
        plan = batch.plan
        there = Units(self.connection).of_batch(plan.incarnation, plan.batch_id)
        units.expect(there, "events", plan.partitions, plan.incarnation, plan.batch_id)
        total = {name: sum(getattr(u, name) for u in there) for name in units.FATES}
        largest = to_micros(max((u.largest for u in there if u.largest), default=None))
        self._end_received(driver, batch, _outcome(batch, read, delta_version, largest, total, bounded=bounded))
        return total

    @one_transaction
    def end_counted(
        self,
        driver: Driver,
        batch: Batch,
        read: int,
        delta_version: int,
        counts: Counts,
        *,
        bounded: bool,
    ) -> dict[str, int]:
        """End a receive batch without units by the counts of its commit to `events`; return the counts by fate.

        Raise InvariantBroken if the counts don't add up.
        """
        total = {name: getattr(counts, name) for name in units.FATES}
        largest = to_micros(counts.largest)
        self._end_received(driver, batch, _outcome(batch, read, delta_version, largest, total, bounded=bounded))
        return total

    def _end_received(self, driver: Driver, batch: Batch, outcome: Outcome) -> None:
        check_receive(f"{batch.plan.incarnation}/{batch.plan.batch_id}", outcome)
        self.end(driver, batch, outcome)

    @one_transaction
    def logged(self, incarnation: str, batch_id: int) -> Batch | None:
        """Return a batch as stored in the log, or None."""
        rows = ask(self.connection, "batches", "find", incarnation=incarnation, batch_id=batch_id)
        return _from_row(rows[0]) if rows else None

    @one_transaction
    def oldest_begun(self) -> float:
        """Return for how many seconds the oldest begun batch or backfill has been under way; 0 if there is none."""
        return float(ask(self.connection, "batches", "oldest_begun")[0].seconds or 0)

    @one_transaction
    def standing(self, instance: str) -> tuple[Frontier, Progress, int | None] | None:
        """Return the frontier, the progress of each source, and the number of the last batch that receive has
        committed. Return None while one is begun: its rows have the frontier with which it began.
        """
        incarnations = Incarnations(self.connection)
        live = incarnations.live(instance, "receive")
        begun, committed = incarnations.last_batches(live.incarnation) if live else (None, None)
        if begun != committed:
            return None
        return self.frontier(instance), SourceBatches(self.connection).known(instance), self.last_taken_in(instance)

    @one_transaction
    def find(self, incarnation: str, batch_id: int) -> Batch:
        """Return a batch that is in the log, without a plan to compare it with."""
        found = self.logged(incarnation, batch_id)
        assert found is not None
        return found

    @one_transaction
    def count_windows(self, batch: Batch, output: str, counts: pa.Table) -> None:
        """Store the counts in time and late by window (`COUNTED`), in the transaction that ends the batch."""
        plan = batch.plan
        do_rows(
            self.connection,
            "batches",
            "count_windows",
            counts,
            incarnation=plan.incarnation,
            batch_id=plan.batch_id,
            output=output,
        )

    @one_transaction
    def add_panes(self, batch: Batch, instance: str, output: str, windows: pa.Table, *, final: bool) -> None:
        """Store which windows were written (`WRITTEN`), in the transaction that ends the batch. Leave final windows as
        they are.
        """
        do_rows(
            self.connection, "batches", "add_panes", windows, instance=instance, output=output, final=final, **by(batch)
        )

    @one_transaction
    def received(self, instance: str, after: int, upto: int) -> list[Received]:
        """Return the committed receive batches with versions of `events` in (after, upto]."""
        rows = ask(self.connection, "batches", "received", instance=instance, after=after, upto=upto)
        return [Received(**row._mapping) for row in rows]

    @one_transaction
    def met_first(
        self, instance: str, incarnation: str, output: str, ends: tuple[int, int], longest: int
    ) -> MetFirst | None:
        """Return an output's first committed batch that met records in time of windows that end in an interval, or
        None.

        `ends` is the interval (after, upto] and `longest` the length of a window, in microseconds.
        """
        after, upto = ends
        found = ask(
            self.connection,
            "batches",
            "met_first",
            instance=instance,
            incarnation=incarnation,
            output=output,
            first=to_time(after - longest),
            after=to_time(after),
            upto=to_time(upto),
        )
        return MetFirst(**found[0]._mapping) if found else None

    @one_transaction
    def receive_batch(self, instance: str, number: int) -> list[Received]:
        """Return the committed receive batch with a number, from the last incarnation that has one; an empty list if
        none has.
        """
        rows = ask(self.connection, "batches", "receive_batch", instance=instance, number=number)
        return [Received(**row._mapping) for row in rows]

    @one_transaction
    def final_windows(
        self, instance: str, output: str, incarnation: str, after: int | None
    ) -> list[tuple[datetime, datetime]]:
        """Return the windows (start, end) that other incarnations of an output have closed and that end after a time
        (None: all).
        """
        rows = ask(
            self.connection, "new_incarnations", "final_windows",
            instance=instance, output=output, incarnation=incarnation, after=to_time(after),
        )  # fmt: skip
        return [(row.window_start, row.window_end) for row in rows]

    @one_transaction
    def read_before(self, incarnation: str) -> int:
        """Return a version of `events` that an incarnation has read before its last committed batch; -1 before its
        second one.

        A batch may end within a version, so return the version before its first version.
        """
        rows = ask(self.connection, "new_incarnations", "read_again", incarnation=incarnation)
        return max(read_upto(rows[0].source_from) - 1, -1) if rows else -1

    @one_transaction
    def last_arrival(self, instance: str) -> datetime | None:
        """Return when the last committed input of an instance was first seen."""
        seen_at: datetime | None = ask(self.connection, "batches", "last_arrival", instance=instance)[0].seen_at
        return seen_at

    @one_transaction
    def last_taken_in(self, instance: str) -> int | None:
        """Return the manifest's number of the last batch that receive has committed; None before the first."""
        rows = ask(self.connection, "batches", "last_taken_in", instance=instance)
        return rows[0].batch_no if rows else None

    @one_transaction
    def ended_versions(self, instance: str, after: int, upto: int) -> set[int]:
        """Return the versions of `events` in (after, upto] whose receive batch or watermark marker is committed."""
        rows = ask(self.connection, "batches", "ended_versions", instance=instance, after=after, upto=upto)
        return {row.delta_version for row in rows}

    def _insert(
        self,
        driver: Driver,
        instance: str,
        plan: Plan,
        known: Frontier | None,
        sources: Collection[str],
    ) -> Batch:
        if plan.mode == EXACTLY_ONCE:
            floor = Chunks(self.connection).ensure_bucket(instance, plan.bucket)
        else:
            floor = Chunks(self.connection).floor(instance)
        if plan.batch_id == 0:
            # The floor holds the instance's row, and the driver has a session: either the erasure sees it, or this one
            # sees the erasure.
            Removals(self.connection).refuse_while_erasing(instance)
        stamped = self.frontier(instance) if known is None else known
        source_batch = (
            SourceBatches(self.connection).begun(instance, plan, sources) if sources and known is None else None
        )
        values = asdict(plan) | {"source_progress": json.dumps(source_batch.before.told()) if source_batch else None}
        for name in ("source_from", "source_to", "settings", "facts", "lookups"):
            values[name] = json.dumps(values[name])
        do(
            self.connection, "batches", "begin",
            epoch=driver.epoch, run_id=driver.run_id, gc_floor=floor, **frontier_times(stamped), **values,
        )  # fmt: skip
        return Batch(plan, stamped, floor, "begun", replayed=False, source_batch=source_batch)


def _outcome(
    batch: Batch, read: int, delta_version: int, largest: int | None, total: dict[str, int], *, bounded: bool
) -> Outcome:
    max_event_time = None if bounded else to_time(batch.reached(largest).max_event_time)
    after = json.dumps(batch.source_batch.after(largest).told()) if batch.source_batch else None
    return Outcome(
        read=read,
        delta_version=delta_version,
        max_event_time_after=max_event_time,
        source_progress_after=after,
        **total,
    )


def by(batch: Batch) -> dict[str, Any]:
    """Return the columns that say which batch wrote a window, under which declaration and with which lookups."""
    plan = batch.plan
    lookups = json.dumps(plan.lookups) if plan.lookups else None
    return {
        "incarnation": plan.incarnation,
        "batch_id": plan.batch_id,
        "declaration_hash": plan.declaration_hash,
        "lookups": lookups,
    }


def _from_row(row: Any) -> Batch:
    fixed = {field.name: getattr(row, field.name) for field in fields(Plan)}
    return Batch(
        Plan(**fixed),
        frontier_of(row),
        row.gc_floor,
        row.state,
        replayed=True,
        source_batch=incarnations.source_batch_of_row(row),
    )


def frontier_of(row: Any) -> Frontier:
    """Return the frontier of a row that has its parts."""
    return Frontier(
        *[to_micros(time) for time in (row.max_event_time, row.ended, row.silent_max_event_time, row.silent_clock)]
    )


def frontier_times(known: Frontier) -> dict[str, Any]:
    """Return the parts of a frontier as timestamps, by the column names of the log."""
    return {name: to_time(value) for name, value in asdict(known).items()}


# Watermark markers: between two batches receive writes a control row to say that an input has ended or is silent.


class WatermarkMarkers(Transactions):
    """The control rows of an instance."""

    @one_transaction
    def begin(
        self, driver: Driver, kind: str, after: Frontier, progress: Progress | None = None
    ) -> tuple[int, str, Frontier]:
        """Store the content of a control row; return its number, kind and frontier. Finish an earlier attempt's row
        first.

        `progress` is how far each source has come, in a pipeline with several. Raise Superseded.
        """
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        left = ask(self.connection, "batches", "open_marker", incarnation=driver.incarnation)
        if left:
            row = left[0]
            return row.marker_no, row.kind, frontier_of(row)
        number = ask(self.connection, "batches", "last_marker", incarnation=driver.incarnation)[0].marker_no + 1
        do(
            self.connection, "batches", "begin_marker",
            incarnation=driver.incarnation, marker_no=number, epoch=driver.epoch, kind=kind, run_id=driver.run_id,
            source_progress_after=json.dumps(progress.told()) if progress else None, **frontier_times(after),
        )  # fmt: skip
        return number, kind, after

    @one_transaction
    def is_open(self, incarnation: str) -> bool:
        """Return whether an earlier driver began a watermark marker and did not commit it."""
        return bool(ask(self.connection, "batches", "open_marker", incarnation=incarnation))

    @one_transaction
    def end(self, driver: Driver, number: int, delta_version: int) -> None:
        """Mark a control row as committed: it is in `events`. Raise Superseded."""
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        do(
            self.connection,
            "batches",
            "end_marker",
            incarnation=driver.incarnation,
            marker_no=number,
            delta_version=delta_version,
        )


# Spark's figures about the state of an output: how large it is, and what its last batch has added and removed.
#
# They are for people; no decision depends on them. A driver that is killed after a batch loses the batch's figures.


@dataclass(frozen=True)
class State:
    """One stateful operator in one batch. Bytes are Spark's; None if the operator or the state store does not
    report them.
    """

    operator: int
    kind: str
    rows_in: int
    rows_out: int
    timers_set: int | None
    timers_ended: int | None
    disk_bytes: int | None
    memory_bytes: int


class States(Transactions):
    """The state of outputs, as Spark reports it."""

    @one_transaction
    def note(self, incarnation: str, batch_id: int, states: list[State]) -> None:
        """Store the figures of a batch in place of the previous batch's."""
        rows = pa.Table.from_pylist([asdict(state) for state in states])
        do_rows(self.connection, "states", "note", rows, incarnation=incarnation, batch_id=batch_id)
