"""A unit's transaction: claim the unit, check the epoch, write the rows (the caller does this), store the content.
docs/specification/unit.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Literal

from sqlalchemy import Row

from onlyonce.catalog.chunks import Chunks, LookUps, Place
from onlyonce.commitlog.lineages import Lineages
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.failpoints import passing
from onlyonce.model.batch import Plan
from onlyonce.model.errors import InvariantBroken
from onlyonce.model.units import Content, Counts, FloatSum, UnitId, compare

FATES = ("kept", "invalid", "remnant", "duplicate", "unknown_fields")
"""What a unit of receive counts its records by."""


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


@dataclass(frozen=True)
class Chunk:
    """The ids of a unit of receive as the catalog keeps them, and their filter."""

    place: Place
    ids: bytes
    filter: bytes


@dataclass(frozen=True)
class Unit:
    """A unit of a batch, as a log or a sink's own database has it.

    Only a unit of receive has the counts of its records, from `kept` on.
    """

    unique_id: str
    sink: str
    partition: int
    epoch: int
    attempt: str
    kind: str
    rows: int
    content_hash: str
    float_sums: dict[str, Any]
    committed_at: datetime
    writes: int
    kept: int = 0
    invalid: int = 0
    remnant: int = 0
    duplicate: int = 0
    unknown_fields: int = 0
    largest: datetime | None = None

    @property
    def content(self) -> Content:
        """What it holds."""
        return _content(self.rows, self.content_hash, self.float_sums)


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
    def commit(self, wanted: Claim, content: Content, points: str) -> None:
        """Claim and fill a unit whose rows go elsewhere; one that is there is compared.

        `points`: what the name of its fail-point begins with.
        """
        there = self.claim(wanted)
        passing(f"{points}-unit-after-claim")
        if there is not None:
            compare(wanted.unit, there, content)
            return
        self.fill(wanted.unit, content)

    @one_transaction
    def commit_received(
        self, wanted: Claim, content: Content, counts: Counts, chunk: Chunk | None, took: LookUps
    ) -> bool:
        """The same for a unit of receive, with its chunk of the catalog; tells whether that was added.

        `chunk` is None where the bucket of the unit may be gone.
        """
        passing("receive-unit-before-claim")
        there = self.claim(wanted)
        passing("receive-unit-after-claim")
        if there is not None:
            compare(wanted.unit, there, content)
            return False
        if chunk is not None:
            Chunks(self.connection).add(chunk.place, chunk.ids, chunk.filter)
        self.fill(wanted.unit, content, counts)
        Chunks(self.connection).note_look_ups(str(wanted.unit), took)
        passing("receive-unit-before-commit")
        return chunk is not None

    @one_transaction
    def fill(self, unit: UnitId, content: Content, counts: Counts | None = None) -> None:
        """Store what the unit holds, in the transaction of its claim."""
        fates: dict[str, Any] = dict.fromkeys((*FATES, "largest"))
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
    def commit_nothing(self, plan: Plan, sink: str, epoch: int, nothing: Content, *, compared: bool) -> None:
        """All data units of a batch of a sink without rows; those that are there are compared, unless they hold
        nothing that can be."""
        there = self.commit_alike(plan.lineage, plan.batch_id, sink, plan.partitions, epoch, nothing)
        if compared:
            for unit, found in there.items():
                compare(unit, found, nothing)

    @one_transaction
    def find(self, unit: UnitId) -> Content | None:
        """The content of a unit that is in the log."""
        rows = ask(self.connection, "units", "find", unique_id=str(unit))
        return _content(rows[0].rows, rows[0].content_hash, _float_sums(rows[0])) if rows else None

    @one_transaction
    def contents(self, lineage: str, batch_id: int, sink: str) -> dict[UnitId, Content]:
        """The units of one sink's batch that are in the log, each with its content."""
        there = [one for one in self.of_batch(lineage, batch_id) if one.sink == sink]
        return {UnitId(lineage, batch_id, sink, one.partition): one.content for one in there}

    @one_transaction
    def of_batch(self, lineage: str, batch_id: int) -> list[Unit]:
        """All units of a batch."""
        return [_unit(row) for row in ask(self.connection, "units", "of_batch", lineage=lineage, batch_id=batch_id)]

    @one_transaction
    def copy(self, lineage: str, batch_id: int, unit: Unit, authority: str) -> None:
        """Copy a unit from the database of another authority."""
        values = asdict(unit) | {"float_sums": json.dumps(unit.float_sums)}
        do(
            self.connection, "units", "copy_to_log",
            lineage=lineage, batch_id=batch_id, authority=authority, **values,
        )  # fmt: skip

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


def expect(there: Iterable[Unit], sink: str, partitions: int, lineage: str, batch_id: int) -> None:
    """Stop unless each of the recorded partitions has its unit. Called before a batch ends."""
    found = {one.partition for one in there if one.sink == sink}
    if found != set(range(partitions)):
        missing = sorted(set(range(partitions)) - found) or sorted(found - set(range(partitions)))
        raise InvariantBroken(
            f"batch {lineage}/{batch_id}: the units of {sink} don't match its {partitions} partitions: {missing}",
            data="the batch is not marked as committed",
            hint="look at onlyonce.commits for this batch, then run the same command again",
        )


def _unit(row: Row[Any]) -> Unit:
    known = row._mapping
    counts = {name: known.get(name) or 0 for name in FATES}
    return Unit(**{**known, "float_sums": _float_sums(row), **counts})


def _content(rows: int, exact: str, sums: dict[str, Any]) -> Content:
    return Content(rows, exact, {name: _float_sum(*values) for name, values in sums.items()})


def _float_sums(row: Row[Any]) -> dict[str, Any]:
    # MySQL gives JSON as its text.
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
