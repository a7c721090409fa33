"""The witness unit of a batch: it says what a commit elsewhere must hold, before that is written. PROTOCOL.md, 3b.

Used by the sinks whose rows are not in the unit's transaction: `sink_delta`, `sink_iceberg`. Errors: InvariantBroken
for a replay with other rows, Superseded.
"""

from __future__ import annotations

from sqlalchemy import Connection

from onlyonce.commitlog import units
from onlyonce.commitlog.units import Units
from onlyonce.database.connect import Database, run
from onlyonce.failpoints import passing
from onlyonce.model.batch import Batch
from onlyonce.model.errors import InvariantBroken
from onlyonce.model.units import COMPUTED, Content, UnitId, compare


def witness(database: Database, unit: UnitId, epoch: int, content: Content, points: str) -> None:
    """Claim and fill it; one that is there is compared. `points`: what its fail-points begin with."""

    def work(connection: Connection) -> None:
        claimed = units.Claim(unit, epoch, "driver", "witness")
        there = Units(connection).claim(claimed)
        passing(f"{points}-unit-after-claim")
        if there is not None:
            compare(unit, there, content)
            return
        Units(connection).fill(unit, content)

    passing(f"{points}-unit-before-claim")
    run(database, work)
    passing(f"{points}-unit-after-commit")


def check(unit: UnitId, content: Content, found: Content) -> None:
    """Compare what tasks wrote with the unit, before it is committed.

    Rows that are lost with an executor are computed again. Raises InvariantBroken.
    """
    if not found.same_as(content):
        again = found.exact != content.exact or found.rows == content.rows
        raise InvariantBroken(
            f"unit {unit} has {content.rows} rows (hash {content.exact}), but Spark's tasks wrote {found.rows} "
            f"rows (hash {found.exact}): "
            + (
                "a part of the rows was computed a second time, and differs"
                if again
                else "the writer of the files left rows out, or wrote them twice"
            ),
            data="nothing of this batch was committed to the table",
            hint=COMPUTED
            if again
            else "report it with the table's schema and partitions; a table without partitions takes the rows",
        )


def end(connection: Connection, batch: Batch, sink: str) -> None:
    """See that the batch has its unit; at least once it has none."""
    if batch.at_least_once:
        return
    there = Units(connection).of_batch(batch.plan.lineage, batch.plan.batch_id)
    units.expect(there, sink, 1, batch.plan.lineage, batch.plan.batch_id)
