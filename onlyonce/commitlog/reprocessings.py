"""Begin and end of a reprocessing: invalid or expired rows become a new input file. docs/specification/reprocessing.md.

When a reprocessing begins it claims its sets of rows by their primary key. It has ended when its file is in the inbox.
A reprocessing that was killed in between is finished by the next reprocessing of its pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onlyonce.commitlog.removals import Removals
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.reprocess import Kind, RowSet
from onlyonce.database.connect import Transactions, ask, do, do_many, one_transaction
from onlyonce.failpoints import passing


@dataclass(frozen=True)
class Reprocessing:
    """A reprocessing that has begun."""

    number: int
    kind: Kind
    events_version: int
    sets: list[RowSet]


@dataclass(frozen=True)
class Put:
    """The input file that a reprocessing has put into the inbox; `path` is None if no rows were left for one."""

    path: str | None
    lines: int
    left_out: int
    still_invalid: int


class Reprocessings(Transactions):
    """Reprocessings of invalid or expired rows."""

    @one_transaction
    def committed(self, instance: str) -> dict[tuple[str, int], dict[str, str]]:
        """Return the receive batches whose rows may be reprocessed, each with the files that it could not read."""
        rows = ask(self.connection, "reprocess", "committed", instance=instance)
        return {(row.incarnation, row.batch_id): row.facts for row in rows}

    @one_transaction
    def reprocessed(self, instance: str, kind: Kind) -> set[tuple[str, int, str, str]]:
        """Return the keys of the sets that a reprocessing has reprocessed or is about to."""
        return {tuple(row) for row in ask(self.connection, "reprocess", "reprocessed", instance=instance, kind=kind)}

    @one_transaction
    def begun(self, instance: str) -> Reprocessing | None:
        """Return the reprocessing that an earlier attempt has left behind, if any."""
        rows = ask(self.connection, "reprocess", "begun", instance=instance)
        if not rows:
            return None
        row = rows[0]
        sets = [
            RowSet(*tuple(one))
            for one in ask(self.connection, "reprocess", "sets_of", reprocessing_no=row.reprocessing_no)
        ]
        return Reprocessing(row.reprocessing_no, row.kind, row.events_version, sets)

    @one_transaction
    def begin(self, instance: str, kind: Kind, run_id: str, events_version: int, sets: list[RowSet]) -> Reprocessing:
        """Claim the sets, and return the reprocessing that has begun.

        If a reprocessing of the same run has begun, return it: the answer to its COMMIT was lost.

        Raise Retryable if another reprocessing has claimed one of the sets or has not ended, or if old rows were
        removed meanwhile.
        """
        if not ask(self.connection, "reprocess", "lock_instance", instance=instance):
            raise Refused(f"nothing of {instance} has run yet", hint=f"onlyonce run {instance} comes first")
        there = ask(self.connection, "reprocess", "begun", instance=instance)
        if there and there[0].run_id == run_id:
            found = self.begun(instance)
            assert found is not None
            return found
        claimed = self.reprocessed(instance, kind)
        if there or any(one.key in claimed for one in sets):
            raise Retryable(
                f"another reprocessing of {instance} started first",
                data="this reprocessing has claimed nothing; the other one puts its rows into the inbox once",
                hint="run the same command again: it reprocesses the remaining rows",
            )
        Removals(self.connection).refuse_changed(instance, events_version)
        row = ask(
            self.connection,
            "reprocess",
            "begin",
            instance=instance,
            kind=kind,
            run_id=run_id,
            events_version=events_version,
        )[0]
        same = {"instance": instance, "kind": kind, "reprocessing_no": row.reprocessing_no}
        do_many(self.connection, "reprocess", "add_set", [same | vars(one) for one in sets])
        return Reprocessing(row.reprocessing_no, kind, events_version, sets)

    @one_transaction
    def end(self, reprocessing: Reprocessing, put: Callable[[], Put]) -> bool:
        """Put the file into the inbox and note it. Return False if another attempt has already done so.

        A concurrent attempt waits here. So a file that was noted, read and cleared is never put again.
        """
        row: Any = ask(self.connection, "reprocess", "lock_reprocessing", reprocessing_no=reprocessing.number)[0]
        if row.state == "reprocessed":
            return False
        done = put()
        passing("reprocess-after-put")
        do(self.connection, "reprocess", "end", reprocessing_no=reprocessing.number, **vars(done))
        # A reason may quote a record that is erased later, so only its hash stays.
        do(self.connection, "reprocess", "hash_reasons", reprocessing_no=reprocessing.number)
        return True
