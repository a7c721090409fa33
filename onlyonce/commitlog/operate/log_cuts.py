"""Old batches of outputs are cut from the log, and what they met of each window is added up.
docs/specification/log-retention.md.

What a batch came to is in the sums of its life before it goes (`retention`). A cut is some statements, each of a
bounded number of batches and a transaction of its own. Each decides by what it finds, so one that is killed has done
nothing, and the next cut goes on.

Who calls it: `onlyonce.operate.compact.log` cuts; `plan` and the reports ask. No errors of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction

AT_ONCE = 500
"""Batches for each transaction: short locks, on rows that nobody writes any more."""


@dataclass(frozen=True)
class Kept:
    """What the log was last cut to, and from when on it has all batches of outputs. None: it was never cut."""

    keep: timedelta | None
    since: datetime | None


@dataclass(frozen=True)
class Life:
    """A life of an output with old batches: the last one that may go, and how far the life that goes on has read
    `events` (None: it has read nothing)."""

    lineage: str
    query: str
    upto: int
    read_upto: int | None


@dataclass(frozen=True)
class First:
    """The batch at which a new life of an output would begin to read. Of sessions it is the first of all, and stays."""

    lineage: str
    batch_id: int


class LogCuts(Transactions):
    """What is cut off the log of a pipeline with `keep_log`."""

    @one_transaction
    def kept(self, instance: str) -> Kept:
        """What a pipeline's log has."""
        rows = ask(self.connection, "keep_log", "kept", instance=instance)
        return Kept(rows[0].keep_log, rows[0].log_kept_from) if rows else Kept(None, None)

    @one_transaction
    def limit(self, keep: timedelta) -> datetime:
        """The moment that is so long ago, by the database's clock."""
        time: datetime = ask(self.connection, "keep_log", "limit", keep=keep)[0].time
        return time

    @one_transaction
    def lives(self, instance: str, sessions: Collection[str], limit: datetime) -> list[Life]:
        """The lives of outputs with batches of before a moment.

        `sessions`: the outputs whose windows are never final by name.
        """
        rows = ask(self.connection, "keep_log", "lives", instance=instance, sessions=list(sessions), limit=limit)
        return [Life(*tuple(row)) for row in rows]

    @one_transaction
    def first_open(self, instance: str, output: str) -> First | None:
        """Where a new life of an output would begin to read; None where no window is open."""
        rows = ask(self.connection, "relive", "oldest_open", instance=instance, output=output)
        return First(rows[0].lineage, rows[0].batch_id) if rows else None

    @one_transaction
    def begin(self, instance: str, keep: timedelta, limit: datetime) -> None:
        """Note, before it is done, that batches of before a moment are cut."""
        do(self.connection, "keep_log", "begin", instance=instance, keep=keep, limit=limit)

    @one_transaction
    def cut(
        self, life: Life, limit: datetime, after: int, first: First | None, *, dry_run: bool
    ) -> tuple[int | None, int]:
        """Cut the next batches of a life after one, `AT_ONCE` at most; gives up to which batch it has looked (None:
        there is none left), and how many went, or with `dry_run` would."""
        kept_batch = first.batch_id if first and first.lineage == life.lineage else None
        [row] = ask(
            self.connection,
            "keep_log",
            "cut",
            lineage=life.lineage,
            upto=life.upto,
            read_upto=life.read_upto,
            limit=limit,
            after=after,
            first=kept_batch,
            at_once=AT_ONCE,
            dry_run=dry_run,
        )
        return row.upto, row.batches
