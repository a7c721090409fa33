"""Counts how often receive has failed at a batch for the same reason, and keeps the records that it refuses because of
that.

docs/specification/receive.md.

Who calls it: `onlyonce.receive.poison`. Errors: Superseded from a driver that was overtaken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onlyonce.commitlog.lineages import Driver, Lineages
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.failpoints import passing
from onlyonce.model.poison import Place


@dataclass(frozen=True)
class Failures:
    """How often a batch has failed in a row of one cause, and the reasons of the records that it refuses, by place."""

    times: int = 0
    refused: Mapping[Place, str] = field(default_factory=dict)


class FailedAttempts(Transactions):
    """Failed attempts at batches of receive, and the records that these refuse."""

    @one_transaction
    def of_batch(self, lineage: str, batch_id: int) -> Failures:
        """What earlier attempts at a batch have failed of."""
        rows = ask(self.connection, "failures", "of_batch", lineage=lineage, batch_id=batch_id)
        return _read(rows[0]) if rows else Failures()

    @one_transaction
    def add(self, driver: Driver, batch_id: int, cause: str) -> Failures:
        """Note that an attempt has failed."""
        Lineages(self.connection).check_epoch(driver.lineage, driver.epoch)
        return _read(ask(self.connection, "failures", "add", lineage=driver.lineage, batch_id=batch_id, cause=cause)[0])

    @one_transaction
    def refuse(self, driver: Driver, instance: str, batch_id: int, refused: Mapping[Place, str]) -> None:
        """Fix which records a begun batch refuses. What its units say of them goes, so that all are written anew."""
        self.withdraw(driver, instance, batch_id)
        told = json.dumps([[*place, reason] for place, reason in refused.items()])
        do(self.connection, "failures", "refuse", refused=told, lineage=driver.lineage, batch_id=batch_id)
        passing("poison-before-commit")

    @one_transaction
    def withdraw(self, driver: Driver, instance: str, batch_id: int) -> None:
        """Withdraw the units of a begun batch and the ids that they added, so that a replay writes all of them anew.

        Their rows must not be in `events`.
        """
        Lineages(self.connection).check_epoch(driver.lineage, driver.epoch)
        do(self.connection, "relive", "withdraw_chunks", instance=instance, lineage=driver.lineage, batch_id=batch_id)
        do(self.connection, "relive", "withdraw_units", lineage=driver.lineage, batch_id=batch_id)


def _read(row: Any) -> Failures:
    return Failures(row.times, {Place(file, position): reason for file, position, reason in row.refused})
