"""Delivers whole units, to Kafka and the user's own sinks.

It asks the target whether it has the unit, notes the attempt, writes the unit, records it, and goes on with the next.

The order is strict, so a target need only remember the last unit of each partition. A unit that can't be written holds
all that come after it, with an error. Called by `onlyonce.sinks.outbox.deliver`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onlyonce.commitlog.sinks.outbox import Deliverer
from onlyonce.commitlog.sinks.outbox_units import OutboxUnits, Unit
from onlyonce.database.connect import Database
from onlyonce.failpoints import passing
from onlyonce.model.errors import OnlyonceError, Retryable
from onlyonce.model.sinks.delivery import Row, Unsent, told
from onlyonce.sinks.outbox.target import Target

PAGE = 10_000


@dataclass(frozen=True)
class UnitCourier:
    """One deliverer at work on one output."""

    database: Database
    deliverer: Deliverer
    target: Target

    def drain(self) -> None:
        """Write until no unit waits.

        Raises Superseded, what the target raises, or Retryable where it gave no answer.
        """
        while (unit := OutboxUnits(self.database).next_unit(self.deliverer)) is not None:
            self._deliver(unit)

    def _deliver(self, unit: Unit) -> None:
        passing("deliver-unit-before-begin")
        OutboxUnits(self.database).begin(self.deliverer, unit)
        passing("deliver-unit-after-begin")
        try:
            # After the begin, which has checked the epoch: a deliverer that was overtaken does not get here.
            there = self.target.committed(unit.name)
            if not there:
                self.target.write(unit.name, self._rows(unit))
        except Unsent as error:
            self._wait(unit, error.what, lost=False)
            raise
        except OnlyonceError as error:
            self._wait(unit, error.what, lost=isinstance(error, Retryable))
            raise
        except Exception as error:
            self._wait(unit, told(f"{type(error).__name__}: {error}"), lost=True)
            raise Retryable(
                f"the target of {self.deliverer.instance}/{self.deliverer.output} did not take unit {unit.name}: "
                f"{told(f'{type(error).__name__}: {error}')}",
                data="its rows wait in the outbox, and all after them; at the next attempt the target is asked "
                "for it first",
                hint="look at the cause, then: onlyonce deliver",
            ) from error
        passing("deliver-unit-after-write")
        OutboxUnits(self.database).record(self.deliverer, unit, "it was there" if there else "committed")
        passing("deliver-unit-after-record")

    def _wait(self, unit: Unit, answer: str, *, lost: bool) -> None:
        uncertain = lost and self.target.guarantee == "at_least_once"
        OutboxUnits(self.database).wait(self.deliverer, unit, answer, lost=lost, uncertain=uncertain)

    def _rows(self, unit: Unit) -> Iterator[Row]:
        """The rows in their order, page by page: a unit is never whole in memory here."""
        after = -1
        while found := OutboxUnits(self.database).rows(unit, after, PAGE):
            yield from found
            after = found[-1].seq
