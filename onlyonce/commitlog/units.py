"""A unit's transaction: claim the unit, check the epoch, write the rows (the caller does this), store the content.
docs/specification/unit.md."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from onlyonce.commitlog.lineages import Lineages
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.errors import InvariantBroken
from onlyonce.model.units import Content, Counts, FloatSum, UnitId


@dataclass(frozen=True)
class Claim:
    """What a unit's first statement says: who wants to commit it, and of what kind it is.

    A data unit's rows are in the transaction; it is skipped when it is there. A witness unit's rows go
    elsewhere; when it is there, they are emitted again. Both are compared first.
    """

    unit: UnitId
    epoch: int
    attempt: str
    kind: Literal["data", "witness"]


class Units(Transactions):
    """Units, in the log or in a sink's own database."""

    @one_transaction
    def claim(self, wanted: Claim) -> Content | None:
        """Insert the unit, then check the epoch. Gives None when the unit is now ours to fill, or the content
        of the one that is there.

        The unique index makes a twin wait here for the other's commit or rollback, so there is no moment
        between a look and a write. Raises Superseded.
        """
        unit = wanted.unit
        ours = do(
            self.connection, "units", "claim",
            unique_id=str(unit), lineage=unit.lineage, batch_id=unit.batch_id, sink=unit.sink, partition=unit.partition,
            epoch=wanted.epoch, attempt=wanted.attempt, kind=wanted.kind,
        )  # fmt: skip
        Lineages(self.connection).check_epoch(unit.lineage, wanted.epoch)
        return None if ours else self.find(unit)

    @one_transaction
    def fill(self, unit: UnitId, content: Content, counts: Counts | None = None) -> None:
        """Store what the unit holds, in the transaction of its claim."""
        fates: dict[str, Any] = dict.fromkeys(("kept", "invalid", "remnant", "duplicate", "unknown_fields", "largest"))
        if counts is not None:
            fates = {name: getattr(counts, name) for name in fates}
        do(
            self.connection,
            "units",
            "fill",
            unique_id=str(unit),
            rows=content.rows,
            content_hash=content.exact,
            float_sums=_as_json(content.floats),
            **fates,
        )

    @one_transaction
    def commit_alike(
        self, lineage: str, batch_id: int, sink: str, partitions: int, epoch: int, content: Content
    ) -> dict[UnitId, Content]:
        """Claim all data units of a sink's batch, check the epoch, fill those that are now ours: the same in each, in
        as many statements as for one.

        Gives the others, with what they hold. Raises Superseded."""
        wanted = {number: UnitId(lineage, batch_id, sink, number) for number in range(partitions)}
        ours = ask(
            self.connection, "units", "claim_all", lineage=lineage, batch_id=batch_id, sink=sink, epoch=epoch,
            unique_ids=[str(unit) for unit in wanted.values()], partitions=[*wanted],
        )  # fmt: skip
        Lineages(self.connection).check_epoch(lineage, epoch)
        filled = {wanted[row.partition] for row in ours}
        do(
            self.connection, "units", "fill_all", unique_ids=[str(unit) for unit in filled],
            rows=content.rows, content_hash=content.exact, float_sums=_as_json(content.floats),
        )  # fmt: skip
        if len(filled) == partitions:
            return {}
        there = self.contents(lineage, batch_id, sink)
        return {unit: there[unit] for unit in wanted.values() if unit not in filled}

    @one_transaction
    def find(self, unit: UnitId) -> Content | None:
        """The content of a unit that is in the log."""
        rows = ask(self.connection, "units", "find", unique_id=str(unit))
        return _content(rows[0]) if rows else None

    @one_transaction
    def contents(self, lineage: str, batch_id: int, sink: str) -> dict[UnitId, Content]:
        """The units of one sink's batch that are in the log, each with its content."""
        there = [row for row in self.of_batch(lineage, batch_id) if row.sink == sink]
        return {UnitId(lineage, batch_id, sink, row.partition): _content(row) for row in there}

    @one_transaction
    def of_batch(self, lineage: str, batch_id: int) -> list[Any]:
        """All units of a batch, as rows of the query `of_batch`."""
        return ask(self.connection, "units", "of_batch", lineage=lineage, batch_id=batch_id)

    @one_transaction
    def note_snapshot(self, unit: UnitId, snapshot_id: int) -> None:
        """Store which snapshot of an Iceberg table has the rows of a unit. For people: nothing is decided by it."""
        do(self.connection, "units", "note_snapshot", unique_id=str(unit), snapshot_id=snapshot_id)

    @one_transaction
    def note(self, unit: UnitId, epoch: int, attempt: str, rows: int) -> None:
        """Note rows that no claim guards, in the transaction that writes them. Called in at-least-once mode."""
        do(
            self.connection, "units", "note",
            unique_id=str(unit), lineage=unit.lineage, batch_id=unit.batch_id, sink=unit.sink, partition=unit.partition,
            epoch=epoch, attempt=attempt, rows=rows,
        )  # fmt: skip

    @one_transaction
    def noted(self, lineage: str, batch_id: int, sink: str) -> int:
        """How many rows all attempts at a batch have written to a sink without a claim."""
        return int(ask(self.connection, "units", "noted", lineage=lineage, batch_id=batch_id, sink=sink)[0].rows)


def expect(rows: list[Any], sink: str, partitions: int, lineage: str, batch_id: int) -> None:
    """Stop unless each of the recorded partitions has its unit. Called before a batch ends."""
    there = {row.partition for row in rows if row.sink == sink}
    if there != set(range(partitions)):
        missing = sorted(set(range(partitions)) - there) or sorted(there - set(range(partitions)))
        raise InvariantBroken(
            f"batch {lineage}/{batch_id}: the units of {sink} don't match its {partitions} partitions: {missing}",
            data="the batch is not marked as committed",
            hint="look at onlyonce.commits for this batch, then run the same command again",
        )


def _content(row: Any) -> Content:
    return Content(row.rows, row.content_hash, {name: _float_sum(*values) for name, values in float_sums(row).items()})


def float_sums(row: Any) -> dict[str, Any]:
    """The sums of a unit's row. MySQL gives JSON as its text."""
    found = row.float_sums or {}
    return dict(json.loads(found) if isinstance(found, str) else found)


def _as_json(floats: dict[str, FloatSum]) -> str:
    # A sum may be more than a double holds, and JSON knows no infinity: as a string it is what float() reads again.
    sums = {name: [one.total, one.size, one.nan, one.high, one.low] for name, one in floats.items()}
    return json.dumps(
        {name: [value if isfinite(value) else str(value) for value in values] for name, values in sums.items()}
    )


def _float_sum(total: Any, size: Any, nan: int, high: int, low: int) -> FloatSum:
    return FloatSum(float(total), float(size), nan, high, low)
