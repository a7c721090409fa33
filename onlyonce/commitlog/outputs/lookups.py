"""Which versions of its lookups a batch or a window of an output has seen.

Who calls it: `onlyonce.outputs`, and `onlyonce.lookups.collecting`, which removes copies that nobody can ask for. No
errors of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onlyonce.database.connect import ask
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.outputs.backfill import Span

Versions = dict[str, dict[str, Any]]
"""By the lookup's name what a batch row says of its table (`onlyonce.lookups.seen`)."""


@dataclass(frozen=True)
class Fixed:
    """What a batch has fixed of its output's lookups, and under which declaration."""

    batch_id: int
    state: str
    declaration_hash: str
    lookups: Versions


class SeenLookups(Transactions):
    """The versions of lookups that batches and windows have seen."""

    @one_transaction
    def near(self, lineage: str, batch_id: int) -> dict[int, Fixed]:
        """A batch of an output and the one before it, by their numbers, where they are in the log."""
        rows = ask(self.connection, "lookups", "near", lineage=lineage, batch_id=batch_id)
        return {row.batch_id: Fixed(**row._mapping) for row in rows}

    @one_transaction
    def others(self, lineage: str, batch_id: int) -> int | None:
        """The last batch before one that saw other versions."""
        rows = ask(self.connection, "lookups", "others", lineage=lineage, batch_id=batch_id)
        return rows[0].batch_id if rows else None

    @one_transaction
    def of_windows(self, instance: str, output: str, span: Span) -> list[tuple[datetime, Versions]]:
        """What the windows that start in a span saw when they were last written, each by its start."""
        start, stop = span.times
        rows = ask(
            self.connection, "lookups", "of_windows",
            instance=instance, output=output, window_from=start, window_to=stop,
        )  # fmt: skip
        return [(row.window_start, row.lookups) for row in rows]

    @one_transaction
    def asked_for(self) -> set[tuple[int, str]]:
        """(version, id of the table) of what may be read again."""
        return {(int(row.version), row.table_id) for row in ask(self.connection, "lookups", "asked_for")}
