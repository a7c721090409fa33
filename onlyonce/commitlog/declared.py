"""The declarations that each query has run under, as the parts of their identity, kept once for each hash.

Who calls it: a starting driver (`onlyonce.context.run_context`, docs/specification/incarnation.md) and
`onlyonce.operate.change.plan`. `onlyonce/model/operate/plan.py` decides what a difference means. Not promised: that a
query can be compared which ran before the log kept this.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onlyonce.commitlog.lineages import Lineage
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.operate import plan


@dataclass(frozen=True)
class Declared:
    """What a query is declared as now."""

    instance: str
    query: str
    hash: str
    parts: dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """A query that has run: its live lineage, and under what. `parts` is None when that was not kept."""

    query: str
    lineage: str
    hash: str
    parts: dict[str, Any] | None
    stateless: bool


@dataclass(frozen=True)
class Made:
    """The windows of an output that readers see and one declaration has made. `parts` is None when it was not kept."""

    hash: str
    parts: dict[str, Any] | None
    first: datetime
    last: datetime
    upto: datetime


class Declarations(Transactions):
    """Under which declarations queries have run."""

    @one_transaction
    def go_on(self, lineage: Lineage, now: Declared) -> None:
        """Keep the declaration of a driver that starts. Raises Refused when its lineage can't go on under it."""
        self.check(lineage, now)
        self.keep(now)

    @one_transaction
    def check(self, lineage: Lineage, now: Declared) -> None:
        """Raise Refused when a lineage can't go on under a declaration. A run asks for all its queries before it reads.

        A bounded run has no state from one batch to the next, so any declaration can finish it.
        """
        last = ask(self.connection, "plan", "ran_under", lineage=lineage.lineage)
        if "@" not in now.instance and last and last[0].parts and last[0].declaration_hash != now.hash:
            found = plan.changes(now.query, last[0].parts, now.parts, stateless=last[0].stateless)
            plan.check_goes_on(now.query, lineage.lineage, found)

    @one_transaction
    def keep(self, now: Declared) -> None:
        """Keep a declaration, once for each hash. A backfill does it too: it makes windows under it."""
        do(
            self.connection, "plan", "keep",
            instance=now.instance, query=now.query, hash=now.hash, parts=json.dumps(now.parts),
        )  # fmt: skip

    @one_transaction
    def all_that_ran(self, instance: str) -> list[Ran]:
        """The queries of an instance with a committed or begun batch in their live lineage, receive first."""
        found = []
        for row in ask(self.connection, "plan", "queries", instance=instance):
            for last in ask(self.connection, "plan", "ran_under", lineage=row.lineage):
                found.append(
                    Ran(row.query, row.lineage, last.declaration_hash, _parts(row.query, last), last.stateless)
                )
        return found

    @one_transaction
    def lives(self, instance: str) -> dict[str, dict[str, Any]]:
        """The queries of an instance that have a live lineage, run or not, each with what that life begins with."""
        return {row.query: row.start_from or {} for row in ask(self.connection, "plan", "queries", instance=instance)}

    @one_transaction
    def made(self, instance: str, output: str, query: str) -> list[Made]:
        """The final windows of an output by the declaration that made them; `query` is the output that reads
        `events`."""
        rows = ask(self.connection, "plan", "made_under", instance=instance, output=output, query=query)
        return [Made(*tuple(row)) for row in rows]

    @one_transaction
    def last_final(self, instance: str, output: str) -> tuple[datetime | None, datetime | None]:
        """(start of the newest window that has closed, end of the last one with rows) of an output; None before the
        first."""
        row = ask(self.connection, "plan", "last_final", instance=instance, output=output)[0]
        return row.last_start, row.last_end


def _parts(query: str, last: Any) -> dict[str, Any] | None:
    # The mode is no part of the identity, since a batch ends in the mode in which it began: its row has it.
    parts: dict[str, Any] | None = last.parts
    return parts | {"mode": last.mode} if query == "receive" and parts else parts
