"""Which commits to `events` may be compacted, which records may be removed, and what the removal gives up. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from onlyonce.core import stored_names
from onlyonce.core.batch import to_time
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import FIRST_WINDOW
from onlyonce.core.windows import Chained, Joined, Micros, Session, Window, first_start, longest, micros, own, reach

TARGET_BYTES = 1 << 26
"""How large a compacted file is on the disk. Its rows take about ten times as much memory while they are sorted."""
SMALL_BYTES = TARGET_BYTES // 2
"""A file of at least this size is not compacted."""
FEW = 2
"""A group with fewer files than this is not compacted."""
WORTH = 4
"""A file larger than this many times all smaller files of its group is left for a later time. So a row is rewritten
each time that the files have grown by a quarter, and not every hour."""


@dataclass(frozen=True)
class Reader:
    """An incarnation of an output that may continue.

    last            its last committed batch; None before the first
    begun_after     the version of `events` after which that batch began to read; -1 for the beginning
    read_upto       the version up to which it has read
    starts_from     the version from which a new incarnation would read; 0 for the whole table
    first_reading   the version of the table with which it began to read in parts, if its last batch is such a part;
                    else None
    """

    query: str
    last: int | None
    begun_after: int
    read_upto: int
    starts_from: int
    first_reading: int | None = None


def whole_buckets_from(ended: int, readers: Sequence[Reader], compacted: int = -1) -> tuple[int, str | None]:
    """Return the version up to which commits to `events` may be compacted (-1: none), and the query that holds more.

    Three kinds of commits are not compacted:

    - versions that receive has not ended;
    - versions that a query may read again one by one: Spark repeats the last batch if the checkpoint lacks its end;
    - versions from which a new incarnation would continue to read.

    A query that reads from the beginning needs no single commit: it reads the table as it is.

    compacted  the version up to which commits are compacted already. A new incarnation that would begin there reads
               the table as it is, so it needs no commit by itself
    """
    found, by = ended, None
    for reader in readers:
        limit = until(replace(reader, starts_from=0) if reader.starts_from - 1 <= compacted else reader)
        if limit is not None and limit < found:
            found, by = limit, reader.query
    return max(found, -1), by


def until(reader: Reader) -> int | None:
    """Return the version up to which neither an incarnation nor a new one after it reads commits one by one again.

    None if they read no commit one by one."""
    # The stream of a new incarnation begins at the version before the first one that it reads.
    holds = [reader.starts_from - 2] if reader.starts_from > 0 else []
    if reader.first_reading is not None:
        holds.append(reader.first_reading)  # up to there it reads the table in parts, and no commit by itself
    elif reader.last is not None:
        # The first batch, if it is repeated, reads the table up to `read_upto` as a whole, and no commit by itself.
        holds.append(reader.begun_after if reader.last else reader.read_upto)
    return min(holds, default=None)


class Sized(Protocol):
    """A file that may be compacted with others."""

    @property
    def bytes(self) -> int: ...


F = TypeVar("F", bound=Sized)


def files_together(files: Sequence[F]) -> list[list[F]]:
    """Return groups of small files, in the given order: each group becomes one file of at most TARGET_BYTES."""
    groups: list[list[F]] = [[]]
    size = 0
    for file in files:
        if file.bytes >= SMALL_BYTES:
            continue
        if size + file.bytes > TARGET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.bytes
    return [worth for group in groups if len(worth := _without_giants(group)) >= FEW]


def _without_giants(group: list[F]) -> list[F]:
    left = sum(file.bytes for file in group)
    giants = set()
    for at in sorted(range(len(group)), key=lambda at: group[at].bytes, reverse=True):
        left -= group[at].bytes
        if group[at].bytes <= WORTH * left:
            break
        giants.add(at)
    return [file for at, file in enumerate(group) if at not in giants]


# Which records of `events` may be removed: from before which event time, and up to which version.
#
# Whole days (of UTC) are removed, by event time. A day is removed when it is older than `keep_events` and nothing needs
# its single records. So the ids of its batches are removed (the dedup horizon), each output has read it and closed its
# windows, and no running backfill or reprocessing reads it. Times are whole microseconds since 1970, UTC.


DAY = micros(timedelta(days=1))
NOTHING = -1
"""As a version: no commit."""


@dataclass(frozen=True)
class Hold:
    """A query or command that may still need records.

    It needs the rows of commits after `upto`, and the rows from the event time `before` on (None: none by event
    time)."""

    by: str
    upto: int
    before: Micros | None = None


@dataclass(frozen=True)
class Decision:
    """The records to remove: records from before an event time, of the commits up to a version.

    `held_by` names what keeps more records than `keep_events` requires.
    """

    before: Micros
    upto: int
    held_by: str | None = None


def done_upto(reader: Reader) -> int:
    """Return the version up to which an output's incarnation, and the next one after it, need no record any more.

    A first reading reads the table as it was, and its last batch may begin again. So all records stay until a later
    batch has ended.
    """
    limit = until(reader) if reader.last and reader.first_reading is None else None
    return NOTHING if limit is None else max(limit, NOTHING)


def closed_before(window: Window, closed: Micros | None, late: Sequence[Micros] = ()) -> Micros:
    """Return the event time before which all records are in windows that an output has closed and written.

    `late`: the starts of windows that the output will compute again by itself, for late records or for a pane. A
    session is known only when it is closed, and an open one began some time before."""
    if closed is None:
        return 0
    first = closed - micros(window.gap) if isinstance(window, Session) else own(window).assign(closed)[0][0]
    return min([first - reach(window), *(start - first_moment(0, window) for start in late)])


def reach_back(window: Window | None) -> Micros:
    """Return how far before its start a window's records may be: for a session its gap, for a join its reach."""
    return micros(window.gap) if isinstance(window, Session) else reach(window)


def furthest(holds: Sequence[Hold]) -> Hold:
    """Return the hold that keeps the most commits."""
    return min(holds, key=lambda hold: hold.upto)


def decide(
    keep: timedelta,
    now: Micros,
    max_event_time: Micros | None,
    newest: Micros | None,
    holds: Sequence[Hold],
    kept_from: Micros | None,
) -> Decision:
    """Return what may be removed now.

    max_event_time    the largest event time of the commits that nothing holds
    newest  the largest event time of all commits

    If nothing more can be removed, `before` does not change (0: nothing was ever removed). The clock counts if event
    times are ahead of it, else the event time: if the input is years old, its newest days are kept.
    """
    upto = furthest(holds)
    asked = _day(min(now, newest) - micros(keep)) if newest is not None else 0
    by_commits = (
        _day(min(now, max_event_time) - micros(keep)) if max_event_time is not None and upto.upto > NOTHING else 0
    )
    limits = [(by_commits, upto.by), *((_day(hold.before), hold.by) for hold in holds if hold.before is not None)]
    before, by = min(limits, key=lambda limit: limit[0])
    return Decision(max(before, kept_from or 0, 0), upto.upto, by if before < asked else None)


def first_moment(kept_from: Micros, window: Window | None) -> Micros:
    """Return the first start of a window whose records are all kept.

    A join's windows are recomputed with their neighbours, whose records must be kept too."""
    neighbours = longest(window) + reach(window) if isinstance(window, Joined) else 0
    return kept_from + reach_back(window) + neighbours


def refuse_span(output: str, start: Micros, first: Micros | None) -> None:
    """Raise Refused for a backfill of windows whose records are removed. `first`: the first start with all."""
    if first is None or start >= first:
        return
    raise Refused(
        f"output {output}: windows from {said(start)} on were asked for, but the records from before {said(first)} "
        "are removed from `events` (keep_events)",
        data="nothing was written; the windows before that stay as they are, for they can't be computed again",
        hint=f"--from {said(first)} is the first moment that there is",
    )


def refuse_start(instance: str, query: str, kept_from: Micros | None, start: dict[str, Any] | None) -> None:
    """Raise Refused for an incarnation that would read removed records of `events`, unless a person has accepted the
    rest.
    """
    begins = start or {}
    accepted = max(begins.get(stored_names.KEPT_FROM, -1), begins.get(FIRST_WINDOW, -1))
    if (
        kept_from is None
        or query == "receive"
        or begins.get(stored_names.START_VERSION, 0) > 0
        or accepted >= kept_from
    ):
        return
    raise Refused(
        f"{instance}/{query} would read `events` from the beginning, but the records from before {said(kept_from)} "
        "are removed (keep_events)",
        data="nothing was read or written",
        hint=f"onlyonce reset {instance}/{query} --from-kept --yes begins it with what there is, from "
        f"{said(kept_from)} on; or put its checkpoint back from a backup",
    )


def with_what_is_kept(window: Window | None, kept_from: Micros, first_window: Micros | None) -> dict[str, Any]:
    """Return the start of an incarnation that reads only the kept records: it has no windows that need removed ones."""
    start: dict[str, Any] = {stored_names.START_VERSION: 0, stored_names.KEPT_FROM: kept_from}
    if window is None or isinstance(window, Session):
        return start
    return start | {
        FIRST_WINDOW: max(
            first_window or 0, first_start(window, kept_from + (reach(window) if isinstance(window, Chained) else 0))
        )
    }


def given_up(
    before: timedelta | None, after: timedelta | None, kept_from: Micros | None, decision: Decision | None
) -> str | None:
    """Return what a changed `keep_events` means since the last removal; None if it means nothing."""
    if after is None or (before is not None and after > before):
        return None if before is None else "from now on; what is removed does not come back"
    if after == before or decision is None:
        return None
    if decision.before <= (kept_from or 0):
        return "nothing is so old yet" + (f", or it is held by {decision.held_by}" if decision.held_by else "")
    return (
        f"the next `onlyonce maintain` removes the records from before {said(decision.before)} for good: backfills, "
        "reprocessings and new outputs can't have them any more"
    )


def said(time: Micros) -> str:
    """Return a moment in the form that commands take."""
    return to_time(time).isoformat().replace("+00:00", "Z")


def _day(time: Micros) -> Micros:
    return time // DAY * DAY


# What a changed `keep_log` gives up.


def log_given_up(before: timedelta | None, after: timedelta | None, limit: datetime | None) -> str | None:
    """Return what a changed `keep_log` means since the last cut; None if it means nothing.

    `limit`: batches from before that moment are cut; None: there are none.
    """
    if after is None or (before is not None and after > before):
        return None if before is None else "from now on; what is cut from the log does not come back"
    if after == before:
        return None
    if limit is None:
        return "no batch of an output is so old yet"
    return (
        f"the next `onlyonce maintain` cuts the batches of outputs that were committed before {log_said(limit)} from "
        "the log: their sums stay, by incarnation and by window, but "
        "onlyonce.batches, onlyonce.conservation and the page have them one by one no more"
    )


def log_said(time: datetime) -> str:
    """Return a moment in the form that the views show."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
