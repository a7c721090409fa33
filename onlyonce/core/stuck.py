"""The log's rows about work that may be stuck, as read by `sql/statements/doctor.sql`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from onlyonce.core.errors import OnlyonceError


@dataclass(frozen=True)
class LiveQuery:
    """An incarnation that is not closed, with its last batches. `at_work`: a driver of it has a session."""

    pipeline: str
    instance: str
    query: str
    incarnation: str
    ordinal: int
    state: str
    checkpoint_id: UUID
    epoch: int | None
    begun: int | None
    committed: int | None
    at_work: bool


@dataclass(frozen=True)
class BegunBatch:
    """A batch that did not commit. `dead`: how many of its units are of ended drivers; `epochs`: all their epochs.

    `quiet_seconds`: since it began, its last unit, and the start of its driver. `usual_seconds`: what its incarnation's
    last batches took.
    """

    incarnation: str
    batch_id: int
    run_id: str
    begun_at: datetime
    declaration_hash: str
    units: int
    dead: int
    epochs: str | None
    quiet_seconds: float
    usual_seconds: float | None = None


@dataclass(frozen=True)
class BegunMarker:
    """A watermark marker that a driver has begun and the log does not have as ended."""

    incarnation: str
    marker_no: int
    kind: str
    run_id: str
    begun_at: datetime
    quiet_seconds: float


@dataclass(frozen=True)
class BegunBackfill:
    """A backfill that did not commit."""

    pipeline: str
    instance: str
    output: str
    incarnation: str
    run_id: str
    begun_at: datetime
    asked_by: str
    window_from: datetime
    window_to: datetime
    quiet_seconds: float
    at_work: bool


@dataclass(frozen=True)
class BegunReprocessing:
    """A reprocessing that took its rows and has put no file into the inbox."""

    instance: str
    reprocessing_no: int
    kind: str
    run_id: str
    begun_at: datetime
    quiet_seconds: float


@dataclass(frozen=True)
class Begun:
    """Everything that began and did not end."""

    batches: Sequence[BegunBatch] = ()
    markers: Sequence[BegunMarker] = ()
    backfills: Sequence[BegunBackfill] = ()
    reprocessings: Sequence[BegunReprocessing] = ()


@dataclass(frozen=True)
class LostLongRun:
    """A continuous run whose heartbeat has stopped without notice."""

    pipeline: str
    instance: str
    attempt: int
    driver: str
    run_id: str
    quiet_seconds: float


@dataclass(frozen=True)
class OutputDown:
    """An output of a living continuous run that has stopped."""

    pipeline: str
    instance: str
    output: str
    why: str


@dataclass(frozen=True)
class WaitingFiles:
    """Files of committed batches without their final names."""

    pipeline: str
    instance: str
    output: str
    files: int
    place: str
    waiting_seconds: float


@dataclass(frozen=True)
class GivenUpRows:
    """Dead letters or rejected rows of the outbox, with the last answer to one of them."""

    pipeline: str
    instance: str
    output: str
    state: str
    rows: int
    unanswered: int
    answer: str | None


@dataclass(frozen=True)
class UndeliveredRows:
    """Rows of the outbox to send. `at_work`: a deliverer holds the lock of the output."""

    pipeline: str
    instance: str
    output: str
    rows: int
    quiet_seconds: float
    at_work: bool


@dataclass(frozen=True)
class OpenSubscription:
    """A subscription with pulled messages that are not known to be acknowledged."""

    pipeline: str
    subscription: str
    messages: int
    lapses_at: datetime
    held_seconds: float


@dataclass(frozen=True)
class InputAhead:
    """An instance whose last input was registered by a clock that was ahead."""

    pipeline: str
    instance: str
    reached: datetime
    ahead_seconds: float


@dataclass(frozen=True)
class UnreadInput:
    """A source with input that no committed batch has read, or that did not answer.

    amount           how much waits, in words
    waiting_seconds  the age of the oldest of it; of a source that does not know it, since when nothing was committed
    bound_seconds    how long input may wait
    no_answer        why the source did not answer
    """

    pipeline: str
    stage: str
    amount: str
    waiting_seconds: float
    bound_seconds: float
    no_answer: str | None = None


@dataclass(frozen=True)
class SinkAway:
    """A begun batch whose sink's own database can't be reached."""

    batch: BegunBatch
    error: OnlyonceError


@dataclass(frozen=True)
class Waits:
    """All work that waits for a command."""

    long_runs: Sequence[LostLongRun] = ()
    down: Sequence[OutputDown] = ()
    files: Sequence[WaitingFiles] = ()
    given_up: Sequence[GivenUpRows] = ()
    undelivered: Sequence[UndeliveredRows] = ()
    subscriptions: Sequence[OpenSubscription] = ()
    ahead: Sequence[InputAhead] = ()
    away: Sequence[SinkAway] = ()
    unread: Sequence[UnreadInput] = ()


@dataclass(frozen=True)
class OrphanUnits:
    """Units for which the log has neither a batch nor a backfill."""

    incarnation: str
    batch_id: int
    units: int
    first: str


@dataclass(frozen=True)
class UnevenBucket:
    """A live bucket with more or fewer ids in the catalog (`there`) than were kept (`said`).

    `unknown`: how many of the ids are of no known batch.
    """

    instance: str
    incarnation: str
    bucket: int
    said: int
    there: int
    unknown: int
