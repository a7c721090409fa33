"""Ask the sources of pipelines for their unread input, and store their answers in the log.

The DAG `onlyonce_ask_sources` stores them at intervals, `onlyonce alerts` at each call, and a driver after its batches.
A source that does not answer gets an answer that says so. Its earlier numbers are replaced: they are not known to be
right any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from onlyonce import settings
from onlyonce.api.pipeline import Pipeline
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.sources import SourceAnswers
from onlyonce.core import backlog
from onlyonce.core.backlog import Backlog
from onlyonce.core.stored_names import BATCH_NO
from onlyonce.database.connect import Database
from onlyonce.sources.backlog import ASKER, Answers

Row = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The answer of one source of a pipeline, when it came, and at which rate the pipeline's last batches read."""

    pipeline: str
    source: str | None
    asked_at: datetime
    backlog: Backlog
    records_per_second: float | None = None
    committed_at: datetime | None = None

    @property
    def stage(self) -> str:
        """Return the stage that reads the source, as the view `lag` names it."""
        return f"receive/{self.source}" if self.source else "receive"

    def row(self) -> Row:
        """Return the answer as columns of a stage."""
        found = self.backlog
        return {
            "backlog_bytes": found.bytes,
            "backlog_records": found.records,
            "oldest_unread_at": found.oldest,
            "catch_up_seconds": backlog.catch_up_seconds(found.records, self.records_per_second),
            "asked_at": self.asked_at,
            "source_answered": not found.failed,
            "backlog_detail": dict(found.detail) or None,
            "backlog_unknown": found.why,
        }

    def stored(self) -> Row:
        """Return the answer as a row of `source_answers`."""
        found = self.backlog
        return {
            "pipeline": self.pipeline,
            "source": self.source or "",
            "asked_at": self.asked_at,
            "answered": not found.failed,
            "records": found.records,
            "bytes": found.bytes,
            "oldest_unread_at": found.oldest,
            "detail": dict(found.detail),
            "why_unknown": found.why,
        }


def ask(pipelines: Iterable[Pipeline], taken_in: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Ask the sources of some pipelines, all at once. `taken_in`: the rows of the query of that name."""
    return _with_rates(ASKER.ask(pipelines, _last_batches(taken_in)), taken_in)


def ask_each(pipelines: Iterable[Pipeline], taken_in: Sequence[Mapping[str, Any]]) -> Iterator[list[Answer]]:
    """Ask as `ask` does; yield the answers immediately, and again each time another source has answered."""
    for answers in ASKER.ask_each(pipelines, _last_batches(taken_in)):
        yield _with_rates(answers, taken_in)


def _last_batches(taken_in: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    return {row["instance"]: row[BATCH_NO] for row in taken_in}


def _with_rates(answers: Answers, taken_in: Sequence[Mapping[str, Any]]) -> list[Answer]:
    known = {row["instance"]: row for row in taken_in}
    return [
        Answer(name, source, asked_at, answer, *(known[name][part] for part in ("records_per_second", "committed_at")))
        if name in known
        else Answer(name, source, asked_at, answer)
        for (name, source), (asked_at, answer) in answers.items()
    ]


def ask_and_store(database: Database, pipelines: Iterable[Pipeline]) -> list[Answer]:
    """Ask the sources of some pipelines and store their answers in the log. Raise Retryable if it can't be reached."""
    answers = ask(pipelines, Views(database).rows("taken_in"))
    every = timedelta(minutes=settings.ask_sources_minutes())
    SourceAnswers(database).store([one.stored() for one in answers], every)
    return answers
