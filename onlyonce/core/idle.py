"""Why a run has work, by what the log and the checkpoints say: the first reason, or None. Pure.

A run without a reason starts no Spark. A reason may be wrong in one direction only: a run that starts Spark for nothing
costs seconds, and a run that does not start it leaves work undone. Which of
several sources is idle, and so does not hold back the watermark, is decided in `frontier.Progress.fallen_idle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a run starts Spark."""

    NEVER_RAN = "a query has committed no batch in its incarnation"
    DAMAGED = "an incarnation does not run again"
    BEGUN = "a batch is begun"
    PLANNED = "the checkpoint has a batch that the log does not have as its last"
    CHANGED = "the declaration has changed since the last batch, and no run has ended under it"
    WATERMARK = "the watermark has moved since the last batch of a query with a state"
    MARKER = "a watermark marker is begun"
    REGISTERED = "registered input is not committed"
    UNREAD = "an output has not read all of events"
    LATE = "late records are to be included"
    CLOSE = "the input has ended or is silent, and a window closes by it"
    IDLE_SOURCE = "a source is new, or the watermark moves without an idle one"
    SOURCE = "a source has input"
    UNKNOWN = "not all of that can be asked"


@dataclass(frozen=True)
class QueryFacts:
    """Where a query has come.

    live               the state of its incarnation; None: it has none
    begun, committed   its last batches by the log
    planned, ended     its last batches by its checkpoint, -1 before the first
    same_declaration   whether its last batch, or a later run without a batch, ran under the present declaration
    watermark_moved    whether it keeps a state, and its watermark is newer than its last batch
    """

    live: str | None = "live"
    begun: int | None = 0
    committed: int | None = 0
    planned: int = 0
    ended: int = 0
    same_declaration: bool = True
    watermark_moved: bool = False


@dataclass(frozen=True)
class RunFacts:
    """The state of a pipeline's log before a run.

    queries       receive and each output that reads `events`
    marker_begun  whether a watermark marker is begun and not committed
    registered    the last batch of the source's manifest
    taken_in      the last batch of the manifest that receive has committed
    unread        the outputs that have not read all rows of `events`
    late          how many spans of windows the outputs include late records in
    closes        whether a window closes since the input has ended or is silent
    idle_source   whether a source is new, or the watermark moves without one that is idle
    """

    queries: Mapping[str, QueryFacts]
    marker_begun: bool = False
    registered: int | None = 0
    taken_in: int | None = 0
    unread: Sequence[str] = ()
    late: int = 0
    closes: bool = False
    idle_source: bool = False


def of_query(query: QueryFacts) -> Reason | None:
    """Return why a query has work of its own, without new rows."""
    if query.live is not None and query.live != "live":
        return Reason.DAMAGED
    if query.live is None or query.committed is None:
        return Reason.BEGUN if query.begun is not None else Reason.NEVER_RAN
    if query.begun != query.committed:
        return Reason.BEGUN
    if not query.planned == query.ended == query.committed:
        return Reason.PLANNED
    if not query.same_declaration:
        return Reason.CHANGED
    return Reason.WATERMARK if query.watermark_moved else None


def of_run(run: RunFacts) -> Reason | None:
    """Return why a run has work, by the log; the sources are asked only if it says nothing."""
    for query in run.queries.values():
        if found := of_query(query):
            return found
    if run.marker_begun:
        return Reason.MARKER
    if run.registered != run.taken_in:
        return Reason.REGISTERED
    if run.unread:
        return Reason.UNREAD
    if run.late:
        return Reason.LATE
    if run.closes:
        return Reason.CLOSE
    return Reason.IDLE_SOURCE if run.idle_source else None
