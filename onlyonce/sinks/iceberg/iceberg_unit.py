"""A batch of one output in an Iceberg table: the unit that witnesses it, then its one commit. Without Spark.

Who calls it: `sink_iceberg`, and the conformance suite. Errors: those of the witness and of `commits.once`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from onlyonce.database.connect import Database
from onlyonce.model.units import Content, UnitId
from onlyonce.sinks import witness
from onlyonce.sinks.iceberg import commits

Files = Callable[[Table], Sequence[DataFile]]
"""Writes the rows as data files of a table; no snapshot names them yet."""


@dataclass(frozen=True)
class Batched:
    """What is meant by one batch of one output, and by which driver."""

    unit: UnitId
    writer: str
    epoch: int
    content: Content
    replayed: bool = True

    def commit(self, content: str) -> commits.Commit:
        """Its commit, of rows of that content."""
        return commits.Commit(self.writer, self.unit.sink, self.unit.batch_id, self.epoch, str(self.unit), content)


def write(
    database: Database, table: Table, batch: Batched, files: Files, instead_of: BooleanExpression | None = None
) -> int | None:
    """Witness, write, commit, compare; gives the id of the snapshot.

    A batch without rows has no commit, unless rows are to go (`instead_of`).
    """
    witness.witness(database, batch.unit, batch.epoch, batch.content, "iceberg")
    if not batch.content.rows and instead_of is None:
        return None
    return commits.once(table, batch.commit(batch.content.exact), files, instead_of, replayed=batch.replayed)


def write_plainly(table: Table, batch: Batched, offsets: str, files: Files) -> None:
    """The same at least once: no witness, and whatever the first attempt wrote is right, as other code may give other
    rows in a replay."""
    if batch.content.rows:
        commits.once(table, batch.commit(offsets), files, replayed=batch.replayed)
