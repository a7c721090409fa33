"""Store the begin and end of backfills, and read from the log what a backfill needs. docs/specification/backfill.md.

- `closed_reach` decides which part of a span the output's stream has closed and written. Only that may be backfilled.
- `Backfills` has the transactions of a backfill, in the order `open_incarnation`, `begin`, `settle`, `end`. `give_up`
  ends begun ones. The other methods read from the log.
- `Panes` stores how much of each open window an output has written. Streams use it.

Each interval of an output has an incarnation of its own, without a checkpoint:
`flights/per_carrier@2013-01-01T00:00:00Z--2013-01-02T00:00:00Z/1`. Each attempt at the interval is a batch of this
incarnation. It reads the newest `events` and replaces whole windows, so it needs nothing from an earlier attempt.

The exception: all backfills of an output for late rows share one incarnation, `flights/per_carrier@late/1`. Its batches
have different intervals, one at a time: a new one replaces a begun one, whichever interval that had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from onlyonce.api.joins_and_state import FROM_START
from onlyonce.api.pipeline import Output
from onlyonce.commitlog import batches, removals
from onlyonce.commitlog.incarnations import Driver, Incarnation, Incarnations
from onlyonce.commitlog.outbox import OutboxRows
from onlyonce.commitlog.removals import Rejections, Removals
from onlyonce.commitlog.units import Authorities
from onlyonce.core import retention
from onlyonce.core.backfill import FIRST, LAST, InBegunBackfill, InRunningBackfill, Span, closed_part
from onlyonce.core.batch import Batch, bounds_in_micros, read_upto, to_micros, to_time
from onlyonce.core.errors import Refused
from onlyonce.core.frontier import Frontier, closed_until
from onlyonce.core.stored_names import CLOSED_BY, COUNTED_UPTO
from onlyonce.core.triggers import AfterRecords, Held, LastPane, Trigger, is_due
from onlyonce.core.windows import Bounds, Fixed, Micros, Session, Sliding, longest, micros
from onlyonce.database.connect import Database, Scope, Transactions, ask, do, one_transaction, run
from onlyonce.database.locks import INSTANT, do_rows

AskedBy = Literal["person", "late rows"]
ANY = AfterRecords(1)
"""Includes late records as soon as there are any."""
Counts = dict[str, int]
"""Counts of a backfill, by the names of the log's columns: in_time, late, windows, rows."""
MADE = batches.WRITTEN.append(pa.field("lookups", pa.string())).append(pa.field("pane", pa.int32()))
"""The windows that a backfill has written to a sink, one row each. `lookups`: the versions of the lookups that the
window was computed with, as JSON; null without lookups. `pane`: the number of its pane; null if its output numbers
none."""


@dataclass(frozen=True)
class Request:
    """A backfill of one output, before it begins.

    span        the windows to compute again: those that start in it
    reach_back  how far before a window's start its records may be, in microseconds: of a session the gap
    lookups     the versions of the lookups that the functions get: 'then', as each window was last written with, or
                'now'. None without lookups
    """

    instance: str
    output: str
    span: Span
    asked_by: AskedBy
    declaration_hash: str
    reach_back: int = 0
    lookups: str | None = None

    @property
    def query(self) -> str:
        """Return the name of the query in the name of the incarnation. All backfills for late rows share one
        incarnation.
        """
        return f"{self.output}@{'late' if self.asked_by == 'late rows' else self.span}"


@dataclass(frozen=True)
class Reach:
    """How far the stream of an output has come.

    consumed   the version of `events` that its committed batches have read
    frontier   the frontier that closed the windows that it has written
    """

    consumed: int
    frontier: Frontier

    def closed_until(self, output: Output) -> int | None:
        """Return the time up to which the output's windows are closed and written."""
        assert output.window is not None
        return closed_until(self.frontier, output.window, micros(output.watermark_delay))


class Backfills(Transactions):
    """Backfills, and the windows that they recompute."""

    @one_transaction
    def reach(self, instance: str, output: str) -> Reach:
        """Return how far an output's stream has come, by the log.

        *consumed* is the version of `events` up to which the last committed batch has read.

        *frontier* is the one by which windows are written. Spark writes a window in the batch *after* the one whose
        rows have closed it. So it is the frontier of the version at which the last committed batch began to read. If
        the output keeps no state, it writes each row in the batch that reads it. Then it is the frontier of `consumed`.

        An incarnation may have begun after another one. Then `start_from` has the version that the earlier ones have
        read (COUNTED_UPTO) and the version by whose frontier they have written windows (CLOSED_BY). Both count here,
        unless the incarnation writes all rows again (FROM_START).
        """
        rows = ask(self.connection, "backfills", "read_by", instance=instance, output=output)
        if not rows:
            return Reach(-1, Frontier())
        [row] = rows
        start = row.start_from or {}
        before = {} if FROM_START in start else start
        consumed = read_upto(row.source_to)
        closing = consumed if row.stateless else read_upto(row.source_from)
        closed_by = max(closing, before.get(CLOSED_BY, -1))
        return Reach(max(consumed, before.get(COUNTED_UPTO, -1)), self.frontier_at(instance, closed_by))

    @one_transaction
    def frontier_at(self, instance: str, version: int) -> Frontier:
        """Return the frontier at a version of `events`: after all batches of receive and watermark markers up to it."""
        told = ask(self.connection, "backfills", "frontier_at", instance=instance, version=version)[0]
        return Frontier(
            to_micros(told.max_event_time),
            to_micros(told.ended),
            to_micros(told.silent_max_event_time),
            to_micros(told.silent_clock),
        )

    @one_transaction
    def closed_at(self, instance: str, output: Output, version: int | None) -> Micros | None:
        """Return up to where the windows of an output are closed at a version of `events`; None if none is.

        `version`: None at the end of a bounded input, which closes all.
        """
        if version is None or output.window is None:
            return None if output.window is None else LAST
        return closed_until(self.frontier_at(instance, version), output.window, micros(output.watermark_delay))

    @one_transaction
    def left_of_run(self, run_id: str, instance: str, output: str, span: Span, since: datetime) -> list[Span]:
        """Return the parts of a span that no backfill of an output has had that a run has committed since a time."""
        start, stop = span.times
        found = ask(
            self.connection, "backfills", "left_of_run",
            run_id=run_id, instance=instance, output=output, window_from=start, window_to=stop, since=since,
        )  # fmt: skip
        return [Span.of(row.window_from, row.window_to) for row in found]

    @one_transaction
    def give_up(self, instance: str, output: str) -> None:
        """Give up the begun backfills of an output, so that none of them holds up an erasure or another backfill."""
        do(self.connection, "backfills", "give_up", instance=instance, output=output)

    @one_transaction
    def open_incarnation(self, request: Request, run_id: str) -> Driver:
        """Return a driver for the incarnation of an interval. Its new epoch fences an earlier driver of the
        interval.
        """
        found: Incarnation = Incarnations(self.connection).register(
            request.instance, request.query, uuid4(), kind="backfill"
        )
        return Incarnations(self.connection).bump(found, run_id)

    @one_transaction
    def begin(self, driver: Driver, request: Request, events_version: int, wide: Span | None = None) -> int:
        """Begin an attempt at a backfill, and return its batch number in the incarnation. `settle` comes before any
        sink is written.

        events_version   the version of `events` that it reads
        wide             the windows that it will need, where they are known to be more than those of the request

        Raise Superseded if a newer driver has the interval. Raise InRunningBackfill or InBegunBackfill if another begun
        backfill shares its windows, InRunningBackfill if one that has read more of `events` is committed, and Refused
        if records of the windows are removed.

        Rows that killed attempts have put into the outbox are deleted: none of them was sent. Rows of committed
        attempts stay.
        """
        span = wide or request.span
        left = ask(self.connection, "backfills", "settled", incarnation=driver.incarnation)
        for row in left:  # no other backfill gets its windows meanwhile
            before = Span.of(row.window_from, row.window_to)
            span = Span(min(span.start, before.start), max(span.stop, before.stop))
        self._take_windows(driver, request, span, events_version)
        do(self.connection, "backfills", "replace_begun", incarnation=driver.incarnation)
        OutboxRows(self.connection).throw_away(request.instance, driver.incarnation)
        number = int(ask(self.connection, "backfills", "next", incarnation=driver.incarnation)[0].batch_id)
        if number:  # the driver of an earlier attempt may still write
            Authorities(self.connection).fence(driver)
        start, stop = span.times
        do(
            self.connection, "backfills", "begin",
            incarnation=driver.incarnation, batch_id=number, instance=request.instance, output=request.output,
            epoch=driver.epoch, run_id=driver.run_id, asked_by=request.asked_by, window_from=start, window_to=stop,
            events_version=events_version, declaration_hash=request.declaration_hash, lookups=request.lookups,
            windows=0 if left else None,
        )  # fmt: skip
        return number

    @one_transaction
    def settle(self, driver: Driver, request: Request, number: int, span: Span, events_version: int) -> None:
        """Store the windows of a begun backfill, whose merged sessions may reach past the interval. Raise as `begin`.

        From here on its sinks may be written. An attempt that ends before keeps no other from its windows: two whose
        windows turn out to overlap would wait for each other for ever.
        """
        self._take_windows(driver, request, span, events_version)
        start, stop = span.times
        do(
            self.connection,
            "backfills",
            "settle",
            incarnation=driver.incarnation,
            batch_id=number,
            window_from=start,
            window_to=stop,
        )

    @one_transaction
    def end(
        self,
        driver: Driver,
        request: Request,
        number: int,
        span: Span,
        panes: Mapping[str, pa.Table],
        counts: Counts,
        rejected: pa.Table | None = None,
        sinks: Iterable[Callable[[Scope], None]] = (),
    ) -> None:
        """Commit a backfill: store the new generation of its windows, and let the outbox send their rows.

        panes      the windows that were written (`MADE`), by output
        counts     what the log stores of the backfill
        rejected   the records of these windows that the output rejects now (`removals.REJECTED`); None if its
                   declaration rejects none
        sinks      called with this transaction: each raises if its sink does not have all its units, so the log never
                   says that a backfill is committed while a sink lacks rows

        Change nothing if the backfill is already committed. Then the answer to an earlier COMMIT was lost.
        """
        for sink in sinks:
            sink(self.connection)
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        if (
            ask(self.connection, "backfills", "state", incarnation=driver.incarnation, batch_id=number)[0].state
            == "committed"
        ):
            return
        start, stop = span.times
        for output, made in panes.items():
            same = {
                "instance": request.instance, "output": output, "incarnation": driver.incarnation, "batch_id": number,
                "declaration_hash": request.declaration_hash,
            }  # fmt: skip
            do_rows(self.connection, "backfills", "add_panes", made, **same)
            # Windows without rows by now get a generation without rows. So this is after `add_panes`.
            do(self.connection, "backfills", "add_empty_panes", window_from=start, window_to=stop, **same)
        OutboxRows(self.connection).let_wait(request.instance, driver.incarnation, number)
        whose = {"incarnation": driver.incarnation, "batch_id": number}
        rows = removals.REJECTED.empty_table() if rejected is None else rejected
        Rejections(self.connection).replace(request.instance, request.output, span.times, whose, rows)
        pairs = None if rejected is None else pc.sum(rejected.column("rows")).as_py() or 0
        do(self.connection, "backfills", "end", rejected=pairs, **whose, **counts)

    @one_transaction
    def met(self, instance: str, output: str, span: Span, events_version: int) -> Counts:
        """Return how many (record, window) pairs of a span the output's stream has met up to a version of `events`.

        The counts are `in_time` and `late`, by the windows of the declaration under which the stream met the records.
        """
        start, stop = span.times
        rows = ask(
            self.connection,
            "backfills",
            "met",
            instance=instance,
            output=output,
            window_from=start,
            window_to=stop,
            events_version=events_version,
        )
        return dict(rows[0]._mapping)

    @one_transaction
    def done(self, instance: str, output: str, span: Span) -> list[tuple[Span, int]]:
        """Return the committed backfills that share windows with a span: the span of each, and the version of `events`
        that it has read.
        """
        start, stop = span.times
        rows = ask(
            self.connection, "backfills", "done", instance=instance, output=output, window_from=start, window_to=stop
        )
        return [(Span(*bounds_in_micros(row.window_from, row.window_to)), int(row.events_version)) for row in rows]

    @one_transaction
    def windows_in(
        self, instance: str, outputs: list[str], span: Span, *, late_only: bool = False
    ) -> list[dict[str, Any]]:
        """Return the windows of some outputs that start in a span, as rows of the view `onlyonce.windows`.

        A row has output, window_start, window_end, generation, state, rows, in_time, late and late_not_included.
        `late_only`: return only windows with late records that no backfill has included. Such a row has only output,
        window_start, window_end and late_not_included.
        """
        asked = {"instance": instance, "outputs": outputs, "window_from": span.times[0], "window_to": span.times[1]}
        rows = (
            ask(self.connection, "backfills", "late_in", **asked)
            if late_only
            else ask(self.connection, "backfills", "windows_in", **asked)
        )
        return [dict(row._mapping) for row in rows]

    @one_transaction
    def late_windows(self, instance: str, output: str, trigger: Trigger = ANY) -> list[tuple[int, int]]:
        """Return the windows (start, end) of an output with late records that no backfill has included, in
        microseconds.

        Return only windows for which the trigger is due by the output's newest batch, or which an ended driver has
        begun to compute again: a sink may have their new rows already.

        A late record is in no session yet, so the log has the first and the last event time of the late records of an
        hour. They become the two entries (first, last) and (last, last). `core.backfill.spans` makes a span of entries
        that touch. The span must contain `last`, and it contains only starts of entries. So `last` is a start too.
        """
        found: list[tuple[int, int]] = []
        for row in ask(self.connection, "backfills", "late_not_included", instance=instance, output=output):
            since = to_micros(row.since) or 0
            if not row.begun and not is_due(trigger, Held(row.late, since), to_micros(row.now) or since):
                continue
            if row.late_from is None:
                found.append(bounds_in_micros(row.window_start, row.window_end))
            else:
                first, last = bounds_in_micros(row.late_from, row.late_to)
                found += [(first, last), (last, last)]
        return found

    @one_transaction
    def begun_of_late(self, instance: str, output: str) -> list[Span]:
        """Return the span of the backfill for late rows that is begun: none or one. A sink may have its new rows."""
        rows = ask(self.connection, "backfills", "begun_of_late", instance=instance, output=output)
        return [Span(*bounds_in_micros(row.window_from, row.window_to)) for row in rows]

    def _has_open_rows(self, instance: str, root: Output, span: Span, closed: int | None) -> bool:
        """Return whether open windows of the span have records in time.

        `closed`: up to where windows are closed. If it is None, all windows are open.

        Return False for sessions, since the log does not know which sessions its records will be in.
        """
        if isinstance(root.window, Session):
            return False
        start, stop = span.times
        known = {"instance": instance, "output": root.name, "window_from": start, "window_to": stop}
        return bool(ask(self.connection, "backfills", "open_rows", closed_until=to_time(closed), **known)[0].found)

    def _lock(self, instance: str) -> None:
        if not ask(self.connection, "backfills", "lock_instance", instance=instance):
            raise Refused(f"nothing of {instance} has run yet", hint=f"onlyonce run {instance} comes first")

    def _take_windows(self, driver: Driver, request: Request, span: Span, events_version: int) -> None:
        """Lock the instance, and raise as `begin` if this backfill may not have the windows of a span."""
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        self._lock(request.instance)
        Removals(self.connection).refuse_span(request.instance, request.output, span.start, request.reach_back)
        self._refuse_overlap(driver.incarnation, request, span)
        self._refuse_older(request, span, events_version)

    def _refuse_overlap(self, incarnation: str, request: Request, span: Span) -> None:
        low, high = span.times
        others = ask(
            self.connection, "backfills", "under_way",
            instance=request.instance, output=request.output, incarnation=incarnation, window_from=low, window_to=high,
        )  # fmt: skip
        if not others:
            return
        other = others[0]
        what = f"output {request.output}: windows of {span} are in the backfill {other.incarnation}, of {other.run_id}"
        data = "nothing was written; two backfills of one window could leave its sinks at different generations"
        if other.at_work:
            raise InRunningBackfill(
                f"{what} and running", data=data, hint="wait until it has ended, then run the same command again"
            )
        command = f"onlyonce run {request.instance}"
        if other.asked_by == "person":
            # The interval is taken from the incarnation's name, since `settle` may have widened the row's windows.
            start, stop = other.incarnation.rpartition("/")[0].rpartition("@")[2].split("--")
            times = f"--from {start} --to {stop}"
            times += f" --lookups {other.lookups}" if other.lookups == "now" else ""
            command = f"onlyonce backfill {request.instance} --output {request.output} {times}"
        raise InBegunBackfill(
            f"{what}, whose driver has ended", data=data, hint=f"finish that one first, then this: {command}"
        )

    def _refuse_older(self, request: Request, span: Span, events_version: int) -> None:
        """Raise InRunningBackfill if windows of the span were computed from a later version of `events`.

        This backfill would take late records out of their result, and the log would count them as included.
        """
        for other, version in self.done(request.instance, request.output, span):
            if version > events_version:
                raise InRunningBackfill(
                    f"output {request.output}: meanwhile another backfill has computed windows of {other} with records "
                    "that this one has not read",
                    data="nothing was written; their result stays as it is",
                    hint="run the same command again: it then reads these records too",
                )


def closed_reach(database: Database, instance: str, root: Output, span: Span) -> tuple[Reach, Span]:
    """Return how far the stream has come, and the part of the span that it has closed and written.

    Raise OpenWindows if there is no such part, or if open windows of the span have records in time. Raise Refused if
    records of the span are removed.
    """

    def look(conn: Connection) -> tuple[Reach, bool]:
        kept = Removals(conn).kept_from(instance)
        retention.refuse_span(root.name, span.start, None if kept is None else kept + retention.reach_back(root.window))
        found = Backfills(conn).reach(instance, root.name)
        return found, Backfills(conn)._has_open_rows(instance, root, span, found.closed_until(root))

    if root.window is None:
        raise Refused(
            f"output {root.name} has no windows", hint="a backfill recomputes windows; without windows nothing is late"
        )
    found, open_rows = run(database, look)
    closed = found.closed_until(root)
    return found, closed_part(instance, root.name, root.window, span, closed, open_rows=open_rows)


# Panes of windows that an output writes before they close: how much of each window is written, and whether it is final.
# If an output writes its windows only when they close, `Batches.add_panes` stores them.


HELD = pa.schema({"window_start": INSTANT, "window_end": INSTANT, "held": pa.int64(), "held_since": INSTANT})
"""The windows that a batch has changed: how many records it holds back from the next pane, and since when.

Both are null if it holds nothing back.
"""
NUMBERED = pa.schema(
    {"window_start": INSTANT, "window_end": INSTANT, "pane": pa.int32(), "rows_of_all_panes": pa.int64()}
)
"""The panes that a batch has numbered: the number of each, and how many rows all panes of the window have."""


class Panes(Transactions):
    """The panes of windows that are written before they close."""

    @one_transaction
    def add_rows(self, batch: Batch, instance: str, output: str, windows: pa.Table) -> None:
        """Add the rows that a batch has written (`batches.WRITTEN`) to the panes of their windows."""
        do_rows(
            self.connection, "batches", "add_to_panes", windows, instance=instance, output=output, **batches.by(batch)
        )

    @one_transaction
    def held(self, instance: str, output: str) -> dict[Bounds, Held]:
        """Return, by open window of an output, the records that earlier batches have held back from its panes."""
        found = {}
        for row in ask(self.connection, "triggers", "held", instance=instance, output=output):
            window = bounds_in_micros(row.window_start, row.window_end)
            found[window] = Held(row.held, to_micros(row.held_since) or 0)
        return found

    @one_transaction
    def open_panes(self, instance: str, output: str) -> dict[Bounds, LastPane]:
        """Return the last pane of each open window of an output."""
        return _last_panes(ask(self.connection, "triggers", "open_panes", instance=instance, output=output))

    @one_transaction
    def last_panes(self, instance: str, output: str, span: Span) -> dict[Bounds, LastPane]:
        """Return the last pane of each window of an output that starts in a span."""
        start, stop = span.times
        return _last_panes(
            ask(
                self.connection, "triggers", "last_panes",
                instance=instance, output=output, window_from=start, window_to=stop,
            )
        )  # fmt: skip

    @one_transaction
    def number(self, batch: Batch, instance: str, output: str, windows: pa.Table) -> None:
        """Store the numbers of the panes that a batch has written (`NUMBERED`), after the panes themselves."""
        plan = batch.plan
        do_rows(
            self.connection, "triggers", "number", windows,
            instance=instance, output=output, incarnation=plan.incarnation, batch_id=plan.batch_id,
        )  # fmt: skip

    @one_transaction
    def forget_replaced_sessions(self, batch: Batch, instance: str, output: str) -> None:
        """Delete the open windows of an output with sessions that a batch has not written.

        The batch has written all open sessions. So the others have merged, or have another start or end by now.
        """
        do(
            self.connection,
            "triggers",
            "forget_replaced_sessions",
            instance=instance,
            output=output,
            incarnation=batch.plan.incarnation,
            batch_id=batch.plan.batch_id,
        )

    @one_transaction
    def hold(self, batch: Batch, instance: str, output: str, windows: pa.Table) -> None:
        """Store what a batch holds back of the windows that it has changed (`HELD`)."""
        plan = batch.plan
        do_rows(
            self.connection,
            "triggers",
            "hold",
            windows,
            instance=instance,
            output=output,
            incarnation=plan.incarnation,
            batch_id=plan.batch_id,
            declaration_hash=plan.declaration_hash,
        )

    @one_transaction
    def last_closed(self, instance: str, output: str) -> Micros | None:
        """Return the end of the last closed window that the stream has in the log."""
        rows = ask(self.connection, "batches", "last_closed", instance=instance, output=output)
        return to_micros(rows[0].window_end) if rows else None

    @one_transaction
    def close(self, instance: str, outputs: list[str], closed: Micros) -> None:
        """Mark the windows as final that end by a time: no record in time can come for them."""
        do(self.connection, "batches", "close_panes", instance=instance, outputs=outputs, closed_until=to_time(closed))

    @one_transaction
    def close_without_rows(
        self, batch: Batch, instance: str, root: Output, before: Micros | None, closed: Micros
    ) -> None:
        """Give a pane to each window that ends by a time and has records, and for which the function returned no row.

        Without it the log would say for ever that the window is open. `before`: the end of the last window that was
        closed before the batch. Sessions get none: a record without a row is in none that the log knows.
        """
        if isinstance(root.window, Fixed | Sliding):
            size, most = micros(root.window.size), longest(root.window)
            do(
                self.connection, "batches", "close_without_rows", instance=instance, output=root.name,
                first_start=to_time(FIRST if before is None else max(before - most, FIRST)),
                last_start=to_time(min(closed - 2 * size + most, LAST)), closed_until=to_time(closed),
                **batches.by(batch),
            )  # fmt: skip


def _last_panes(rows: Iterable[Any]) -> dict[Bounds, LastPane]:
    return {
        bounds_in_micros(row.window_start, row.window_end): LastPane(row.pane, row.rows, row.rows_of_all_panes)
        for row in rows
    }
