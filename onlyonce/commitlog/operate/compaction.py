"""What the log knows of the versions of `events`: which of them are compacted, and which somebody may still ask for.
docs/specification/compaction.md.

Who calls it: receive's and the outputs' readers, `onlyonce.operate.compact.compaction`. No errors of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onlyonce.commitlog.new_lives import NewLives
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.batch import first_reading, read_upto
from onlyonce.model.operate import compacting
from onlyonce.model.operate.compacting import Reader


@dataclass(frozen=True)
class Life:
    """A life of a query that may go on, with what its last committed batch has read; None before that."""

    lineage: str
    query: str
    life: int
    start_from: dict[str, Any] | None
    batch_id: int | None
    source_from: dict[str, Any] | None
    source_to: dict[str, Any] | None


class Compactions(Transactions):
    """Which versions of `events` are compacted, and which are still asked for."""

    @one_transaction
    def compacted(self, instance: str) -> int:
        """The version of `events` up to which commits may be compacted: their files are others, and the table's log has
        them no more; -1 for none."""
        rows = ask(self.connection, "compaction", "compacted", instance=instance)
        return rows[0].upto if rows else -1

    @one_transaction
    def raise_to(self, instance: str, version: int) -> None:
        """Note, before it is done, that commits up to a version are compacted."""
        do(self.connection, "compaction", "raise", instance=instance, upto=version)

    @one_transaction
    def ended(self, instance: str, upto: int | None = None) -> int:
        """The last version of `events`, of those up to one (None: of all), with rows of a committed batch of receive;
        -1 before the first."""
        version = ask(self.connection, "compaction", "ended", instance=instance, upto=upto)[0].version
        return -1 if version is None else int(version)

    @one_transaction
    def records(self, instance: str, after: int, upto: int) -> int:
        """How many records receive has kept in the versions (after, upto] of `events`."""
        return int(ask(self.connection, "compaction", "records", instance=instance, after=after, upto=upto)[0].records)

    @one_transaction
    def holds(self, instance: str, after: int, upto: int, records: int) -> int:
        """The last version in (after, upto] up to which receive has kept no more than so many records; the first one at
        least.

        There is one.
        """
        asked = {"instance": instance, "after": after, "upto": upto, "records": records}
        return int(ask(self.connection, "compaction", "holds", **asked)[0].version)

    @one_transaction
    def queries(self, instance: str) -> list[Life]:
        """The lives of queries that may go on."""
        return [Life(**row._mapping) for row in ask(self.connection, "compaction", "queries", instance=instance)]

    @one_transaction
    def last_in(self, instance: str, version: int) -> dict[str, int]:
        """By life of receive its last batch whose rows are in `events` up to a version."""
        rows = ask(self.connection, "compaction", "last_in", instance=instance, version=version)
        return {row.lineage: row.batch_id for row in rows}

    @one_transaction
    def reader(self, instance: str, one: Life) -> Reader:
        """How far the life of an output has read, and where a new one would begin."""
        again = NewLives(self.connection).begins_at(instance, one.query, one.lineage, None) or {}
        began = [version for at in (one.source_from, one.source_to) if (version := first_reading(at)) is not None]
        return Reader(
            one.query, one.batch_id, read_upto(one.source_from), read_upto(one.source_to), int(again.get("version", 0)),
            began[0] if began else None,
        )  # fmt: skip

    @one_transaction
    def events_upto(self, instance: str) -> tuple[int, str | None]:
        """The version of `events` up to which nobody reads commit by commit, and the query that holds the next ones."""
        readers = [self.reader(instance, one) for one in self.queries(instance) if one.query != "receive"]
        return compacting.whole_from(self.ended(instance), readers, self.compacted(instance))
