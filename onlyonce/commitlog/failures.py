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

from sqlalchemy import Connection

from onlyonce.commitlog.lineages import Driver, check_epoch
from onlyonce.database.connect import ask, do
from onlyonce.model.poison import Place


@dataclass(frozen=True)
class Failures:
    """How often a batch has failed in a row of one cause, and the reasons of the records that it refuses, by place."""

    times: int = 0
    refused: Mapping[Place, str] = field(default_factory=dict)


def of_batch(connection: Connection, lineage: str, batch_id: int) -> Failures:
    """What earlier attempts at a batch have failed of."""
    rows = ask(connection, "failures", "of_batch", lineage=lineage, batch_id=batch_id)
    return _read(rows[0]) if rows else Failures()


def add(connection: Connection, driver: Driver, batch_id: int, cause: str) -> Failures:
    """Note that an attempt has failed."""
    check_epoch(connection, driver.lineage, driver.epoch)
    return _read(ask(connection, "failures", "add", lineage=driver.lineage, batch_id=batch_id, cause=cause)[0])


def refuse(connection: Connection, driver: Driver, instance: str, batch_id: int, refused: Mapping[Place, str]) -> None:
    """Fix which records a begun batch refuses. What its units say of them goes, so that all are written anew."""
    withdraw(connection, driver, instance, batch_id)
    told = json.dumps([[*place, reason] for place, reason in refused.items()])
    do(connection, "failures", "refuse", refused=told, lineage=driver.lineage, batch_id=batch_id)


def withdraw(connection: Connection, driver: Driver, instance: str, batch_id: int) -> None:
    """Withdraw the units of a begun batch and the ids that they added, so that a replay writes all of them anew.

    Their rows must not be in `events`.
    """
    check_epoch(connection, driver.lineage, driver.epoch)
    do(connection, "relive", "withdraw_chunks", instance=instance, lineage=driver.lineage, batch_id=batch_id)
    do(connection, "relive", "withdraw_units", lineage=driver.lineage, batch_id=batch_id)


def _read(row: Any) -> Failures:
    return Failures(row.times, {Place(file, position): reason for file, position, reason in row.refused})
