"""Removals of old records from `events`: begun, counted, done; and who is refused what is gone.
docs/specification/removal.md.

A removal is noted before a file goes. From then on nothing begins that needs its records: a life, a backfill and a
release look at the note in the transaction in which they begin, and hold it until that ends. What had begun before
holds the removal. The counts by batch and fate are noted before the commit to Delta, so the log knows at any moment
what the table may have.

Who calls it: `onlyonce.operate.compact.retention` writes; a starting driver, `lineage new`, backfills, releases, the
audit and `plan` read. Errors: Refused and Retryable, as the functions say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa

from onlyonce.commitlog.lineages import Lineage, Lineages
from onlyonce.commitlog.outputs.rejections import Rejections
from onlyonce.database.arrays import do_rows
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.batch import to_micros, to_time
from onlyonce.model.errors import Retryable
from onlyonce.model.operate import retaining
from onlyonce.model.operate.retaining import Decision
from onlyonce.model.windows import Micros

Counts = Mapping[tuple[str, int, str], int]
"""Rows by life of receive, batch and fate."""


@dataclass(frozen=True)
class Removal:
    """A removal that has begun: all records from before an event time, of batches of `events` up to a version."""

    number: int
    before: Micros
    upto: int


class Removals(Transactions):
    """Removals of old records from `events`."""

    @one_transaction
    def kept_from(self, instance: str) -> Micros | None:
        """The event time from which `events` has all records; None: from the beginning."""
        rows = ask(self.connection, "removals", "kept_from", instance=instance)
        return to_micros(rows[0].kept_from) if rows else None

    @one_transaction
    def begun(self, instance: str) -> Removal | None:
        """The removal that an earlier attempt has left."""
        rows = ask(self.connection, "removals", "begun", instance=instance)
        return Removal(rows[0].number, to_micros(rows[0].before) or 0, rows[0].upto) if rows else None

    @one_transaction
    def begin(self, instance: str, keep: timedelta, decide: Callable[[], Decision]) -> Removal | None:
        """Decide and note what goes, alone; None where nothing more can go. The one that has begun, if there is one."""
        known = ask(self.connection, "removals", "lock_instance", instance=instance)
        left = self.begun(instance)
        if left or not known:
            return left
        decision = decide()
        if decision.before <= (to_micros(known[0].kept_from) or 0):
            return None
        before = to_time(decision.before)
        do(self.connection, "removals", "raise_kept_from", instance=instance, before=before)
        do(self.connection, "removals", "begin", instance=instance, keep_events=keep, before=before, upto=decision.upto)
        return self.begun(instance)

    @one_transaction
    def count(self, instance: str, removal: Removal, counts: Counts, files: int) -> None:
        """Note how many rows of which batches the removal takes, in place of what an earlier attempt has counted."""
        do(self.connection, "removals", "forget_counts", instance=instance, number=removal.number)
        rows = [
            {"lineage": lineage, "batch_id": number, "fate": fate, "rows": rows}
            for (lineage, number, fate), rows in sorted(counts.items())
        ]
        do_rows(
            self.connection,
            "removals",
            "add_counts",
            pa.Table.from_pylist(rows),
            instance=instance,
            number=removal.number,
        )
        do(self.connection, "removals", "note_files", instance=instance, number=removal.number, files=files)

    @one_transaction
    def end(self, instance: str, removal: Removal, version: int) -> None:
        """The rows are gone from the table, by the commit that made a version of it. What was rejected of them goes
        too."""
        Rejections(self.connection).forget_before(instance, removal.number)
        do(self.connection, "removals", "end", instance=instance, number=removal.number, version=version)

    @one_transaction
    def beyond_horizon(self, instance: str) -> int:
        """The last version of `events` whose ids are collected; -1 for none."""
        version = ask(self.connection, "removals", "beyond_horizon", instance=instance)[0].version
        return -1 if version is None else int(version)

    @one_transaction
    def under_way(self, instance: str) -> list[str]:
        """The backfills and releases that have begun."""
        return [row.what for row in ask(self.connection, "removals", "under_way", instance=instance)]

    @one_transaction
    def last_keep(self, instance: str) -> timedelta | None:
        """What keep_events was when records were last removed."""
        rows = ask(self.connection, "removals", "last_keep", instance=instance)
        found: timedelta | None = rows[0].keep_events if rows else None
        return found

    @one_transaction
    def erased(self, instance: str) -> bool:
        """Whether records of it were forgotten at somebody's request."""
        return bool(ask(self.connection, "removals", "erased", instance=instance)[0].found)

    @one_transaction
    def removed_of(self, lineage: str, batch_id: int, fate: str) -> int:
        """How many rows of a batch and fate are removed."""
        return int(ask(self.connection, "removals", "of_batch", lineage=lineage, batch_id=batch_id, fate=fate)[0].rows)

    @one_transaction
    def counts(self, instance: str) -> dict[tuple[str, int, str], tuple[int, int]]:
        """(rows that are removed, rows that are about to be and may be there) by life of receive, batch and fate."""
        rows = ask(self.connection, "removals", "counts", instance=instance)
        return {(row.lineage, row.batch, row.fate): (row.removed, row.about_to_be) for row in rows}

    def _held(self, instance: str) -> Micros | None:
        """The event time from which there is all, which does not move until this transaction has ended."""
        rows = ask(self.connection, "removals", "held_kept_from", instance=instance)
        return to_micros(rows[0].kept_from) if rows else None

    @one_transaction
    def register(self, instance: str, query: str) -> Lineage:
        """The live lineage of a query, made if there is none. Raises Refused where it would begin at records that are
        gone."""
        kept = self._held(instance)
        if kept is not None and Lineages(self.connection).live(instance, query) is None:
            retaining.refuse_start(instance, query, kept, None)
        return Lineages(self.connection).register(instance, query, uuid4())

    @one_transaction
    def refuse_life(self, instance: str, query: str, start: dict[str, Any] | None) -> None:
        """The same for a new life, which may begin later, or with what is kept."""
        retaining.refuse_start(instance, query, self._held(instance), start)

    @one_transaction
    def refuse_span(self, instance: str, output: str, start: Micros, reach_back: Micros) -> None:
        """Raise Refused for windows whose records are gone. In the transaction that begins their backfill."""
        kept = self._held(instance)
        retaining.refuse_span(output, start, None if kept is None else kept + reach_back)

    @one_transaction
    def refuse_changed(self, instance: str, version: int) -> None:
        """Raise Retryable where rows went after a version of `events` was looked at.

        In the transaction that begins a release of them.
        """
        self._held(instance)
        if ask(self.connection, "removals", "came_between", instance=instance, version=version)[0].found:
            raise Retryable(
                f"old records of {instance} were removed from `events` meanwhile (keep_events)",
                data="nothing of this release was begun",
                hint="run the same command again: it releases what is left",
            )

    @one_transaction
    def forget(self, instances: list[str]) -> None:
        """All of dropped instances."""
        do(self.connection, "removals", "forget", instances=instances)
