"""The outbox in whole units, for targets that take a unit at once: Kafka, BigQuery's streams, and the user's own sinks.

Called by `onlyonce.sinks.outbox.units`.

Locks and epochs are those of `outbox`. All rows of a unit have one state, since they are begun and recorded together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.sinks.outbox import BYTES_AT_ONCE, Deliverer
from onlyonce.database.connect import Database, ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.errors import Refused
from onlyonce.model.sinks.delivery import Row


@dataclass(frozen=True)
class Unit:
    """A unit that waits. `life`: the lineage's own id."""

    unit: str
    life: str

    @property
    def name(self) -> str:
        """Under which a target knows it: no other unit has it, on this platform or another."""
        return f"{self.unit}@{self.life}"


class OutboxUnits(Transactions):
    """Units that wait to be written outside."""

    @one_transaction
    def next_unit(self, deliverer: Deliverer) -> Unit | None:
        """The first unit of an output that is to be written. Of one partition units come in the order of their
        batches."""
        place = {"instance": deliverer.instance, "output": deliverer.output}
        found = ask(self.connection, "outbox_units", "next_unit", **place)
        return Unit(found[0].unit, found[0].life) if found else None

    def begin(self, deliverer: Deliverer, unit: Unit) -> None:
        """Write down an attempt before it is made. Raises Superseded."""
        self._change(deliverer, "begin", unit)

    def record(self, deliverer: Deliverer, unit: Unit, answer: str) -> None:
        """The target has it. Raises Superseded."""
        self._change(deliverer, "record", unit, answer=answer)

    def wait(self, deliverer: Deliverer, unit: Unit, answer: str, *, lost: bool, uncertain: bool) -> None:
        """The attempt failed. `lost`: nobody knows whether the target has it; `uncertain`: nor will. Raises
        Superseded."""
        self._change(deliverer, "wait", unit, answer=answer, lost=lost, uncertain=uncertain)

    @one_transaction
    def rows(self, unit: Unit, after: int, most: int) -> list[Row]:
        """The next rows of a unit, in order: `most`, or BYTES_AT_ONCE of payload."""
        place = {"unit": unit.unit, "after": after, "most": most, "bytes": BYTES_AT_ONCE}
        return [Row(*tuple(row)) for row in ask(self.connection, "outbox_units", "rows", **place)]

    @one_transaction
    def take_over(self, deliverer: Deliverer) -> Deliverer:
        """Become the deliverer of an output."""
        return replace(deliverer, epoch=ask(self.connection, "lineages", "bump", lineage=deliverer.name)[0].epoch)

    @one_transaction
    def recover(self, deliverer: Deliverer, *, uncertain: bool) -> int:
        """Attempts that an ended deliverer has left wait again; gives their rows. Raises Superseded."""
        Lineages(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        place = {"instance": deliverer.instance, "output": deliverer.output}
        return do(self.connection, "outbox_units", "recover", uncertain=uncertain, **place)

    @one_transaction
    def stream(self, unit: str) -> str | None:
        """The stream that a unit was sent to. Raises Refused for a unit of which other requests have sent a part."""
        found = ask(self.connection, "outbox_units", "stream", unit=unit.rpartition("@")[0])[0]
        if found.mixed:
            raise Refused(
                f"unit {unit}: a part of its rows was sent in another way, before the sink was declared as it is now",
                data="nothing of it was sent now; what is in the table stays",
                hint="declare the sink as it was until onlyonce.outbox has nothing that waits, then declare it anew",
            )
        stream: str | None = found.stream
        return stream

    @one_transaction
    def note_stream(self, deliverer: Deliverer, unit: str, stream: str) -> None:
        """Keep where a unit goes, before its first row is sent there. Raises Superseded."""
        Lineages(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        do(self.connection, "outbox_units", "note_stream", unit=unit.rpartition("@")[0], stream=stream)

    @one_transaction
    def _change(self, deliverer: Deliverer, query: str, unit: Unit, /, **values: object) -> None:
        Lineages(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        do(self.connection, "outbox_units", query, unit=unit.unit, **values)


@dataclass(frozen=True)
class Streams:
    """The write streams of an output's units, as the outbox has them.

    `unit` is the name under which a target knows it.
    """

    database: Database
    deliverer: Deliverer

    def find(self, unit: str) -> str | None:
        """The stream that a unit was sent to. Raises Refused for a unit of which other requests have sent a part."""
        return OutboxUnits(self.database).stream(unit)

    def note(self, unit: str, stream: str) -> None:
        """Keep where a unit goes, before its first row is sent there. Raises Superseded."""
        OutboxUnits(self.database).note_stream(self.deliverer, unit, stream)
