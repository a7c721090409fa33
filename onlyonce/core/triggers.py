"""When an output writes a pane of an open window. Pure.

Beam's `AfterCount`, `AfterProcessingTime` and `AfterAny`, repeated, accumulating. A pane has all records of its window
so far. The records that came since the last pane are *held*: counted, and in no pane yet. The late records of a closed
window are held too: `is_due` says when a backfill includes them.

No decision uses the clock. The time of a decision is when its batch began, which the batch row stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from onlyonce.core.durations import refuse_other_types
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Bounds, Micros, micros


@dataclass(frozen=True)
class AfterRecords:
    """Emit a pane once a window has `records` more records than its last pane had."""

    records: int

    def __post_init__(self) -> None:
        if not isinstance(self.records, int) or isinstance(self.records, bool) or self.records < 1:
            raise Refused(
                f"AfterRecords({self.records!r}): not a number of records",
                hint="AfterRecords(1000); panes='early' writes one with each batch",
            )

    def __or__(self, other: AfterTime) -> AfterAny:
        """Return the trigger that emits a pane as soon as one of the two does."""
        return _either(self, other)


@dataclass(frozen=True)
class AfterTime:
    """Emit a pane with the first batch that begins `time` after the batch of the first record that is in no pane."""

    time: timedelta

    def __post_init__(self) -> None:
        refuse_other_types(AfterTime, vars(self))
        if self.time <= timedelta(0):
            raise Refused(
                f"AfterTime({self.time!r}): not a length of time",
                hint="AfterTime(timedelta(minutes=5)); panes='early' writes one with each batch",
            )

    def __or__(self, other: AfterRecords) -> AfterAny:
        """Return the trigger that emits a pane as soon as one of the two does."""
        return _either(other, self)


@dataclass(frozen=True)
class AfterAny:
    """Emit a pane as soon as one of two triggers does: `AfterRecords(1000) | AfterTime(timedelta(minutes=5))`."""

    records: int
    time: timedelta

    def __or__(self, other: object) -> AfterAny:
        """Refuse a third trigger: the smaller of two numbers, or of two lengths of time, says the same."""
        return _either(self, other)


Trigger = AfterRecords | AfterTime | AfterAny


def _either(first: object, second: object) -> AfterAny:
    if isinstance(first, AfterRecords) and isinstance(second, AfterTime):
        return AfterAny(first.records, second.time)
    raise Refused(
        f"{first!r} | {second!r}: not a number of records and a length of time",
        hint="AfterRecords(1000) | AfterTime(timedelta(minutes=5)): whichever comes first",
    )


@dataclass(frozen=True)
class Held:
    """How many records of a window are in no pane, and when the batch of the first of them began."""

    records: int
    since: Micros


FIRST_PANE = 0
"""The number of a window's first pane, as of its first files (`{pane}`) and of Beam's panes."""


@dataclass(frozen=True)
class LastPane:
    """The last pane of a window by the log, of an output that numbers its panes.

    number       None if no batch has written a numbered pane of the window
    rows         how many rows it has
    rows_of_all  how many rows all panes of the window have that are in the table
    """

    number: int | None
    rows: int = 0
    rows_of_all: int = 0


def next_pane(last: LastPane | None) -> int:
    """Return the number of a window's next pane."""
    return FIRST_PANE if last is None or last.number is None else last.number + 1


def emptied(
    last: Mapping[Bounds, LastPane], fired: Collection[Bounds], closed: Micros | None, written: Collection[Bounds]
) -> list[Bounds]:
    """Return the windows whose next pane has no rows although their last pane has some.

    A pane without rows is not in a table. So a reader would take the rows of the pane before for the window's result.

    last      the last panes of open windows
    fired     the open windows whose pane the batch writes
    closed    up to where windows are closed with the batch
    written   the windows of the batch's rows
    """
    with_rows = {window for window, pane in last.items() if pane.rows}
    due = {window for window in with_rows if window in fired or (closed is not None and window[1] <= closed)}
    return sorted(due - {*written})


def is_due(trigger: Trigger, held: Held, now: Micros) -> bool:
    """Return whether held records make a pane due. `now`: when the batch that decides began, by its row."""
    by_records = not isinstance(trigger, AfterTime) and held.records >= trigger.records
    by_time = not isinstance(trigger, AfterRecords) and now - held.since >= micros(trigger.time)
    return by_records or by_time


def decide_panes(
    trigger: Trigger, before: Mapping[Bounds, Held], met: Mapping[Bounds, int], closed: Micros | None, now: Micros
) -> tuple[list[Bounds], dict[Bounds, Held | None]]:
    """Return the open windows whose pane a batch writes, and the new `Held` of each window that changes.

    `Held` is None if all records of the window are in a pane.

    before   the `Held` of each window after the batches before
    met      how many records in time the batch has, by window
    closed   up to where windows are closed with the batch: they have their last pane, and hold nothing
    now      when the batch began, by its row
    """
    fired, after = [], dict[Bounds, Held | None]()
    for window in sorted({*before, *(window for window, records in met.items() if records)}):
        known = before.get(window, Held(0, now))
        held = Held(known.records + met.get(window, 0), known.since)
        if closed is not None and window[1] <= closed:
            after[window] = None
        elif is_due(trigger, held, now):
            fired.append(window)
            after[window] = None
        elif held != before.get(window):
            after[window] = held
    return fired, after


def decide_sessions(
    trigger: Trigger,
    before: Mapping[Bounds, Held],
    met: Mapping[Bounds, int],
    gap: Micros,
    ends: Iterable[Micros],
    closed: Micros | None,
    now: Micros,
) -> tuple[bool, dict[Bounds, Held | None]]:
    """Return whether a batch writes a pane of all open sessions, and the new `Held` of each interval that changes.

    Only the user's function knows the key of a session. So records are held for all sessions together, by the hour of
    their event. The interval of an hour ends `gap` after the hour: a session of one record of the hour has ended then.
    A pane is also due when a session that it would change may have closed. Otherwise that session's rows of the last
    pane would stay in the table.

    before, closed, now    as for `decide_panes`; `before` by interval
    met                    how many records in time the batch has, by hour
    gap                    of the sessions
    ends                   where the sessions of the last pane end
    """
    changed: dict[Bounds, Held] = {}
    for (start, end), records in met.items():
        if records:
            interval = (start, end + gap)
            known = before.get(interval, Held(0, now))
            changed[interval] = Held(known.records + records, known.since)
    waiting = {**before, **changed}
    if not waiting:
        return False, {}
    together = Held(sum(held.records for held in waiting.values()), min(held.since for held in waiting.values()))
    earliest_ends = (start + gap for start, _ in waiting)  # of a session with a held record
    may_close = closed is not None and any(end <= closed for end in (*ends, *earliest_ends))
    if may_close or is_due(trigger, together, now):
        return True, dict.fromkeys(before)
    return False, {**changed}
