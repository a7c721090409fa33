"""Commit to Iceberg tables repeatably: a commit also sets a property of the table that names the batch.

docs/specification/iceberg-commit.md. Snapshots expire, so the last batch of each incarnation and output is in a
property, which stays. A commit is conditional: the branch must be where it was when the property was read, and the
table must have the columns for which the files were written. After a conflict the property is read again. pyiceberg's
own transaction repeats its commit after a conflict without a check, so its parts are passed to the catalog here.

The data files of an attempt that did not commit stay. No snapshot names them, and `remove_orphan_files` of any engine
finds them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tenacity
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertCurrentSchemaId, AssertRefSnapshotId, AssertTableUUID

from onlyonce.core import ownership, stored_names
from onlyonce.core.errors import InvariantBroken, Retryable, Superseded
from onlyonce.core.ownership import Place
from onlyonce.failpoints import passing
from onlyonce.sinks.iceberg import iceberg_catalogs
from onlyonce.sinks.iceberg.iceberg_catalogs import answering
from onlyonce.tables.own_tables import BETWEEN

PREFIX = stored_names.ICEBERG_PREFIX
BRANCH = "main"
WAIT = tenacity.wait_random_exponential(multiplier=0.1, max=5)


@dataclass(frozen=True)
class Commit:
    """One commit: its incarnation, output, batch and epoch, and the content of its rows."""

    incarnation: str
    output: str
    batch: int
    epoch: int
    unit: str
    content: str

    @property
    def key(self) -> str:
        """The property of the table that has the last batch of this incarnation and output."""
        return key(self.incarnation, self.output)

    def note(self) -> str:
        """Return the value of that property."""
        return json.dumps({name: getattr(self, name) for name in ("batch", "epoch", "unit", "content")}, sort_keys=True)

    def summary(self) -> dict[str, str]:
        """Return the commit for the summary of a snapshot: for people, and for a replay that finds no property."""
        return {f"{PREFIX}{name}": str(value) for name, value in asdict(self).items()}


def key(incarnation: str, output: str) -> str:
    """Return the name of the property."""
    return f"{PREFIX}{incarnation}/{output}"


def last(metadata: TableMetadata, name: str) -> dict[str, Any] | None:
    """Return the last batch that a property names; None if the table has no such property.

    Raise InvariantBroken if the property was changed by hand.
    """
    text = metadata.properties.get(name)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return {
            "batch": int(found["batch"]),
            "epoch": int(found["epoch"]),
            "unit": str(found["unit"]),
            "content": str(found["content"]),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise InvariantBroken(
            f"the table at {metadata.location} has {text!r} as its property {name}",
            data="nothing was written: the property says which batch the table has, and can't be read",
            hint="put it back as it was: an older metadata file of the table has it",
        ) from error


def landed(place: Place, incarnation: str, output: str) -> int | None:
    """Return the last batch of an incarnation that a target's table has; None if it has none, or if there is no
    table.
    """
    with iceberg_catalogs.open_catalog(str(place.variable)) as found:
        table = iceberg_catalogs.find_table(found, place.where)
    newest = last(table.metadata, key(incarnation, output)) if table else None
    return newest["batch"] if newest else None


def look(metadata: TableMetadata, commit: Commit, *, snapshots: bool = False) -> dict[str, Any] | None:
    """Return what the table has under this batch; None if the batch may be written.

    `snapshots`: search them too, since an earlier attempt may have written the batch. Raise Superseded if a newer
    driver has committed, and InvariantBroken if the table has a later batch.
    """
    newest = last(metadata, commit.key)
    if newest and newest["batch"] == commit.batch:
        return newest
    passed = newest is not None and newest["batch"] > commit.batch
    if (snapshots or passed) and (found := _in_snapshots(metadata, commit)):
        return found
    if newest and newest["epoch"] > commit.epoch:
        raise Superseded(
            f"the table at {metadata.location} has batch {newest['batch']} of {commit.incarnation} by a driver of "
            f"epoch {newest['epoch']}; this is {commit.epoch}",
            data="nothing was written by this driver",
            hint="nothing to do: the newer driver continues. If there is none, the log was put back to an earlier "
            "moment than the table",
        )
    if newest and passed:
        raise InvariantBroken(
            f"the table at {metadata.location} has batch {newest['batch']} of {commit.incarnation} already, and "
            f"{commit.batch} is to be written",
            data="nothing was written",
            hint="was the table, the log or the checkpoint restored from another moment? See onlyonce.commits for "
            "the unit",
        )
    return None


def _in_snapshots(metadata: TableMetadata, commit: Commit) -> dict[str, Any] | None:
    there = _snapshot(metadata, commit)
    if there is None or there.summary is None:
        return None
    told = there.summary.additional_properties
    return {"batch": commit.batch, "unit": told.get(f"{PREFIX}unit"), "content": told.get(f"{PREFIX}content")}


def _snapshot(metadata: TableMetadata, commit: Commit) -> Snapshot | None:
    """Return the last snapshot that this batch has made, as long as it has not expired.

    For a backfill this is the snapshot that adds the rows.
    """
    wanted = {
        name: value
        for name, value in commit.summary().items()
        if name in (f"{PREFIX}incarnation", f"{PREFIX}output", f"{PREFIX}batch")
    }
    for snapshot in reversed(metadata.snapshots):
        told = snapshot.summary.additional_properties if snapshot.summary else {}
        if all(told.get(name) == value for name, value in wanted.items()):
            return snapshot
    return None


def once(
    table: Table,
    commit: Commit,
    files: Callable[[Table], Sequence[DataFile]],
    instead_of: BooleanExpression | None = None,
    *,
    replayed: bool = False,
) -> int | None:
    """Commit the files that `files` writes, unless the table has the batch. Compare what it has with what was meant.

    Return the id of the batch's snapshot; None if it has expired. Raise InvariantBroken if the table has different
    content under the batch, Superseded if a newer driver has committed, and Retryable if others keep committing in
    between.

    instead_of   the rows that the same commit removes: those of the windows that a backfill has computed again
    replayed     an earlier attempt may have written the batch: then the snapshots are searched too
    """
    there = look(table.metadata, commit, snapshots=replayed)
    if there is None:
        schema = table.metadata.current_schema_id
        written = files(table)
        with answering(table.location()):
            there = _until_alone(table, commit, written, schema, instead_of)
    if (there["unit"], there["content"]) != (commit.unit, commit.content):
        raise InvariantBroken(
            f"{table.location()}: batch {commit.batch} of {commit.incarnation} should hold {commit.unit} (content "
            f"{commit.content}), but there is {there}",
            data="what is there stays as it is; nothing of this attempt was written",
            hint="was the table, the log or the checkpoint restored from another moment? See onlyonce.commits for "
            "the unit",
        )
    made = _snapshot(table.metadata, commit)
    return made.snapshot_id if made else None


def _until_alone(
    table: Table, commit: Commit, written: Sequence[DataFile], schema: int, instead_of: BooleanExpression | None
) -> dict[str, Any]:
    """Commit, and try again after conflicts. Return what the table then has under the batch.

    schema   the id of the table's schema for which the files were written
    """
    passing("iceberg-before-commit")
    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(CommitFailedException),
        stop=tenacity.stop_after_attempt(BETWEEN),
        wait=WAIT,
        reraise=True,
    )
    try:
        for attempt in tries:
            with attempt:
                _refresh(table)
                if (there := look(table.metadata, commit)) is not None:
                    return there  # an earlier try whose answer was lost, or another driver's commit
                passing("iceberg-after-look")
                _put(table, commit, written, schema, instead_of)
    except CommitFailedException as error:
        raise Retryable(
            f"{table.location()}: others committed {BETWEEN} times while a batch was to be written",
            data="nothing of this batch is in the table",
            hint="run the same command again",
        ) from error
    _refresh(table)
    return look(table.metadata, commit, snapshots=True) or {"unit": None, "content": None}


def _refresh(table: Table) -> None:
    """Read the table's metadata again.

    Raise Refused if the table was dropped and made again since: the new one does not show what was committed.
    """
    try:
        table.refresh()
    except ValueError:  # pyiceberg raises it for another uuid
        found = iceberg_catalogs.find_table(table.catalog, ".".join(table.name()))
        ownership.refuse_replaced(
            table.location(), str(table.metadata.table_uuid), str(found.metadata.table_uuid) if found else None
        )
        raise


def _put(
    table: Table, commit: Commit, written: Sequence[DataFile], schema: int, instead_of: BooleanExpression | None
) -> None:
    """Try to commit once.

    Raise CommitFailedException if there was another commit since the table was read, and Retryable if the files were
    written for other partitions or columns. A column that was dropped and added again has another id, and a reader
    would see null in it.
    """
    specs = {file.spec_id for file in written} - {table.spec().spec_id}
    if specs:
        raise Retryable(
            f"{table.location()} was partitioned again while a batch was written",
            data="nothing of it is in the table",
            hint="run the same command again",
        )
    if schema != table.metadata.current_schema_id:
        raise Retryable(
            f"{table.location()}: its columns were changed while a batch was written",
            data="nothing of it is in the table",
            hint="run the same command again: it writes the rows with the table's present columns",
        )
    change, summary = table.transaction(), commit.summary()
    if instead_of is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it does no harm if there are no such rows
            change.delete(instead_of, snapshot_properties=summary)
    # Also without files: a snapshot moves the branch, so that a driver that read the table before must read it again.
    with change.update_snapshot(snapshot_properties=summary).merge_append() as added:
        for file in written:
            added.append_data_file(file)
    change.set_properties({commit.key: commit.note()})
    at = table.metadata.snapshot_by_name(BRANCH)
    as_it_was = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=BRANCH, snapshot_id=at.snapshot_id if at else None),
        AssertCurrentSchemaId(current_schema_id=schema),
    )
    table.catalog.commit_table(table, as_it_was, change._updates)
    passing("iceberg-after-commit")
