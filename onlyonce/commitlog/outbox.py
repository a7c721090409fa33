"""The outbox: rows that wait to be sent outside, and the state of their delivery.

Called by `onlyonce.sinks.outbox.deliver`.

A deliverer holds the lock of its output while it works, so a second one gives up. It also has an epoch, so a deliverer
that has lost its lock stops at its next statement. Each attempt is noted before it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from onlyonce.commitlog.lineages import Lineages
from onlyonce.core import stored_names
from onlyonce.core.delivery import Answer, Row, next_state
from onlyonce.core.errors import Refused
from onlyonce.database import locks
from onlyonce.database.connect import Database, Session, Transactions, ask, do, one_transaction

BYTES_AT_ONCE = 32 << 20
"""How much payload a deliverer reads at once: rows may be of any size, so their number bounds nothing."""


@dataclass(frozen=True)
class Deliverer:
    """One process that sends the rows of one output; `epoch` counts them."""

    instance: str
    output: str
    epoch: int = 0

    @property
    def name(self) -> str:
        """Under which its epoch and its lag are in the log."""
        return f"{self.instance}/{self.output}/deliver"


@dataclass(frozen=True)
class Policy:
    """What the log must know of the declaration: how often, and how long the target remembers a key."""

    attempts: int
    remembers: timedelta


@contextmanager
def alone(database: Database, deliverer: Deliverer) -> Iterator[bool]:
    """Yield whether this deliverer has the lock of its output. No other deliverer gets it before the block ends."""
    session = Session(Database(database.url, f"onlyonce/{deliverer.name}"))
    try:
        yield session.ask(lambda connection: locks.hold(connection, stored_names.deliverer_lock(deliverer.name)))
    finally:
        session.close()


class OutboxRows(Transactions):
    """Rows that wait to be sent outside."""

    @one_transaction
    def take_over(self, instance: str, output: str, policy: Policy) -> tuple[Deliverer, int]:
        """Become the deliverer of an output; gives it, and the number of attempts without an answer that it found."""
        epoch = ask(self.connection, "lineages", "bump", lineage=Deliverer(instance, output).name)[0].epoch
        lost = do(
            self.connection, "outbox", "recover",
            instance=instance, output=output, most=policy.attempts, remembers=policy.remembers.total_seconds(),
        )  # fmt: skip
        return Deliverer(instance, output, epoch), lost

    @one_transaction
    def next_rows(self, deliverer: Deliverer, after: int, most: int, *, ordered: bool) -> list[tuple[Row, bool]]:
        """The next waiting rows after a place, `most` or BYTES_AT_ONCE of payload, and whether each may be sent now.

        One that may not has no payload here.
        """
        found = ask(
            self.connection, "outbox", "next_rows",
            instance=deliverer.instance, output=deliverer.output, after=after, most=most, bytes=BYTES_AT_ONCE,
            ordered=ordered,
        )  # fmt: skip
        return [(Row(*tuple(row)[:-1]), row.may) for row in found]

    @one_transaction
    def begin(self, deliverer: Deliverer, rows: Sequence[Row]) -> set[int]:
        """Write down one more attempt at each row; gives those that it found as it knew them. Raises Superseded."""
        Lineages(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        columns = {"row_nos": [row.row_no for row in rows], "attempts": [row.attempts for row in rows]}
        return {row.row_no for row in ask(self.connection, "outbox", "begin", **columns)}

    @one_transaction
    def record(self, deliverer: Deliverer, policy: Policy, answers: Sequence[tuple[Row, Answer, float]]) -> None:
        """Write down what came back for the rows of `begin`, each with the pause before a next attempt.

        Raises Superseded.
        """
        columns: dict[str, list[Any]] = {
            "row_nos": [row.row_no for row, _, _ in answers],
            "attempts": [row.attempts + 1 for row, _, _ in answers],
            "states": [next_state(answer, row.attempts + 1, policy.attempts) for row, answer, _ in answers],
            "answers": [answer.text for _, answer, _ in answers],
            "held": [bool(answer.held) for _, answer, _ in answers],
            "lost": [answer.verdict == "unknown" for _, answer, _ in answers],
            "may_be_there": [answer.may_be_there for _, answer, _ in answers],
            "pauses": [pause for _, _, pause in answers],
        }
        Lineages(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        do(self.connection, "outbox", "record", remembers=policy.remembers.total_seconds(), **columns)

    @one_transaction
    def next_due(self, deliverer: Deliverer) -> float | None:
        """In how many seconds the next attempt is due of those that wait for their time."""
        place = {"instance": deliverer.instance, "output": deliverer.output}
        found = ask(self.connection, "outbox", "next_due", **place)[0].seconds
        return None if found is None else float(found)

    @one_transaction
    def retry_dead(self, instance: str, outputs: Sequence[str]) -> int:
        """Let dead letters and rejected rows wait again; gives their number."""
        return do(self.connection, "outbox", "retry_dead", instance=instance, outputs=list(outputs))

    @one_transaction
    def waits(self, instance: str, output: str) -> bool:
        """Whether an output has rows that are to be sent."""
        return bool(ask(self.connection, "outbox", "waits", instance=instance, output=output)[0].waits)

    @one_transaction
    def rows_about(self, query: str, instance: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a named question about an instance's outbox, for the report."""
        return [dict(row._mapping) for row in ask(self.connection, "outbox", query, instance=instance, **parameters)]

    @one_transaction
    def origin(self, lineage: str) -> Origin:
        """What the rows of a lineage are put with, by the log."""
        return Origin(*tuple(ask(self.connection, "outbox", "origin", lineage=lineage)[0]))

    @one_transaction
    def let_wait(self, instance: str, lineage: str, batch_id: int) -> None:
        """Have the rows of a backfill sent. Called in the transaction that ends it; a second time finds none."""
        do(self.connection, "outbox", "let_wait", instance=instance, lineage=lineage, batch_id=str(batch_id))

    @one_transaction
    def throw_away(self, instance: str, lineage: str) -> None:
        """Remove what killed attempts at a backfill have left.

        Called in the transaction that begins the next one, whose epoch has fenced them: none of them can add a row
        after this."""
        do(self.connection, "outbox", "throw_away", instance=instance, lineage=lineage)


@dataclass(frozen=True)
class Origin:
    """What every row of a lineage is put with.

    life    the id of the lineage that no other lineage has, on this platform or another
    state   'waiting'; of a backfill 'held': no deliverer sees it until the backfill has ended
    """

    life: str
    state: str


# The outbox in whole units, for targets that take a unit at once: Kafka, BigQuery's streams, and the user's own sinks.
#
# Called by `onlyonce.sinks.outbox.deliver`.
#
# Locks and epochs are those of `outbox`. All rows of a unit have one state, since they are begun and recorded together.


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
