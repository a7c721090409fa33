"""What the log keeps, and for how long.

Units of batches that were committed long ago are removed; the batch keeps their sums.

- `units`: kept for ONLYONCE_KEEP_UNITS_DAYS after their batch was committed; always of the last batch of a lineage.
  Why: a committed batch is never replayed, and its row has their sums.
- `batches` of receive: kept always. Why: frontier, lineage checks, a new output and a backfill ask for any receive
  batch whose rows are in `events`.
- `batches` of outputs, `window_counts`: kept always, or for the pipeline's `keep_log`. Why: see
  `onlyonce/operate/compact/log.py`; their sums stay, by life and by window.
- `sums`: kept always: a row for each life. Why: what the batches came to that are older than a day, so nobody adds up a
  log of years.
- `panes`, `closes`, `backfills`: kept always. Why: what is final, by window; few.
- `outbox`: kept for ONLYONCE_KEEP_UNITS_DAYS after a row was delivered; always while it is not, or uncertain. Why: who
  asks what was sent, and when.
- `outbox`, held for a backfill: kept until it ends; of a killed attempt until the same backfill begins again. Why: a
  driver may still be at work, and `audit` names a begun backfill.
- `catalog_chunks`: kept for the dedup horizon, in lived time. Why: see `onlyonce/model/operate/collecting.py`.
- `range_filters`: kept until their last bucket is collected, or a longer one has taken their place. Why:
  `onlyonce/model/operate/filter_ranges.py`.

Who calls it: `onlyonce.operate.collect`. The database's clock decides the age; no result depends on it. Not promised:
that the units in a Postgres sink's own database are removed at the same time. They are removed after the log's, when
that database answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from onlyonce.commitlog import authorities
from onlyonce.commitlog.authorities import Authorities
from onlyonce.database.connect import Database, ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.errors import OnlyonceError

AT_ONCE = 500
"""Batches for each transaction: short locks, also on a log that was never cleaned."""
FOLDED_AT_ONCE = 5000
NOTED_AT_ONCE = 1000
FOLDED_AFTER_HOURS = 24
"""Batches of the last day are compared with their units and windows by each audit, and only then folded into the
sums."""
ROWS_AT_ONCE = 5000


@dataclass(frozen=True)
class Settled:
    """Up to which batch all of a lineage was committed so long ago."""

    instance: str
    output: str
    lineage: str
    upto: int


class Retention(Transactions):
    """What goes from the log when it is old."""

    @one_transaction
    def unfolded(self) -> list[tuple[str, int]]:
        """The lives with batches to fold into their sums, each with the last batch that is in them."""
        return [
            (row.lineage, row.upto) for row in ask(self.connection, "collect", "unfolded", hours=FOLDED_AFTER_HOURS)
        ]

    @one_transaction
    def fold(self, lineage: str, upto: int) -> int:
        """Add the next batches of a life to its sums, `FOLDED_AT_ONCE` at most; gives their number.

        Again, by a new look, until 0.

        A batch that does not add up is never folded, nor any after it: an audit goes on telling of it. Raises nothing
        of its own.
        """
        rows = ask(
            self.connection,
            "collect",
            "fold",
            lineage=lineage,
            upto=upto,
            hours=FOLDED_AFTER_HOURS,
            at_once=FOLDED_AT_ONCE,
        )
        return sum(row.folded for row in rows)

    @one_transaction
    def unsettled(self) -> list[tuple[str, int, int]]:
        """The lives of outputs of which some batches' windows are not known to be final: (life, after which batch, up
        to which)."""
        return [(row.lineage, row.after, row.upto) for row in ask(self.connection, "collect", "unsettled")]

    @one_transaction
    def note_final(self, lineage: str, after: int, upto: int) -> int | None:
        """Note that all windows of the next batches of a life are final, of `NOTED_AT_ONCE` at most; gives the last of
        these, None where the first of them has an open one.

        Beside another collector one of them does it."""
        rows = ask(
            self.connection, "collect", "note_final", lineage=lineage, after=after, upto=upto, at_once=NOTED_AT_ONCE
        )
        return rows[0].final_upto if rows else None

    @one_transaction
    def remove_units(self, keep_days: int) -> tuple[int, int]:
        """Remove the units of the oldest such batches, `AT_ONCE` at most; gives (batches, units). Again until 0
        batches.

        Beside another collector each batch is done by one of them. Raises nothing of its own.
        """
        rows = ask(self.connection, "collect", "remove_units", keep_days=keep_days, at_once=AT_ONCE)
        return len(rows), sum(row.units_removed for row in rows)

    @one_transaction
    def remove_delivered(self, keep_days: int) -> int:
        """Remove rows of the outbox that were delivered so long ago, some at a time; gives their number. Again until
        0."""
        return do(self.connection, "collect", "remove_delivered", keep_days=keep_days, at_once=ROWS_AT_ONCE)

    @one_transaction
    def settled(self, keep_days: int) -> list[Settled]:
        """For each output's lineage the batch up to which all are committed since `keep_days`; a later one may need its
        rows."""
        return [Settled(*tuple(row)) for row in ask(self.connection, "collect", "settled", keep_days=keep_days)]


def remove_elsewhere(database: Database) -> tuple[int, list[str]]:
    """Remove from sinks' own databases the units that `remove_units` has removed from the log; gives their number, and
    what is left for the next time because its database can't be asked."""
    removed, left = 0, []
    for one, upto in Authorities(database).settled():
        try:
            while units := authorities.remove_units(one, upto, ROWS_AT_ONCE):
                removed += units
        except OnlyonceError as error:
            left.append(f"{error.what}. Its old units are left for the next time")
    return removed, left
