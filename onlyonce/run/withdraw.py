"""Withdraws an output's batch that began, did not end, and has lost its checkpoint.

First it finds what the batch has left in the sinks.

| left in the sink                                    | seen by a reader | a new life        |
|-----------------------------------------------------|------------------|-------------------|
| nothing, or units without rows                      | no               | writes the rows   |
| Delta: a witness whose transaction is not there     | no               | writes the rows   |
| files that no batch has given a pane                | no               | writes them anew  |
| an upsert, a history, rows at least once            | yes              | writes over them  |
| an append, an increment, rows in the outbox         | yes              | would write twice |

In the last case the batch must be finished (`onlyonce.outputs.windows.finishing`). In all others it is withdrawn as a
whole.

Who calls it: `onlyonce.run.lineage`, after it has raised the epoch in each database of the lineage. PostgreSQL refuses
units of an older epoch. A Delta table can't, so the batch's transaction id is used up there before its unit is removed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from onlyonce import settings
from onlyonce.commitlog.new_lives import LeftUnits
from onlyonce.commitlog.units import Unit
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.storage.location import Location
from onlyonce.storage import log_entries, opening
from onlyonce.storage.beside import beside, is_ours

WRITTEN_OVER = ("upsert", "history", "FileSink(")
"""How `declared` has the sinks whose rows a new life puts others in the place of, or that no reader has been shown."""


@dataclass(frozen=True)
class Left:
    """Rows of a batch that one sink may hold. `app_id`: their transaction id if they are in a Delta table."""

    sink: str
    write: str
    table: Location | None
    app_id: str

    @property
    def must_stay(self) -> bool:
        """Whether a new life would write them once more."""
        return not self.write.startswith(WRITTEN_OVER)


def left(instance: str, found: LeftUnits) -> list[Left]:
    """What a begun batch has left in its sinks, with rows and where readers see them, or may yet by a fenced driver's
    hand."""
    with_rows = {unit.sink: unit for unit in found.units if unit.rows and unit.kind != "plain"}
    return [
        _left(instance, unit, found.declared, stored_names.result_transaction(found.platform, found.lineage, sink))
        for sink, unit in with_rows.items()
    ]


def is_written(one: Left, batch_id: int) -> bool:
    """Whether rows are there: always where they are in the unit's transaction, of a Delta table by its own."""
    return one.table is None or holds(one.table, one.app_id, batch_id)


def holds(path: Location, app_id: str, batch_id: int) -> bool:
    """Return whether a Delta table has the rows of a transaction: the transaction is in the table's snapshot, and was
    not used up by `take`.

    The history comes last: its owner may clean it. It outlives a transaction only if
    `delta.setTransactionRetentionDuration` is set.
    """
    if not log_entries.any_in(path):
        return False
    table = opening.table(path)
    if _has(table, app_id, batch_id):
        return not _has(table, app_id + stored_names.USED_UP, batch_id)
    notes = [
        note
        for note in map(_note, table.history())
        if (note.get(stored_names.NOTE_APP_ID), note.get(stored_names.NOTE_VERSION)) == (app_id, batch_id)
    ]
    return any(note.get(stored_names.NOTE_UNIT) != stored_names.WITHDRAWN for note in notes)


def _has(table: DeltaTable, app_id: str, batch_id: int) -> bool:
    there = table.transaction_version(app_id)
    return there is not None and there >= batch_id


def take_all(path: Location, app_id: str, batch_id: int) -> None:
    """The same as `take`, and first of the table that keeps what was deleted, unless the batch's deletes are there:
    they come before its rows."""
    if is_ours(beside(path)) and not holds(beside(path), app_id, batch_id):
        take(beside(path), app_id, batch_id)
    take(path, app_id, batch_id)


def take(path: Location, app_id: str, batch_id: int) -> None:
    """Commit nothing under a transaction, so that a fenced driver's rows can't land by it.

    Raises Retryable when another commit came in between, also one that landed just these rows; Refused for a table that
    takes no commit of ours."""
    if not log_entries.any_in(path):
        return
    table = opening.table(path)
    if holds(path, app_id, batch_id):
        raise _between(path, f"a driver that was at work has committed batch {batch_id}")
    if _has(table, app_id, batch_id):
        return  # taken before, by a new life that did not come to its end
    mark = CommitProperties(
        custom_metadata={"userMetadata": _mark(app_id, batch_id)},
        app_transactions=[Transaction(name, batch_id) for name in (app_id, app_id + stored_names.USED_UP)],
    )
    try:
        table.create_write_transaction(
            [], "append", table.schema(), table.metadata().partition_columns, commit_properties=mark
        )
    except CommitFailedError as error:
        raise _between(path, str(error).splitlines()[0]) from error
    except DeltaError as error:
        raise Refused(
            f"the table {path} can't be guarded against a driver that was at work: {str(error).splitlines()[0]}",
            data="nothing was withdrawn",
            hint="is the table of a version that deltalake can't write? Take that feature out of it, or put the "
            "checkpoint back",
        ) from error


def _between(path: Location, told: str) -> Retryable:
    return Retryable(
        f"another commit to {path} came in between: {told}",
        data="nothing was withdrawn",
        hint="run the same command again",
    )


def _mark(app_id: str, batch_id: int) -> str:
    return log_entries.text(
        {
            stored_names.NOTE_APP_ID: app_id,
            stored_names.NOTE_VERSION: batch_id,
            stored_names.NOTE_UNIT: stored_names.WITHDRAWN,
        }
    )


def _note(entry: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(entry.get("userMetadata") or "{}")
    except ValueError:
        return {}  # a commit by somebody else
    return found if isinstance(found, dict) else {}


def _left(instance: str, unit: Unit, declared: dict[str, dict[str, str]], app_id: str) -> Left:
    told = declared.get(unit.sink, {"write": "", "target": ""})
    kind, _, where = told["target"].partition(":")
    _, at, number = instance.partition("@")
    table = settings.table_location(where + at + number) if (unit.kind, kind) == ("witness", "delta") else None
    return Left(unit.sink, told["write"], table, app_id)
