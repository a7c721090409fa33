"""What the log has of work that may be stuck: the rows of `sql/statements/doctor.sql`. Pure.

Who calls it: `onlyonce.commitlog.health` reads them, `diagnosis` and `waiting` decide by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from onlyonce.core.errors import OnlyonceError


@dataclass(frozen=True)
class LiveQuery:
    """A life that is not closed, with its last batches. `at_work`: a driver of it has a session."""

    pipeline: str
    instance: str
    query: str
    lineage: str
    life: int
    state: str
    checkpoint_id: UUID
    epoch: int | None
    begun: int | None
    committed: int | None
    at_work: bool


@dataclass(frozen=True)
class BegunBatch:
    """A batch that did not commit. `dead`: of its units so many are of drivers that have ended; `epochs`: of all."""

    lineage: str
    batch_id: int
    run_id: str
    begun_at: datetime
    declaration_hash: str
    units: int
    dead: int
    epochs: str | None
    quiet_seconds: float


@dataclass(frozen=True)
class BegunClose:
    """A close of the input that is not in the log as done."""

    lineage: str
    close_no: int
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
    lineage: str
    run_id: str
    begun_at: datetime
    asked_by: str
    window_from: datetime
    window_to: datetime
    quiet_seconds: float
    at_work: bool


@dataclass(frozen=True)
class BegunRelease:
    """A release that took its rows and has put no file into the inbox."""

    instance: str
    release_no: int
    kind: str
    run_id: str
    begun_at: datetime
    quiet_seconds: float


@dataclass(frozen=True)
class Begun:
    """All that began and did not end."""

    batches: Sequence[BegunBatch] = ()
    closes: Sequence[BegunClose] = ()
    backfills: Sequence[BegunBackfill] = ()
    releases: Sequence[BegunRelease] = ()


@dataclass(frozen=True)
class LostLongRun:
    """A long run whose heartbeat has stopped without notice."""

    pipeline: str
    instance: str
    attempt: int
    driver: str
    run_id: str
    quiet_seconds: float


@dataclass(frozen=True)
class OutputDown:
    """An output of a living long run that stands still."""

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
    """Rows of the outbox that are to be sent. `at_work`: a deliverer holds the lock of the output."""

    pipeline: str
    instance: str
    output: str
    rows: int
    quiet_seconds: float
    at_work: bool


@dataclass(frozen=True)
class OpenSubscription:
    """A subscription with landed messages that are not known to be acknowledged."""

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
class SinkAway:
    """A begun batch for which a sink's own database can't be asked."""

    batch: BegunBatch
    error: OnlyonceError


@dataclass(frozen=True)
class Waits:
    """All that waits for a command."""

    long_runs: Sequence[LostLongRun] = ()
    down: Sequence[OutputDown] = ()
    files: Sequence[WaitingFiles] = ()
    given_up: Sequence[GivenUpRows] = ()
    undelivered: Sequence[UndeliveredRows] = ()
    subscriptions: Sequence[OpenSubscription] = ()
    ahead: Sequence[InputAhead] = ()
    away: Sequence[SinkAway] = ()


@dataclass(frozen=True)
class OrphanUnits:
    """Units of which neither a batch nor a backfill is in the log."""

    lineage: str
    batch_id: int
    units: int
    first: str


@dataclass(frozen=True)
class UnevenBucket:
    """A live bucket with more or fewer ids in the catalog (`there`) than were kept (`said`).

    `unknown`: how many ids of no batch that is known.
    """

    instance: str
    lineage: str
    bucket: int
    said: int
    there: int
    unknown: int
