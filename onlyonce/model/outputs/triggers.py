"""When an output writes a pane of a window that is still open: Beam's `AfterCount` and `AfterProcessingTime`, repeated,
accumulating.

Pure.

A pane has all records of its window so far. The records that came since the last one are *held*: counted, and in no
pane yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from onlyonce.model.errors import Refused
from onlyonce.model.windows import Micros, micros

Bounds = tuple[Micros, Micros]


@dataclass(frozen=True)
class AfterRecords:
    """A pane with the batch in which a window has so many records more than its last pane had."""

    records: int

    def __post_init__(self) -> None:
        if not isinstance(self.records, int) or self.records < 1:
            raise Refused(
                f"AfterRecords({self.records!r}): not a number of records",
                hint="AfterRecords(1000); panes='early' writes one with each batch",
            )


@dataclass(frozen=True)
class AfterTime:
    """A pane with the first batch that begins so much later than the one that brought a record which no pane has."""

    time: timedelta

    def __post_init__(self) -> None:
        if not isinstance(self.time, timedelta) or self.time <= timedelta(0):
            raise Refused(
                f"AfterTime({self.time!r}): not a length of time",
                hint="AfterTime(timedelta(minutes=5)); panes='early' writes one with each batch",
            )


Trigger = AfterRecords | AfterTime


@dataclass(frozen=True)
class Held:
    """How many records of a window no pane has, and when the batch began that brought the first of them."""

    records: int
    since: Micros


def decided(
    trigger: Trigger, before: Mapping[Bounds, Held], met: Mapping[Bounds, int], closed: Micros | None, now: Micros
) -> tuple[list[Bounds], dict[Bounds, Held | None]]:
    """The open windows of which a batch writes a pane, and what is held of each window that it changes: None where
    nothing is.

    before   what the batches before have left of each window
    met      how many records in time the batch has brought, by window
    closed   up to where windows are closed with the batch: these have their last pane, and hold nothing
    now      when the batch began, by its row
    """
    fired, after = [], dict[Bounds, Held | None]()
    for window in sorted({*before, *(window for window, records in met.items() if records)}):
        known = before.get(window, Held(0, now))
        held = Held(known.records + met.get(window, 0), known.since)
        if closed is not None and window[1] <= closed:
            after[window] = None
        elif _is_due(trigger, held, now):
            fired.append(window)
            after[window] = None
        elif held != before.get(window):
            after[window] = held
    return fired, after


def _is_due(trigger: Trigger, held: Held, now: Micros) -> bool:
    if isinstance(trigger, AfterRecords):
        return held.records >= trigger.records
    return now - held.since >= micros(trigger.time)
