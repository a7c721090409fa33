"""Incarnations and epochs, the declarations of queries, and the progress of sources.

An incarnation binds a checkpoint to a query. Its highest epoch says which driver may commit for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from onlyonce.api import load as declarations
from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import Pipeline, each_input
from onlyonce.core import changes, stored_names
from onlyonce.core.batch import Plan, to_micros
from onlyonce.core.errors import Refused, Superseded
from onlyonce.core.frontier import Progress, SourceBatch
from onlyonce.database import mysql
from onlyonce.database.connect import Database, Transactions, ask, do, one_transaction


@dataclass(frozen=True)
class Incarnation:
    """One lifetime of one streaming query, bound to one checkpoint."""

    incarnation: str
    number: int
    ordinal: int
    checkpoint_id: UUID
    state: str
    start_from: dict[str, Any] | None


@dataclass(frozen=True)
class Driver:
    """A driver that may commit for an incarnation, as long as its epoch is the highest."""

    incarnation: str
    number: int
    epoch: int
    run_id: str

    def session(self, database: Database, platform: UUID | None = None) -> Database:
        """Return the database under this driver's session name, so that a newer driver can end its sessions.

        platform   the id of the platform's database, if `database` is a sink's own
        """
        return replace(database, name=session_name(platform, self.number, self.epoch))


def session_name(platform: UUID | None, number: int, epoch: int | str) -> str:
    """Return the name of a driver's sessions: in the platform's database (None), or in a sink's own.

    `epoch` is `%` to match the sessions of all drivers of an incarnation.
    """
    if platform is None:
        return stored_names.driver_session(number, epoch)
    return stored_names.sink_session(mysql.short(platform), number, epoch)


class Incarnations(Transactions):
    """Incarnations, their epochs, and who may commit."""

    @one_transaction
    def add_instance(self, instance: str, pipeline: str) -> None:
        """Register a pipeline or bounded run. A second call does nothing."""
        do(self.connection, "incarnations", "add_instance", instance=instance, pipeline=pipeline)

    @one_transaction
    def live(self, instance: str, query: str) -> Incarnation | None:
        """Return the incarnation of a query that is not closed, or None."""
        rows = ask(self.connection, "incarnations", "live", instance=instance, query=query)
        return Incarnation(*tuple(rows[0])) if rows else None

    @one_transaction
    def register(
        self,
        instance: str,
        query: str,
        checkpoint_id: UUID,
        start_from: dict[str, Any] | None = None,
        kind: Literal["stream", "backfill"] = "stream",
    ) -> Incarnation:
        """Return the live incarnation of a query, and make it if there is none. The checkpoint is made afterwards.

        A backfill's incarnation has no checkpoint, only its epoch and its units.
        """
        found = self.live(instance, query)
        if found:
            return found
        ordinal = ask(self.connection, "incarnations", "last_ordinal", instance=instance, query=query)[0].ordinal + 1
        do(
            self.connection, "incarnations", "add",
            incarnation=stored_names.incarnation(instance, query, ordinal), instance=instance, query=query,
            ordinal=ordinal, checkpoint_id=checkpoint_id, kind=kind,
            start_from=json.dumps(start_from) if start_from else None,
        )  # fmt: skip
        registered = self.live(instance, query)
        if registered is None:
            raise Superseded(f"another driver registered {instance}/{query}/{ordinal} at the same moment")
        return registered

    @one_transaction
    def set_state(self, incarnation: str, state: str) -> None:
        """Close an incarnation for good, or mark it damaged."""
        do(self.connection, "incarnations", "set_state", incarnation=incarnation, state=state)

    @one_transaction
    def bump(self, incarnation: Incarnation, run_id: str) -> Driver:
        """Give this driver the right to commit, and return it with its new epoch.

        End the sessions of older drivers first. A stalled one that holds the epoch row would keep the bump waiting, and
        its commit must fail anyway. Raise Superseded if `onlyonce reset` has closed this incarnation since it was
        looked up.
        """
        # A sink's variable may name the platform's database too, so sessions under that name are ended as well.
        ours = ask(self.connection, "authorities", "identity")[0].id
        ask(
            self.connection,
            "incarnations",
            "end_older_sessions",
            names=[session_name(platform, incarnation.number, "%") for platform in (None, ours)],
            below=None,
        )
        epoch = ask(self.connection, "incarnations", "bump", incarnation=incarnation.incarnation)[0].epoch
        # After the bump: a transaction that closes an incarnation holds its epoch, so this check comes before it or
        # sees it.
        if not do(self.connection, "incarnations", "started", incarnation=incarnation.incarnation):
            raise Superseded(
                f"incarnation {incarnation.incarnation} was closed while this driver started",
                data="nothing was read or written",
                hint="run the same command again: it takes the new incarnation",
            )
        return Driver(incarnation.incarnation, incarnation.number, epoch, run_id)

    @one_transaction
    def note_started(self, incarnation: Incarnation) -> None:
        """Note the start of a driver that has nothing to do, and so takes no epoch."""
        do(self.connection, "incarnations", "started", incarnation=incarnation.incarnation)

    @one_transaction
    def adopt(self, driver: Driver, platform: UUID | None = None) -> None:
        """Store the epoch in a sink's own database, after the sessions of a platform's older drivers there were ended.

        If the database's epoch is as high or higher, change nothing: neither the row, which a unit of the same epoch
        may lock, nor a session. Raise Superseded if it is higher.
        """
        there = ask(self.connection, "units", "known_epoch", incarnation=driver.incarnation)
        known = there[0].epoch if there else 0
        if known < driver.epoch:
            self._end_older_sessions(driver, platform)
            do(self.connection, "units", "set_epoch", incarnation=driver.incarnation, epoch=driver.epoch)
            known = ask(self.connection, "units", "known_epoch", incarnation=driver.incarnation)[0].epoch
        if known != driver.epoch:
            raise superseded(driver.incarnation, driver.epoch, known)

    def _end_older_sessions(self, driver: Driver, platform: UUID | None) -> None:
        if self.connection.dialect.name == mysql.DIALECT:
            mysql.end_older_sessions(self.connection, platform, driver.number, driver.epoch)
            return
        ask(
            self.connection,
            "incarnations",
            "end_older_sessions",
            names=[session_name(platform, driver.number, "%")],
            below=driver.epoch,
        )

    @one_transaction
    def check_epoch(self, incarnation: str, epoch: int) -> None:
        """Hold the epoch row shared until this transaction ends.

        Raise Superseded (exit code 69) if a newer driver has the incarnation.
        """
        rows = ask(self.connection, "units", "check_epoch", incarnation=incarnation)
        if not rows or rows[0].epoch != epoch:
            raise superseded(incarnation, epoch, rows[0].epoch if rows else None)

    @one_transaction
    def last_batches(self, incarnation: str) -> tuple[int | None, int | None]:
        """Return (highest batch that began, highest batch that committed)."""
        row = ask(self.connection, "incarnations", "last_batches", incarnation=incarnation)[0]
        return row.begun, row.committed

    @one_transaction
    def has_begun(self, driver: Driver) -> bool:
        """Return whether a driver's incarnation has begun a batch. Raise Superseded."""
        self.check_epoch(driver.incarnation, driver.epoch)
        return self.last_batches(driver.incarnation)[0] is not None

    @one_transaction
    def last_bounded(self, pipeline: str) -> tuple[str, bool] | None:
        """Return the last bounded run of a pipeline, and whether it has finished."""
        rows = ask(self.connection, "incarnations", "last_bounded", pipeline=pipeline)
        return (rows[0].instance, rows[0].done) if rows else None

    @one_transaction
    def wrote(self, run_id: str, instance: str, since: datetime) -> bool:
        """Return whether a run has committed a batch of a pipeline or bounded run since a time."""
        found = ask(self.connection, "incarnations", "wrote", run_id=run_id, instance=instance, since=since)
        return bool(found[0].wrote)

    @one_transaction
    def close_instance(self, instance: str) -> None:
        """Close the incarnations of a bounded run, all of whose rows are written."""
        do(self.connection, "incarnations", "close_instance", instance=instance)


def refuse_damaged(incarnation: Incarnation) -> None:
    """Raise Refused if Spark dropped rows in this incarnation: it does not run again."""
    if incarnation.state == "damaged":
        raise Refused(
            f"incarnation {incarnation.incarnation} is marked damaged: Spark dropped rows as late that the platform "
            "had judged in time",
            data="what it wrote before is in the log; its open windows may lack rows",
            hint=f"onlyonce reset {incarnation.incarnation.rsplit('/', 1)[0]} starts a new incarnation from the log",
        )


def superseded(incarnation: str, epoch: int, now: int | None) -> Superseded:
    """Return the error of a driver that a newer driver has superseded (exit code 69)."""
    return Superseded(
        f"another run has taken over {incarnation}: this driver has epoch {epoch}, but epoch {now} is running",
        data="its open transaction was rolled back; what it had committed before stays, and the newer driver "
        "continues from there",
        hint="nothing to do; if both were meant, run them one after the other",
    )


# The declarations that each query has run under, as the parts of their identity, kept once for each hash.
#
# `onlyonce/core/changes.py` decides what a difference means. docs/specification/incarnation.md.


@dataclass(frozen=True)
class Declared:
    """The current declaration of a query."""

    instance: str
    query: str
    hash: str
    parts: dict[str, Any]

    @classmethod
    def of(cls, pipeline: Pipeline, instance: str, query: str) -> Declared:
        """Return the declaration of a query of an instance."""
        return cls(instance, query, declarations.fingerprint(pipeline, query), declarations.parts(pipeline, query))


@dataclass(frozen=True)
class Ran:
    """A query that has run: its live incarnation and its declaration. `parts` is None if the parts were not kept."""

    query: str
    incarnation: str
    hash: str
    parts: dict[str, Any] | None
    stateless: bool


@dataclass(frozen=True)
class Made:
    """The visible windows of an output that one declaration has made. `parts` is None if the parts were not kept."""

    hash: str
    parts: dict[str, Any] | None
    first: datetime
    last: datetime
    upto: datetime


class Declarations(Transactions):
    """The declarations under which queries have run."""

    @one_transaction
    def go_on(self, incarnation: Incarnation, now: Declared) -> None:
        """Keep the declaration of a driver that starts. Raise Refused if its incarnation can't continue under it."""
        self.check(incarnation, now)
        self.keep(now)

    @one_transaction
    def check(self, incarnation: Incarnation, now: Declared) -> list[changes.Change]:
        """Raise Refused if an incarnation can't continue under a declaration. A run checks all its queries before it
        reads.

        Return the changes with which it continues. A bounded run has no state from one batch to the next, so any
        declaration can finish it.
        """
        found = self._changes(incarnation, now)
        lost = self.invalid_lost(now.instance) if changes.needing_a_name(found) else None
        changes.check_goes_on(incarnation.incarnation, found, invalid_lost=lost)
        return found

    @one_transaction
    def check_next(self, incarnation: Incarnation, now: Declared, *, by_plan: bool) -> None:
        """Raise Refused if the next incarnation of a query can't begin under a declaration: it needs another name, or
        a plan.
        """
        found = self._changes(incarnation, now)
        lost = self.invalid_lost(now.instance) if changes.needing_a_name(found) else None
        changes.check_next_incarnation(incarnation.incarnation, found, invalid_lost=lost, by_plan=by_plan)

    @one_transaction
    def nothing_kept(self, pipeline: str) -> bool:
        """Return whether a pipeline and its bounded runs can start over: they have kept and written nothing.

        False if it can't be known, or if the input was acknowledged. Whether a folder or a broker still has the input
        is not asked.
        """
        return self.invalid_lost(pipeline) is not None

    @one_transaction
    def invalid_lost(self, pipeline: str) -> int | None:
        """Return how many invalid records are removed if a pipeline starts over; None if it can't (`nothing_kept`)."""
        [found] = ask(self.connection, "drop", "nothing_kept", pipeline=pipeline)
        return int(found.invalid) if found.nothing_kept else None

    def _changes(self, incarnation: Incarnation, now: Declared) -> list[changes.Change]:
        last = ask(self.connection, "plan", "ran_under", incarnation=incarnation.incarnation)
        if "@" in now.instance or not last or not last[0].parts or last[0].declaration_hash == now.hash:
            return []
        return changes.changes(now.query, last[0].parts, now.parts, stateless=last[0].stateless)

    @one_transaction
    def keep(self, now: Declared) -> None:
        """Keep a declaration, once for each hash. A backfill calls this too: it makes windows under its declaration."""
        do(
            self.connection, "plan", "keep",
            instance=now.instance, query=now.query, hash=now.hash, parts=json.dumps(now.parts),
        )  # fmt: skip

    @one_transaction
    def came_as_records(self, instance: str, query: str) -> bool:
        """Return whether the rows of an output with windows came with their records in its last batch, by the log.

        Return False for a bounded run, which has one batch.
        """
        last = ask(self.connection, "plan", "last_way", instance=instance, query=query)
        if "@" in instance or not last or not last[0].parts:
            return False
        return changes.comes_as_records(last[0].parts["outputs"][query], stateless=last[0].stateless)

    @one_transaction
    def all_that_ran(self, instance: str) -> list[Ran]:
        """Return the queries of an instance with a committed or begun batch in their live incarnation, receive
        first.
        """
        rows = ask(self.connection, "plan", "queries", instance=instance)
        return [ran for row in rows if (ran := self.ran_under(row.query, row.incarnation))]

    @one_transaction
    def ran_under(self, query: str, incarnation: str) -> Ran | None:
        """Return a query's incarnation with the declaration of its last batch; None before the first."""
        rows = ask(self.connection, "plan", "ran_under", incarnation=incarnation)
        if not rows:
            return None
        return Ran(query, incarnation, rows[0].declaration_hash, _parts(query, rows[0]), rows[0].stateless)

    @one_transaction
    def starts(self, instance: str) -> dict[str, dict[str, Any]]:
        """Return the queries of an instance that have a live incarnation, run or not, each with the start of that
        incarnation.
        """
        return {row.query: row.start_from or {} for row in ask(self.connection, "plan", "queries", instance=instance)}

    @one_transaction
    def renamed(self, pipeline: Pipeline, declared: Collection[str]) -> list[str]:
        """Return a warning if a pipeline that has not run is probably a new name of one that has. `declared`: the
        names of all declared pipelines.
        """
        sources = [one.source for one in each_input(pipeline)]
        if any(
            one.has_inbox and not one.is_pulled and one.inbox is None for one in sources
        ):  # the default inbox is another folder
            return []
        asked = {"instance": pipeline.name, "hash": declarations.fingerprint(pipeline, "receive")}
        rows = ask(self.connection, "plan", "renamed_from", **asked)
        before = [row.instance for row in rows if row.instance not in declared]
        return [changes.renamed(declared_at(pipeline, "name"), pipeline.name, before)] if before else []

    @one_transaction
    def made(self, instance: str, output: str, query: str) -> list[Made]:
        """Return the final windows of an output by the declaration that made them.

        `query` is the output that reads `events`.
        """
        rows = ask(self.connection, "plan", "made_under", instance=instance, output=output, query=query)
        return [Made(*tuple(row)) for row in rows]

    @one_transaction
    def last_final(self, instance: str, output: str) -> tuple[datetime | None, datetime | None]:
        """Return (start of the newest closed window, end of the last window with rows) of an output; None before the
        first.
        """
        row = ask(self.connection, "plan", "last_final", instance=instance, output=output)[0]
        return row.last_start, row.last_end


def _parts(query: str, last: Any) -> dict[str, Any] | None:
    # The mode is not part of the identity: a batch ends in the mode in which it began. The batch's row has the mode.
    parts: dict[str, Any] | None = last.parts
    return parts | {"mode": last.mode} if query == "receive" and parts else parts


# How far each source of a pipeline with several has come, by the log.


SOURCE = stored_names.SOURCE
"""The key in the end of a receive batch that names its source, in a pipeline with several."""


class SourceBatches(Transactions):
    """The progress of an instance's sources."""

    @one_transaction
    def known(self, instance: str) -> Progress:
        """Return the sources' progress after the last batch or watermark marker that has it; empty before the first."""
        rows = ask(self.connection, "batches", "source_progress", instance=instance)
        return Progress.read(rows[0].source_progress_after if rows else None)

    @one_transaction
    def begun(self, instance: str, plan: Plan, sources: Collection[str]) -> SourceBatch | None:
        """Return the source and progress of a batch that begins now, for the declared sources. None if it has no
        source.
        """
        if SOURCE not in plan.source_to:
            return None
        seen = to_micros(plan.ingestion_time)
        return SourceBatch(plan.source_to[SOURCE], seen, self.known(instance).declared(sources, seen))


def source_batch_of_row(row: Any) -> SourceBatch | None:
    """Return the source and progress that the batch's row stores; None if the pipeline has one source."""
    if row.source_progress is None:
        return None
    return SourceBatch(row.source_to[SOURCE], to_micros(row.ingestion_time), Progress.read(row.source_progress))
