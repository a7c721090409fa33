"""The outbox: rows that wait to be sent outside, and the state of their delivery.

Called by `onlyonce.sinks.outbox.deliver`.

A deliverer holds the lock of its output while it works, so a second one gives up. It also has an epoch, so a deliverer
that has lost its lock stops at its next statement. Each attempt is noted before it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from onlyonce.commitlog.lineages import Lineages
from onlyonce.database import locks
from onlyonce.database.connect import Database, Session, ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model import stored_names
from onlyonce.model.sinks.delivery import Answer, Row, next_state

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
