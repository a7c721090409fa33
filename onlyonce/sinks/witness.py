"""The witness unit of a batch: it says what a commit elsewhere must hold, before that is written.

docs/specification/unit.md.

Used by the sinks whose rows are not in the unit's transaction: `sink_delta`, `sink_iceberg`. Errors: InvariantBroken
for a replay with other rows, Superseded.
"""

from __future__ import annotations

from onlyonce.commitlog import units
from onlyonce.commitlog.units import Units
from onlyonce.database.connect import Database
from onlyonce.database.transactions import Scope
from onlyonce.failpoints import passing
from onlyonce.model.batch import Batch
from onlyonce.model.errors import InvariantBroken
from onlyonce.model.units import COMPUTED, Content, UnitId


def witness(database: Database, unit: UnitId, epoch: int, content: Content, points: str) -> None:
    """Claim and fill it; one that is there is compared. `points`: what its fail-points begin with."""
    passing(f"{points}-unit-before-claim")
    Units(database).commit(units.Claim(unit, epoch, "driver", "witness"), content, points)
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


def end(scope: Scope, batch: Batch, sink: str) -> None:
    """See that the batch has its unit; at least once it has none."""
    if batch.at_least_once:
        return
    there = Units(scope).of_batch(batch.plan.lineage, batch.plan.batch_id)
    units.expect(there, sink, 1, batch.plan.lineage, batch.plan.batch_id)
