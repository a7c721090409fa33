"""The causes of alerts that are raised, and those that were told.

The log keeps them, so each is told once until it clears.

Who calls it: `onlyonce.operate.alerts`. Errors: none of its own.
"""

from __future__ import annotations

from typing import Any

from onlyonce.database.connect import ask, do, do_many
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.operate.alerting import Cause


class Alerts(Transactions):
    """Causes of alerts."""

    @one_transaction
    def keep(self, seen: list[Cause]) -> list[Cause]:
        """Raise what is new, clear what is not seen any more; gives what has cleared."""
        do_many(self.connection, "alerts", "raise", [vars(cause) for cause in seen])
        kinds, subjects = [cause.kind for cause in seen], [cause.subject for cause in seen]
        return [Cause(*tuple(row)) for row in ask(self.connection, "alerts", "clear", kinds=kinds, subjects=subjects)]

    @one_transaction
    def raised(self) -> list[dict[str, Any]]:
        """All that are raised."""
        return [dict(row._mapping) for row in ask(self.connection, "alerts", "raised")]

    @one_transaction
    def untold(self, after: tuple[str, str]) -> Cause | None:
        """The next that nobody was told of, held until the transaction ends."""
        rows = ask(self.connection, "alerts", "untold", kind=after[0], subject=after[1])
        return Cause(*tuple(rows[0])) if rows else None

    @one_transaction
    def told(self, cause: Cause) -> None:
        """The hook has taken it."""
        do(self.connection, "alerts", "told", kind=cause.kind, subject=cause.subject)
