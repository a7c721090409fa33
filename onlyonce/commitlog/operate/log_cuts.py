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

from sqlalchemy import Connection

from onlyonce.database.connect import ask, do

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


def kept(connection: Connection, instance: str) -> Kept:
    """What a pipeline's log has."""
    rows = ask(connection, "keep_log", "kept", instance=instance)
    return Kept(rows[0].keep_log, rows[0].log_kept_from) if rows else Kept(None, None)


def limit(connection: Connection, keep: timedelta) -> datetime:
    """The moment that is so long ago, by the database's clock."""
    time: datetime = ask(connection, "keep_log", "limit", keep=keep)[0].time
    return time


def lives(connection: Connection, instance: str, sessions: Collection[str], limit: datetime) -> list[Life]:
    """The lives of outputs with batches of before a moment.

    `sessions`: the outputs whose windows are never final by name.
    """
    rows = ask(connection, "keep_log", "lives", instance=instance, sessions=list(sessions), limit=limit)
    return [Life(*tuple(row)) for row in rows]


def first_open(connection: Connection, instance: str, output: str) -> First | None:
    """Where a new life of an output would begin to read; None where no window is open."""
    rows = ask(connection, "relive", "oldest_open", instance=instance, output=output)
    return First(rows[0].lineage, rows[0].batch_id) if rows else None


def begin(connection: Connection, instance: str, keep: timedelta, limit: datetime) -> None:
    """Note, before it is done, that batches of before a moment are cut."""
    do(connection, "keep_log", "begin", instance=instance, keep=keep, limit=limit)


def cut(
    connection: Connection, life: Life, limit: datetime, after: int, first: First | None, *, dry_run: bool
) -> tuple[int | None, int]:
    """Cut the next batches of a life after one, `AT_ONCE` at most; gives up to which batch it has looked (None: there
    is none left), and how many went, or with `dry_run` would."""
    kept_batch = first.batch_id if first and first.lineage == life.lineage else None
    [row] = ask(
        connection,
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
