"""A table that one run appends to, batch after batch: what of its log has been read stays read.

To open a table means to read its log since the last checkpoint, and so does a look for a transaction: in a store that
is a request for each commit, in each batch. Here a look reads what has come since the last one. The commit is on
condition that the next version is not there, as ever, so a look that is old costs a try and no rows.

A table that was dropped and made again begins its log again, so a look for commits after the last one would find none,
and a commit under the next version would be in a log that lacks the versions before. So a look at a team's table also
asks whether the log's first entry is the same. Nothing else drops the platform's own tables, whose batches are fenced
(`Own`).

Who makes it: `RunContext` and `sources.reading`, for as long as a run; `own_tables`, for one append. Errors: those of
`opening`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from deltalake import DeltaTable
from deltalake.transaction import AddAction

from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location
from onlyonce.storage import checksums, log_entries, opening, stores
from onlyonce.storage.stores import Entry


class Appended:
    """The table at a location, as of the last look."""

    def __init__(self, at: Location) -> None:
        self.at = at
        self._open()

    def _open(self) -> None:
        self._begun = self._first_entry()
        self.table: DeltaTable = opening.table(self.at)
        self._transactions: dict[str, tuple[int, int | None]] = {}

    def look(self) -> Self:
        """Read what was committed since the last look; read another log from its start."""
        if self._first_entry() != self._begun:  # made again, or the entry is older than the table keeps
            if not log_entries.any_in(self.at):
                raise Refused(
                    f"{self.at} is gone since the run began",
                    data="nothing was written: a new table would hold the newest rows only, while the log says "
                    "that all are there",
                    hint="put the table back; the next start says how to make it again",
                )
            self._open()
        self.table.update_incremental()
        return self

    def _first_entry(self) -> Entry | None:
        return stores.of(self.at).look(self.at / log_entries.LOG / f"{0:020}.json")

    def transaction_version(self, app_id: str) -> int | None:
        """The highest version of a transaction id; None for one that is not there."""
        now = self.table.version()
        try:
            found = self._since(app_id, now)
        except FileNotFoundError:  # an entry went from the log since the last look
            found = self.table.transaction_version(app_id)
        self._transactions[app_id] = (now, found)
        return found

    def committed(self, app_id: str, number: int, added: Sequence[AddAction]) -> None:
        """A commit was acknowledged, as the version after the last look: it has the transaction of this number, and
        these files."""
        self._transactions[app_id] = (self.table.version() + 1, number)

    def _since(self, app_id: str, now: int) -> int | None:
        if app_id not in self._transactions:
            return self.table.transaction_version(app_id)
        seen, found = self._transactions[app_id]
        told = [
            action.get("txn", {})
            for version in range(seen + 1, now + 1)
            for action in log_entries.actions(self.at, version)
        ]
        since = [one["version"] for one in told if one.get("appId") == app_id]
        return max(since if found is None else [*since, found], default=None)


class Own(Appended):
    """One of the platform's own tables, which Spark's streams read version by version: so each commit leaves a version
    checksum."""

    def _first_entry(self) -> Entry | None:
        """Return nothing: the log of such a table never begins again."""
        return None

    def committed(self, app_id: str, number: int, added: Sequence[AddAction]) -> None:
        """See Appended."""
        super().committed(app_id, number, added)
        checksums.write(self.at, self.table, added)
