"""The sums of each life, in which old batches are added up: what asks for totals reads them, and not all batches there
ever were.

Who calls it: `collect`, each hour. Errors: Retryable while the database is away. Not promised: that all is added now; a
kill leaves the rest for the next time.
"""

from __future__ import annotations

from onlyonce.commitlog.operate.retention import Retention
from onlyonce.database.connect import Database
from onlyonce.failpoints import passing


def fold(database: Database) -> int:
    """Add to the sums of each life all batches that are old enough and add up; gives their number."""
    folded = 0
    waiting = Retention(database).unfolded()
    while waiting:
        done = [Retention(database).fold(*one) for one in waiting]  # type: ignore[misc]
        passing("retention-after-fold")
        folded += sum(done)
        # A life whose next batch does not add up is left as it is.
        stuck = {lineage for (lineage, _), added in zip(waiting, done, strict=True) if not added}
        waiting = [one for one in Retention(database).unfolded() if one[0] not in stuck]
    return folded


def note_final(database: Database) -> None:
    """Note for each life of an output up to which batch all its windows are final. Called after `fold`."""
    for lineage, first, upto in Retention(database).unsettled():
        after: int | None = first
        while after is not None and after < upto:
            after = Retention(database).note_final(lineage, after, upto)  # type: ignore[misc]
            passing("retention-after-final")
