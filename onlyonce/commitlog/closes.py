"""Closes in the log: receive says between two batches that the input has ended, or is silent, by a control row.

Who calls it: `onlyonce.receive.receive`. Errors: Superseded for a driver that was overtaken.
"""

from __future__ import annotations

import json

from onlyonce.commitlog.batches import frontier_of, frontier_times
from onlyonce.commitlog.lineages import Driver, Lineages
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.frontier import Frontier
from onlyonce.model.sources.tides import Tides


class Closes(Transactions):
    """The control rows of an instance."""

    @one_transaction
    def begin(
        self, driver: Driver, kind: str, after: Frontier, tides: Tides | None = None
    ) -> tuple[int, str, Frontier]:
        """Fix what a control row says, and how far each of several sources has come; one that an earlier attempt left
        is finished first.

        Gives its number too."""
        Lineages(self.connection).check_epoch(driver.lineage, driver.epoch)
        left = ask(self.connection, "batches", "open_close", lineage=driver.lineage)
        if left:
            row = left[0]
            return row.close_no, row.kind, frontier_of(row)
        number = ask(self.connection, "batches", "last_close", lineage=driver.lineage)[0].close_no + 1
        do(
            self.connection, "batches", "begin_close",
            lineage=driver.lineage, close_no=number, epoch=driver.epoch, kind=kind, run_id=driver.run_id,
            source_tides_after=json.dumps(tides.told()) if tides else None, **frontier_times(after),
        )  # fmt: skip
        return number, kind, after

    @one_transaction
    def is_open(self, driver: Driver) -> bool:
        """Whether an earlier driver began a close and did not commit it."""
        return bool(ask(self.connection, "batches", "open_close", lineage=driver.lineage))

    @one_transaction
    def end(self, driver: Driver, number: int, delta_version: int) -> None:
        """The control row is in `events`."""
        Lineages(self.connection).check_epoch(driver.lineage, driver.epoch)
        do(
            self.connection,
            "batches",
            "end_close",
            lineage=driver.lineage,
            close_no=number,
            delta_version=delta_version,
        )
