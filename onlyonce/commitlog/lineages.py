"""Lineages and epochs: which checkpoint belongs to which query, and which driver may commit for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from onlyonce.database import mysql
from onlyonce.database.connect import Database, ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused, Superseded


@dataclass(frozen=True)
class Lineage:
    """One life of one streaming query, bound to one checkpoint."""

    lineage: str
    number: int
    life: int
    checkpoint_id: UUID
    state: str
    start_from: dict[str, Any] | None


@dataclass(frozen=True)
class Driver:
    """A driver that may commit for a lineage, as long as its epoch is the highest."""

    lineage: str
    number: int
    epoch: int
    run_id: str

    def session(self, database: Database) -> Database:
        """The same database under this driver's name, so that a newer driver can end its sessions."""
        return replace(database, name=stored_names.driver_session(self.number, self.epoch))


class Lineages(Transactions):
    """Lineages, their epochs, and who may commit."""

    @one_transaction
    def add_instance(self, instance: str, pipeline: str) -> None:
        """Register a pipeline or bounded run; nothing happens the second time."""
        do(self.connection, "lineages", "add_instance", instance=instance, pipeline=pipeline)

    @one_transaction
    def live(self, instance: str, query: str) -> Lineage | None:
        """The lineage of a query that is not closed."""
        rows = ask(self.connection, "lineages", "live", instance=instance, query=query)
        return Lineage(*tuple(rows[0])) if rows else None

    @one_transaction
    def register(
        self,
        instance: str,
        query: str,
        checkpoint_id: UUID,
        start_from: dict[str, Any] | None = None,
        kind: Literal["stream", "backfill"] = "stream",
    ) -> Lineage:
        """The live lineage of a query, made if there is none; the checkpoint is made after it.

        A backfill's lineage has no checkpoint: only its epoch and its units.
        """
        found = self.live(instance, query)
        if found:
            return found
        life = ask(self.connection, "lineages", "last_life", instance=instance, query=query)[0].life + 1
        do(
            self.connection, "lineages", "add",
            lineage=stored_names.lineage(instance, query, life), instance=instance, query=query, life=life,
            checkpoint_id=checkpoint_id, start_from=json.dumps(start_from) if start_from else None, kind=kind,
        )  # fmt: skip
        registered = self.live(instance, query)
        if registered is None:
            raise Superseded(f"another driver registered {instance}/{query}/{life} at the same moment")
        return registered

    @one_transaction
    def set_state(self, lineage: str, state: str) -> None:
        """Close a lineage for good, or mark it damaged."""
        do(self.connection, "lineages", "set_state", lineage=lineage, state=state)

    @one_transaction
    def bump(self, lineage: Lineage, run_id: str) -> Driver:
        """Make this driver the one that may commit. Ends the sessions of older ones first: a stalled one that
        holds the epoch row would keep the bump waiting, and its commit must fail anyway.

        Raises Superseded when `lineage new` has closed this life since it was looked up."""
        ask(
            self.connection,
            "lineages",
            "end_older_sessions",
            name_prefix=stored_names.driver_session(lineage.number, "%"),
            below=None,
        )
        epoch = ask(self.connection, "lineages", "bump", lineage=lineage.lineage)[0].epoch
        # After the bump: who closes a life holds its epoch meanwhile, so this look comes before that or sees it.
        if not do(self.connection, "lineages", "started", lineage=lineage.lineage):
            raise Superseded(
                f"lineage {lineage.lineage} was closed while this driver started",
                data="nothing was read or written",
                hint="run the same command again: it takes the new life",
            )
        return Driver(lineage.lineage, lineage.number, epoch, run_id)

    @one_transaction
    def adopt(self, driver: Driver) -> None:
        """Tell a sink's own database the epoch; sessions of older drivers there are ended first. Raises Superseded.

        One that is not newer than what is known there touches nothing: neither the row, which a unit of the same
        epoch may hold, nor anybody's session.
        """
        there = ask(self.connection, "units", "known_epoch", lineage=driver.lineage)
        known = there[0].epoch if there else 0
        if known < driver.epoch:
            self._end_older_sessions(driver)
            do(self.connection, "units", "set_epoch", lineage=driver.lineage, epoch=driver.epoch)
            known = ask(self.connection, "units", "known_epoch", lineage=driver.lineage)[0].epoch
        if known != driver.epoch:
            raise superseded(driver.lineage, driver.epoch, known)

    def _end_older_sessions(self, driver: Driver) -> None:
        if self.connection.dialect.name == mysql.DIALECT:
            mysql.end_older_sessions(self.connection, driver.number, driver.epoch)
            return
        ask(
            self.connection,
            "lineages",
            "end_older_sessions",
            name_prefix=f"onlyonce/{driver.number}/%",
            below=driver.epoch,
        )

    @one_transaction
    def check_epoch(self, lineage: str, epoch: int) -> None:
        """Hold the epoch row shared until this transaction ends; raises Superseded if a newer driver has it."""
        rows = ask(self.connection, "units", "check_epoch", lineage=lineage)
        if not rows or rows[0].epoch != epoch:
            raise superseded(lineage, epoch, rows[0].epoch if rows else None)

    @one_transaction
    def last_batches(self, lineage: str) -> tuple[int | None, int | None]:
        """(highest batch that began, highest that committed)."""
        row = ask(self.connection, "lineages", "last_batches", lineage=lineage)[0]
        return row.begun, row.committed

    @one_transaction
    def has_begun(self, driver: Driver) -> bool:
        """Whether a driver's lineage has begun a batch. Raises Superseded."""
        self.check_epoch(driver.lineage, driver.epoch)
        return self.last_batches(driver.lineage)[0] is not None

    @one_transaction
    def last_bounded(self, pipeline: str) -> tuple[str, bool] | None:
        """The last bounded run of a pipeline, and whether it has finished."""
        rows = ask(self.connection, "lineages", "last_bounded", pipeline=pipeline)
        return (rows[0].instance, rows[0].done) if rows else None

    @one_transaction
    def close_instance(self, instance: str) -> None:
        """All of a bounded run is written: its lineages end."""
        do(self.connection, "lineages", "close_instance", instance=instance)


def refuse_damaged(lineage: Lineage) -> None:
    """A lineage in which Spark dropped rows does not run again. Raises Refused."""
    if lineage.state == "damaged":
        raise Refused(
            f"lineage {lineage.lineage} is marked damaged: Spark dropped rows as late that the platform had judged "
            "in time",
            data="what it wrote before is in the log; its open windows may lack rows",
            hint=f"onlyonce lineage new {lineage.lineage.rsplit('/', 1)[0]} starts a new life from the log",
        )


def superseded(lineage: str, epoch: int, now: int | None) -> Superseded:
    """The error of a driver that was overtaken."""
    return Superseded(
        f"lineage {lineage}: this driver has epoch {epoch}, but epoch {now} is at work",
        data="its open transaction was rolled back; what it had committed before stays, and the newer driver goes "
        "on from there",
        hint="nothing to do; if both were meant, run them one after the other",
    )
