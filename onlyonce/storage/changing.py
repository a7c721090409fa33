"""Rows of a user's Delta table are replaced: files go and others come, in one commit with the transaction id.
docs/specification/delta-commit.md.

Each try looks at the table as it is now, and its commit is on condition that the next version is not there: delta-rs's
conditional PUT. It takes such a commit for an append, which would stand beside whatever came in between. So it is not
to try by itself. Whoever has lost looks again: first whether the transaction is there, which a twin may have committed,
then whether the files that may hold the rows are still the same. If they are, what was written is committed at the new
version; if not, it is planned and written anew.

The new files are an attempt's (`own_tables`): those of a try that lost, or of a killed driver, are named by no commit.

Who calls it: the Delta sink. Errors: those of `delta.once`; of what a plan writes. Not promised: that files which no
commit names go; a VACUUM of the table takes them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from onlyonce.failpoints import passing
from onlyonce.model.storage.location import Location
from onlyonce.storage import delta, opening, own_tables, statistics
from onlyonce.storage.own_tables import Files
from onlyonce.storage.table_files import Held


@dataclass(frozen=True)
class Change:
    """Files that go, and files that come."""

    gone: Sequence[Held]
    new: Files


class Plan(Protocol):
    """What is to become of a table's rows."""

    def files(self, table: DeltaTable) -> list[Held]:
        """The files of a version which may hold rows that change.

        All that is decided about the table rests on these alone. Raises Refused for a table that can't be changed so.
        """

    def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
        """Write below the folder what comes in the place of those files' rows, and what is new."""


def change(
    path: Location, commit: delta.Commit, plan: Plan, *, replayed: bool = False, form: opening.Form | None = None
) -> int | None:
    """Carry out a plan once; return the table's version as `delta.once` does.

    For `replayed` see `delta.once`, for `form` see `own_tables.append`.
    """
    opened = opening.table(path)
    checked = opening.form(opened) if form is None else form
    return delta.once(
        path, commit, lambda: _carry_out(opened, path, commit, plan, checked), replayed=replayed, table=opened
    )


def _carry_out(opened: DeltaTable, path: Location, commit: delta.Commit, plan: Plan, form: opening.Form) -> int | None:
    """Return the version that has the commit, None if the transaction was in the table before."""
    planned: tuple[list[Held], Change] | None = None
    for attempt in own_tables.tries(path):
        with attempt:
            table = opened if attempt.retry_state.attempt_number == 1 else opening.table(path)
            there = table.transaction_version(commit.app_id)
            if there is not None and there >= commit.version:
                return None  # a lost answer, or another driver's: `delta.once` looks whose
            opening.refuse_changed(table, path, form)
            files = plan.files(table)
            if planned is None or files != planned[0]:
                planned = (files, plan.write(table, files, path / own_tables.folder(commit)))
            passing("table-before-commit")
            return _commit(table, path, commit, planned[1])
    return None


def _commit(table: DeltaTable, path: Location, commit: delta.Commit, change: Change) -> int:
    now, new = int(time.time() * 1000), table.version() + 1
    indexed = statistics.columns(table)
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(
            path=held.path, data_change=True, deletion_timestamp=now, size=held.bytes,
            partition_values=dict(held.partition),
        ) for held in change.gone
    ]  # fmt: skip
    actions += [own_tables.added(path, file, indexed) for file in change.new]
    properties = CommitProperties(
        custom_metadata={"userMetadata": commit.note(), "isBlindAppend": False},
        app_transactions=[Transaction(commit.app_id, commit.version, now)],
        max_commit_retries=0,
    )
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=properties,
        post_commithook_properties=delta.afterwards(new),
    )
    return new
