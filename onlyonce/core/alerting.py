"""Decide which alerts are due. Pure.

They are: records that do not add up, lag, unread input, a source that does not answer, a batch without progress,
duplicates near the dedup horizon, a last run that failed.

A cause is one thing that is wrong (`kind`, `subject`). It is reported once, and again only after it has cleared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onlyonce.core.diagnosis import progress_of, without_progress
from onlyonce.core.errors import OnlyonceError
from onlyonce.core.gc import NearHorizon
from onlyonce.core.stuck import BegunBatch, LiveQuery


@dataclass(frozen=True)
class Lag:
    """How far a stage is behind."""

    pipeline: str
    stage: str
    system_lag_seconds: float
    batches_waiting: int


@dataclass(frozen=True)
class Unread:
    """A source's last answer; None: not known. An answer is current for three intervals."""

    pipeline: str
    stage: str
    is_current: bool
    answered: bool
    backlog_bytes: int | None
    backlog_records: int | None
    waiting_seconds: float | None
    why_unknown: str | None


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong."""

    kind: str
    subject: str
    what: str

    def text(self) -> str:
        """Return the alert in three lines, in the form of all errors: what happened, the data, what to do next."""
        data, hint = MEANING[self.kind]
        return str(OnlyonceError(f"{self.kind}: {self.what}", data=data, hint=hint))

    def message(self) -> dict[str, str]:
        """Return the alert as plain values for a hook. `text` holds the whole alert."""
        data, hint = MEANING[self.kind]
        return {**vars(self), "data": data, "next": hint, "text": self.text()}


MEANING = {
    "conservation": (
        "records have no fate, or two; what is committed was not changed",
        "onlyonce audit names each; look at it before anything runs: onlyonce pause PIPELINE",
    ),
    "lag": (
        "nothing is lost; results come late",
        "onlyonce lag names the slow stage, onlyonce doctor what is stuck",
    ),
    "no progress": (
        "nothing is lost or doubled; what the batch read is in no result yet, and what comes after it waits",
        "onlyonce doctor says what to look at; then end the run and start it again",
    ),
    "unread input": (
        "nothing is lost as long as the source keeps it; it is in no result until a run reads it",
        "onlyonce doctor says whether a driver is running; onlyonce lag shows how much waits",
    ),
    "source away": (
        "nothing is lost; it is not known how much input waits, and no run can read it until the source answers",
        "look at the source; onlyonce lag asks it again",
    ),
    "near horizon": (
        "none was counted twice yet; a re-delivery that comes a little later would be",
        "lengthen dedup_horizon of the pipeline; onlyonce gc shows how near they came",
    ),
    "failed run": (
        "what is committed stays; what that run did not commit is in no result until a run ends well",
        "onlyonce doctor names its error; then run it again",
    ),
}


def causes(
    broken: Iterable[tuple[str, str]],
    lag: Iterable[Lag],
    near: Iterable[NearHorizon],
    lag_seconds: float,
    queries: Iterable[LiveQuery] = (),
    begun: Iterable[BegunBatch] = (),
    unread: Iterable[Unread] = (),
    failed: Iterable[tuple[str, str]] = (),
) -> Iterator[Cause]:
    """Yield all that is wrong now, from the audit's findings and rows of the views.

    broken  (incarnation or output, finding) of the audit
    failed  (pipeline, its last run that failed) of `onlyonce.failed_runs`
    """
    by_subject: dict[str, list[str]] = {}
    for subject, finding in broken:
        by_subject.setdefault(subject, []).append(finding)
    for subject, findings in by_subject.items():
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        yield Cause("conservation", subject, findings[0] + more)
    for stage in lag:
        if stage.system_lag_seconds > lag_seconds:
            what = (
                f"input waits for {stage.stage} of {stage.pipeline} for {_minutes(stage.system_lag_seconds)} "
                f"(bound: {_minutes(lag_seconds)}), {stage.batches_waiting} batches"
            )
            yield Cause("lag", f"{stage.pipeline}/{stage.stage}", what)
    for batch in without_progress(queries, begun):
        yield Cause("no progress", f"{batch.incarnation}/{batch.batch_id}", progress_of(batch))
    for source in unread:
        yield from _of_source(source, lag_seconds)
    for row in near:
        what = (
            f"{row.near_the_edge} of {row.duplicate} duplicates of {row.pipeline} were caught in the oldest tenth of "
            "its dedup horizon"
        )
        yield Cause("near horizon", row.pipeline, what)
    for pipeline, run in failed:
        yield Cause("failed run", pipeline, f"the last run of {pipeline} failed ({run})")


def _of_source(source: Unread, lag_seconds: float) -> Iterator[Cause]:
    subject = f"{source.pipeline}/{source.stage}"
    if not source.is_current:
        return  # its numbers are too old to say anything
    if not source.answered:
        yield Cause("source away", subject, f"the source of {subject} did not answer: {source.why_unknown}")
    elif (source.waiting_seconds or 0) > lag_seconds:
        amount = [
            f"{number:,} {unit}"
            for number, unit in ((source.backlog_records, "records"), (source.backlog_bytes, "bytes"))
            if number is not None
        ]
        what = (
            f"{' and '.join(amount) or 'input'} of the source of {subject} are unread, the oldest for "
            f"{_minutes(source.waiting_seconds or 0)} (bound: {_minutes(lag_seconds)})"
        )
        yield Cause("unread input", subject, what)


def _minutes(seconds: float) -> str:
    return f"{float(seconds) / 60:.0f} min"
