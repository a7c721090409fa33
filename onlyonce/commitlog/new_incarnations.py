"""Where a new incarnation of a query begins, the units that its last one has left behind, and the begin itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from onlyonce.api.pipeline import unknown
from onlyonce.commitlog.incarnations import Driver, Incarnation, Incarnations
from onlyonce.commitlog.removals import Removals
from onlyonce.commitlog.units import Authorities, Unit, Units
from onlyonce.core.batch import read_upto
from onlyonce.core.stored_names import (
    AFTER_BATCH_NO,
    BATCH_NO,
    CLOSED_BY,
    COUNTED_UPTO,
    FIRST_WINDOW,
    RESERVOIR_VERSION,
    ROWS_FROM,
    START_VERSION,
)
from onlyonce.core.windows import Micros
from onlyonce.database.connect import Transactions, ask, do, one_transaction

Start = dict[str, Any]
"""Where an incarnation begins: the content of `incarnations.start_from`. Each key may be missing.

START_VERSION   the first version that is read: of the manifest by receive, of `events` by an output
AFTER_BATCH_NO  receive: batches of the source up to this number were taken in
COUNTED_UPTO    an output: earlier incarnations have counted the records up to this version
CLOSED_BY       an output: windows that closed by this version are not written again
ROWS_FROM       an output: rows of records before this version are not written, only read for the state
FIRST_WINDOW    an output: windows before this one are left out
"""


@dataclass(frozen=True)
class Begun:
    """A batch that began and did not commit."""

    batch_id: int
    source_to: dict[str, Any]


@dataclass(frozen=True)
class LeftUnits:
    """The units of a begun batch in all its databases, and the declarations of its outputs.

    `platform` is the id of the platform's database, which is in the names of transactions in tables.
    """

    incarnation: str
    units: list[Unit]
    declared: dict[str, dict[str, str]]
    platform: UUID | None


class NewIncarnations(Transactions):
    """The change from one incarnation of a query to the next."""

    @one_transaction
    def old(self, instance: str, query: str) -> Incarnation:
        """Return the incarnation that is not closed. Raise Refused, with the live incarnations, if there is none."""
        found = Incarnations(self.connection).live(instance, query)
        if found is None:
            known = [f"{r.instance}/{r.query}" for r in ask(self.connection, "new_incarnations", "all_live")]
            raise unknown("live incarnation", f"{instance}/{query}", known)
        return found

    @one_transaction
    def begun(self, incarnation: str) -> list[Begun]:
        """Return the batch that an incarnation has left behind, as a list of one; an empty list if there is none."""
        return [
            Begun(row.batch_id, row.source_to)
            for row in ask(self.connection, "new_incarnations", "begun", incarnation=incarnation)
        ]

    @one_transaction
    def left(self, driver: Driver, instance: str, query: str, batch_id: int) -> LeftUnits:
        """Return the units that a begun batch has left behind, after fencing every older driver."""
        there = Units(self.connection).of_batch(driver.incarnation, batch_id)
        there += Authorities(self.connection).units_elsewhere(driver, batch_id)
        return self._left(driver.incarnation, instance, query, batch_id, there)

    @one_transaction
    def left_so_far(self, incarnation: str, instance: str, query: str, batch_id: int) -> LeftUnits:
        """Return the units that a begun batch has left behind so far, without a fence: an older driver may add more."""
        there = Units(self.connection).of_batch(incarnation, batch_id)
        there += Authorities(self.connection).look(incarnation, batch_id)
        return self._left(incarnation, instance, query, batch_id, there)

    @one_transaction
    def begins_at(self, instance: str, query: str, incarnation: str, asked: Start | None) -> Start | None:
        """Return where a new incarnation of a query would begin now, by what its last incarnation has committed; None
        for the beginning.
        """
        last = ask(self.connection, "new_incarnations", "last_offset", incarnation=incarnation)[0]
        # Once windows have changed, windows from before the change stay out of every later incarnation too.
        kept = {name: value for name, value in (last.start_from or {}).items() if name == FIRST_WINDOW}
        if last.source_to is None:
            return ({**last.start_from} if last.start_from else {}) | (asked or {}) or None
        version = read_upto(last.source_to)
        if query == "receive":
            return {  # receive continues where it stopped, whatever was `asked`
                START_VERSION: int(last.source_to[RESERVOIR_VERSION]),
                # It may still have skipped batches that an earlier incarnation had taken in.
                AFTER_BATCH_NO: max(
                    int(last.source_to[BATCH_NO]), int((last.start_from or {}).get(AFTER_BATCH_NO, -1))
                ),
            }
        # The batch from which the oldest window that is not final has records. An output of totals has no such window.
        opened = ask(self.connection, "new_incarnations", "oldest_open", instance=instance, output=query)
        start = 0 if last.totals else version + 1  # totals are of all records that ever arrived
        if opened:
            before = opened[0].source_from
            first = int((opened[0].start_from or {}).get(START_VERSION, 0))
            start = read_upto(before) + 1 if before else first
        closing = max(read_upto(last.source_from), int((last.start_from or {}).get(CLOSED_BY, -1)))
        # A stateless output has written each record's rows in the batch that read the record. If its new incarnation
        # reads older records, then for open windows or for a state that it did not have, and writes none of them again.
        rows_go_on = {ROWS_FROM: version + 1} if last.stateless else {}
        if asked and ROWS_FROM in asked:  # it waited for the close of windows, and gives rows as records come
            asked = asked | {ROWS_FROM: start}
        counted = max(version, int((last.start_from or {}).get(COUNTED_UPTO, -1)))
        return {START_VERSION: start, COUNTED_UPTO: counted, CLOSED_BY: closing} | rows_go_on | kept | (asked or {})

    @one_transaction
    def rows_again(self, instance: str, start: Start | None) -> int:
        """Return how many records of `events` an incarnation of an output reads that earlier incarnations have read, by
        the log.
        """
        begins = start or {}
        first, upto = int(begins.get(START_VERSION, 0)), int(begins.get(COUNTED_UPTO, -1))
        return int(
            ask(self.connection, "new_incarnations", "rows_again", instance=instance, first=first, upto=upto)[0].rows
        )

    @one_transaction
    def first(
        self, instance: str, query: str, begins: Callable[[Micros | None], Start], *, register: bool
    ) -> Start | None:
        """Return where the first incarnation of a query begins; None if the query has a live incarnation.

        `begins` gets the event time from which `events` has all records. `register`: make the incarnation.
        """
        if Incarnations(self.connection).live(instance, query):
            return None
        start = begins(Removals(self.connection).kept_from(instance))
        if register:
            Removals(self.connection).refuse_incarnation(instance, query, start)
            Incarnations(self.connection).register(instance, query, uuid4(), start)
        return start

    @one_transaction
    def begin(self, instance: str, query: str, driver: Driver, asked: Start | None) -> str:
        """Withdraw the begun batches of the old incarnation, close it, and register a new one. Return the new one.

        The caller has fenced every driver that could still write for the old incarnation. Raise Superseded, or Refused
        if records are removed with which the new incarnation would begin.
        """
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        for one in self.begun(driver.incarnation):
            self._withdraw(driver, instance, one.batch_id)
        start = self.begins_at(instance, query, driver.incarnation, asked)
        Removals(self.connection).refuse_incarnation(instance, query, start)
        Incarnations(self.connection).set_state(driver.incarnation, "closed")
        return Incarnations(self.connection).register(instance, query, uuid4(), start).incarnation

    def _left(self, incarnation: str, instance: str, query: str, batch_id: int, there: list[Unit]) -> LeftUnits:
        rows = ask(
            self.connection,
            "new_incarnations",
            "declared",
            incarnation=incarnation,
            batch_id=batch_id,
            instance=instance,
            query=query,
        )
        declared = dict(rows[0].parts.get("outputs", {})) if rows else {}
        return LeftUnits(incarnation, there, declared, Authorities(self.connection).identity())

    def _withdraw(self, driver: Driver, instance: str, batch_id: int) -> None:
        """Delete what a begun batch has in the log, in the transaction of the caller."""
        names = {"incarnation": driver.incarnation, "batch_id": batch_id}
        do(self.connection, "new_incarnations", "withdraw_chunks", instance=instance, **names)
        do(self.connection, "new_incarnations", "withdraw_files", **names)
        do(self.connection, "new_incarnations", "withdraw_units", **names)
        do(self.connection, "batches", "forget_begun", **names)
