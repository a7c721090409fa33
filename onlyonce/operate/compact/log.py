"""Old batches of outputs go from the log, as the pipeline's `keep_log` asks. docs/specification/log-retention.md.

A batch goes when nothing asks for it by itself any more (`sql/statements/keep_log.sql`). Its counts are in the sums of
its life, and what it met of each window is added up by window, so totals and windows have the same numbers as before.

Who calls it: `maintain`; `plan` asks what it would take. No errors of its own. Not promised: that all old batches go.
What holds one is left for the next time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from onlyonce.commitlog.operate.log_cuts import Life, LogCuts
from onlyonce.commitlog.operate.removals import Removals
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Pipeline
from onlyonce.failpoints import passing
from onlyonce.model.windows import Session


@dataclass(frozen=True)
class Cut:
    """What was cut off a log, or would be, and the moment from which it is whole. `lives`: of so many."""

    pipeline: str
    keep_log: timedelta
    whole_from: datetime | None
    held_by: str | None
    lives: int
    batches: int

    def row(self) -> dict[str, object]:
        """For the report."""
        return {
            "pipeline": self.pipeline, "keep_log": str(self.keep_log), "whole from": self.whole_from,
            "held by": self.held_by, "lives": self.lives, "batches": self.batches,
        }  # fmt: skip


def cut(database: Database, pipeline: Pipeline, *, dry_run: bool) -> Cut | None:
    """Cut what may go of a pipeline's log; gives what was done, or with `dry_run` would be.

    None where all is kept for ever.
    """
    keep, instance = pipeline.keep_log, pipeline.name
    if keep is None:
        return None
    limit, lives, holds = due(database, pipeline)
    batches = 0
    if lives and not holds:
        if not dry_run:
            LogCuts(database).begin(instance, keep, limit)
            passing("keep-log-after-begin")
        batches = sum(_cut(database, pipeline, life, limit, dry_run=dry_run) for life in lives)
    since = LogCuts(database).kept(instance).since
    return Cut(instance, keep, since, ", ".join(holds) or None, len(lives), batches)


def due(database: Database, pipeline: Pipeline) -> tuple[datetime, list[Life], list[str]]:
    """The moment before which batches may go, the lives that have some, and what holds them all: whatever has begun may
    ask for any."""
    assert pipeline.keep_log is not None
    limit = LogCuts(database).limit(pipeline.keep_log)
    declared = {root.name for root in pipeline.roots()}
    found = LogCuts(database).lives(pipeline.name, _sessions(pipeline), limit)
    lives = [life for life in found if life.query in declared and life.read_upto is not None]
    return limit, lives, Removals(database).under_way(pipeline.name)


def _sessions(pipeline: Pipeline) -> list[str]:
    return [root.name for root in pipeline.roots() if isinstance(root.window, Session)]


def _cut(database: Database, pipeline: Pipeline, life: Life, limit: datetime, *, dry_run: bool) -> int:
    first = None
    if life.query in _sessions(pipeline):
        first = LogCuts(database).first_open(pipeline.name, life.query)
    after: int | None = -1
    batches = 0
    while after is not None:
        after, gone = LogCuts(database).cut(life, limit, after, first, dry_run=dry_run)  # type: ignore[misc]
        batches += gone
        passing("keep-log-after-step")
    return batches
