"""The outbox: rows and units that wait to be sent outside, and the state of their delivery.

A deliverer holds the lock of its output while it works, so a second one gives up. It also has an epoch, so a deliverer
that has lost its lock stops at its next statement. Each attempt is noted before it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core import stored_names
from onlyonce.core.delivery import Answer, Row, next_state
from onlyonce.core.errors import Refused
from onlyonce.database import locks
from onlyonce.database.connect import Database, Session, Transactions, ask, do, one_transaction

BYTES_AT_ONCE = 32 << 20
"""How much payload a deliverer reads at once. Rows may be of any size, so a number of rows is not a bound."""


@dataclass(frozen=True)
class Deliverer:
    """A process that sends the rows of one output. `epoch` numbers these processes."""

    instance: str
    output: str
    epoch: int = 0

    @property
    def name(self) -> str:
        """The name of the deliverer's epoch and lag in the log."""
        return f"{self.instance}/{self.output}/deliver"


@dataclass(frozen=True)
class Policy:
    """The delivery options of a sink: the number of attempts, and how long the target remembers a key."""

    attempts: int
    remembers: timedelta


@contextmanager
def alone(database: Database, deliverer: Deliverer) -> Iterator[bool]:
    """Yield whether this deliverer has the lock of its output. No other deliverer gets it before the block ends."""
    session = Session(Database(database.url, f"onlyonce/{deliverer.name}"))
    lock = stored_names.deliverer_lock(deliverer.name)
    try:
        yield session.ask(lambda connection: locks.hold(connection, lock))
    finally:
        locks.give_up(session, lock)


class OutboxRows(Transactions):
    """Rows that wait to be sent outside."""

    @one_transaction
    def take_over(self, instance: str, output: str, policy: Policy) -> tuple[Deliverer, int]:
        """Become the deliverer of an output; return it, and the number of attempts that were left without an answer.

        Raise Refused if a write stream of BigQuery may have rows that wait.
        """
        epoch = ask(self.connection, "incarnations", "bump", incarnation=Deliverer(instance, output).name)[0].epoch
        # After the epoch, so that no older deliverer notes one more; before `recover`, which would make dead letters.
        for name in _noted(self.connection, instance, output):
            if _is_stream(name):
                raise Refused(
                    f"{instance}/{output}: rows that wait may be in its table already, by the write stream {name}",
                    data="nothing was sent now; what is in the table stays, and the rows wait in the outbox",
                    hint="declare the sink as it was until onlyonce.outbox has nothing that waits; then change it",
                )
        lost = do(
            self.connection, "outbox", "recover",
            instance=instance, output=output, most=policy.attempts, remembers=policy.remembers.total_seconds(),
        )  # fmt: skip
        return Deliverer(instance, output, epoch), lost

    @one_transaction
    def next_rows(self, deliverer: Deliverer, after: int, most: int, *, ordered: bool) -> list[tuple[Row, bool]]:
        """Return the next waiting rows after a position, and whether each may be sent now.

        Return at most `most` rows and BYTES_AT_ONCE of payload. A row that may not be sent has no payload here.
        """
        found = ask(
            self.connection, "outbox", "next_rows",
            instance=deliverer.instance, output=deliverer.output, after=after, most=most, bytes=BYTES_AT_ONCE,
            ordered=ordered,
        )  # fmt: skip
        return [(Row(*tuple(row)[:-1]), row.may) for row in found]

    @one_transaction
    def begin(self, deliverer: Deliverer, rows: Sequence[Row]) -> set[int]:
        """Note one more attempt at each row. Return the rows that are still as the deliverer read them. Raise
        Superseded.
        """
        Incarnations(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        columns = {"row_nos": [row.row_no for row in rows], "attempts": [row.attempts for row in rows]}
        return {row.row_no for row in ask(self.connection, "outbox", "begin", **columns)}

    @one_transaction
    def record(self, deliverer: Deliverer, policy: Policy, answers: Sequence[tuple[Row, Answer, float]]) -> None:
        """Note the answers for the rows of `begin`, each with the pause before a next attempt.

        Raise Superseded.
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
        Incarnations(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        do(self.connection, "outbox", "record", remembers=policy.remembers.total_seconds(), **columns)

    @one_transaction
    def next_due(self, deliverer: Deliverer, *, ordered: bool) -> float | None:
        """Return in how many seconds the next attempt of a waiting row is due, or None.

        `ordered`: rows of one key are sent in order.
        """
        place = {"instance": deliverer.instance, "output": deliverer.output}
        found = ask(self.connection, "outbox", "next_due", ordered=ordered, **place)[0].seconds
        return None if found is None else float(found)

    @one_transaction
    def retry_dead(self, instance: str, outputs: Sequence[str]) -> int:
        """Let dead letters and rejected rows wait again, and return their number."""
        return do(self.connection, "outbox", "retry_dead", instance=instance, outputs=list(outputs))

    @one_transaction
    def waits(self, instance: str, output: str) -> bool:
        """Return whether an output has rows to send."""
        return bool(ask(self.connection, "outbox", "waits", instance=instance, output=output)[0].waits)

    @one_transaction
    def rows_about(self, query: str, instance: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a named query about an instance's outbox, for the report."""
        return [dict(row._mapping) for row in ask(self.connection, "outbox", query, instance=instance, **parameters)]

    @one_transaction
    def origin(self, incarnation: str) -> Origin:
        """Return the columns with which an incarnation's rows enter the outbox."""
        return Origin(*tuple(ask(self.connection, "outbox", "origin", incarnation=incarnation)[0]))

    @one_transaction
    def let_wait(self, instance: str, incarnation: str, batch_id: int) -> None:
        """Let the rows of a backfill be sent, in the transaction that ends it.

        If the transaction is repeated, there are no more rows to change.
        """
        do(self.connection, "outbox", "let_wait", instance=instance, incarnation=incarnation, batch_id=str(batch_id))

    @one_transaction
    def throw_away(self, instance: str, incarnation: str) -> None:
        """Remove the rows that killed attempts at a backfill have left behind.

        This runs in the transaction that begins the next attempt. Its epoch has fenced the earlier ones, so they can't
        add rows afterwards.
        """
        do(self.connection, "outbox", "throw_away", instance=instance, incarnation=incarnation)


def _noted(connection: Connection, instance: str, output: str) -> list[str]:
    """Return the write streams, and the topics of units' names, that units which still wait may be in."""
    return [row.stream for row in ask(connection, "outbox", "noted", instance=instance, output=output)]


def _is_stream(name: str) -> bool:
    """Return whether a noted name is that of a write stream. The name of a topic has no slash."""
    return "/streams/" in name


@dataclass(frozen=True)
class Origin:
    """The columns that every row of an incarnation has in the outbox.

    checkpoint_id  the id of the incarnation, which no other incarnation has, on this platform or another
    state   'waiting'; for a backfill 'held': no deliverer sees it until the backfill has ended
    """

    checkpoint_id: str
    state: str


# Whole units of the outbox, for targets that accept a unit at once: Kafka, BigQuery's streams, the user's own sinks.
#
# Locks and epochs work as for rows. All rows of a unit have one state, since they are begun and recorded together.


@dataclass(frozen=True)
class Unit:
    """A unit that waits. `checkpoint_id`: the incarnation's own id."""

    unit: str
    checkpoint_id: str

    @property
    def name(self) -> str:
        """The name under which a target knows the unit. No other unit has it, on this platform or another."""
        return f"{self.unit}@{self.checkpoint_id}"


class OutboxUnits(Transactions):
    """Units that wait to be written outside."""

    @one_transaction
    def next_unit(self, deliverer: Deliverer) -> Unit | None:
        """Return the first unit of an output to write, or None. Units of one partition follow the order of their
        batches.
        """
        place = {"instance": deliverer.instance, "output": deliverer.output}
        found = ask(self.connection, "outbox_units", "next_unit", **place)
        return Unit(found[0].unit, found[0].checkpoint_id) if found else None

    def begin(self, deliverer: Deliverer, unit: Unit, units_topic: str | None) -> None:
        """Note an attempt before it is made. Raise Superseded.

        `units_topic`: the topic that gets the unit's name, if Kafka takes the unit.
        """
        self._change(deliverer, "begin", unit, units_topic=units_topic)

    def record(self, deliverer: Deliverer, unit: Unit, answer: str) -> None:
        """Note that the target has the unit. Raise Superseded."""
        self._change(deliverer, "record", unit, answer=answer)

    def wait(self, deliverer: Deliverer, unit: Unit, answer: str, *, lost: bool, uncertain: bool) -> None:
        """Note that the attempt failed. Raise Superseded.

        `lost`: it is unknown whether the target has the unit. `uncertain`: the target can't answer that later either.
        """
        self._change(deliverer, "wait", unit, answer=answer, lost=lost, uncertain=uncertain)

    @one_transaction
    def rows(self, unit: Unit, after: int, most: int) -> list[Row]:
        """Return the next rows of a unit, in order: at most `most` rows, and BYTES_AT_ONCE of payload."""
        place = {"unit": unit.unit, "after": after, "most": most, "bytes": BYTES_AT_ONCE}
        return [Row(*tuple(row)) for row in ask(self.connection, "outbox_units", "rows", **place)]

    @one_transaction
    def take_over(self, deliverer: Deliverer, units_topic: str | None) -> Deliverer:
        """Become the deliverer of an output, and return it with its new epoch.

        Raise Refused if another topic than `units_topic` may have the name of a unit that waits.
        """
        epoch = ask(self.connection, "incarnations", "bump", incarnation=deliverer.name)[0].epoch
        for name in _noted(self.connection, deliverer.instance, deliverer.output) if units_topic else ():
            if not _is_stream(name) and name != units_topic:
                raise Refused(
                    f"{deliverer.instance}/{deliverer.output}: a unit that waits may be in Kafka already. Its name "
                    f"would be in topic {name}, and the sink names {units_topic}",
                    data="nothing was sent now; the rows wait in the outbox",
                    hint=f'KafkaSink(units_topic="{name}") until onlyonce.outbox has nothing that waits',
                )
        return replace(deliverer, epoch=epoch)

    @one_transaction
    def recover(self, deliverer: Deliverer, *, uncertain: bool) -> int:
        """Let attempts of an ended deliverer wait again, and return the number of their rows. Raise Superseded."""
        Incarnations(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        place = {"instance": deliverer.instance, "output": deliverer.output}
        return do(self.connection, "outbox_units", "recover", uncertain=uncertain, **place)

    @one_transaction
    def stream(self, unit: str) -> str | None:
        """Return the stream that a unit was sent to. Raise Refused if some of its rows were sent by other requests."""
        found = ask(self.connection, "outbox_units", "stream", unit=unit.rpartition("@")[0])[0]
        if found.mixed:
            raise Refused(
                f"unit {unit}: a part of its rows was sent in another way, before the sink was declared as it is now",
                data="nothing of it was sent now; what is in the table stays",
                hint="declare the sink as it was until onlyonce.outbox has nothing that waits, then declare it again",
            )
        stream: str | None = found.stream
        return stream

    @one_transaction
    def note_stream(self, deliverer: Deliverer, unit: str, stream: str) -> None:
        """Note the stream of a unit before its first row is sent there. Raise Superseded."""
        Incarnations(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        do(self.connection, "outbox_units", "note_stream", unit=unit.rpartition("@")[0], stream=stream)

    @one_transaction
    def _change(self, deliverer: Deliverer, query: str, unit: Unit, /, **values: object) -> None:
        Incarnations(self.connection).check_epoch(deliverer.name, deliverer.epoch)
        do(self.connection, "outbox_units", query, unit=unit.unit, **values)


@dataclass(frozen=True)
class Streams:
    """The write streams of an output's units, as stored in the outbox.

    `unit` is the name under which a target knows it.
    """

    database: Database
    deliverer: Deliverer

    def find(self, unit: str) -> str | None:
        """Return the stream that a unit was sent to. Raise Refused if some of its rows were sent by other requests."""
        return OutboxUnits(self.database).stream(unit)

    def note(self, unit: str, stream: str) -> None:
        """Note the stream of a unit before its first row is sent there. Raise Superseded."""
        OutboxUnits(self.database).note_stream(self.deliverer, unit, stream)
