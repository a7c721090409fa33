"""Commits to Iceberg tables that can be repeated: each names its batch in a property of the table, in the same commit.
docs/specification/iceberg-commit.md.

Snapshots expire, so the last batch of each lineage and output is a property, which stays. A commit is conditional: the
branch must be where it was when the property was read. After a conflict the property is read anew. pyiceberg's own
transaction repeats its commit after a conflict and asks nothing, so its parts are given to the catalog from here.

Who calls it: `sink_iceberg`, the doctor. Errors: InvariantBroken where something else is there under the batch,
Superseded where a newer driver has committed, Retryable where others come between for ever or the catalog does not
answer. Not promised: that data files of an attempt that did not commit are removed; no snapshot names them
(`remove_orphan_files` of any engine finds them).
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
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

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
    """One commit: whose it is, which batch, and what it holds."""

    lineage: str
    output: str
    batch: int
    epoch: int
    unit: str
    content: str

    @property
    def key(self) -> str:
        """The property of the table that has the last batch of this lineage and output."""
        return key(self.lineage, self.output)

    def note(self) -> str:
        """The value of that property."""
        return json.dumps({name: getattr(self, name) for name in ("batch", "epoch", "unit", "content")}, sort_keys=True)

    def summary(self) -> dict[str, str]:
        """The same in the summary of a snapshot, for people, and for a replay that finds no property."""
        return {f"{PREFIX}{name}": str(value) for name, value in asdict(self).items()}


def key(lineage: str, output: str) -> str:
    """The name of the property."""
    return f"{PREFIX}{lineage}/{output}"


def last(metadata: TableMetadata, name: str) -> dict[str, Any] | None:
    """What a property says of the last batch; None where there is none.

    Raises InvariantBroken for one that somebody has changed.
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


def landed(place: Place, lineage: str, output: str) -> int | None:
    """The last batch of a lineage that a target's table has; None without one, or without the table."""
    with iceberg_catalogs.open_catalog(str(place.variable)) as found:
        table = iceberg_catalogs.find_table(found, place.where)
    newest = last(table.metadata, key(lineage, output)) if table else None
    return newest["batch"] if newest else None


def look(metadata: TableMetadata, commit: Commit, *, snapshots: bool = False) -> dict[str, Any] | None:
    """What the table has under this batch; None where it may be written.

    `snapshots`: ask them too, an earlier attempt may have written it.
    """
    newest = last(metadata, commit.key)
    if newest and newest["batch"] == commit.batch:
        return newest
    passed = newest is not None and newest["batch"] > commit.batch
    if (snapshots or passed) and (found := _in_snapshots(metadata, commit)):
        return found
    if newest and newest["epoch"] > commit.epoch:
        raise Superseded(
            f"the table at {metadata.location} has batch {newest['batch']} of {commit.lineage} by a driver of "
            f"epoch {newest['epoch']}; this is {commit.epoch}",
            data="nothing was written by this driver",
            hint="nothing to do: the newer driver goes on. If there is none, the log was put back to an earlier "
            "moment than the table",
        )
    if newest and passed:
        raise InvariantBroken(
            f"the table at {metadata.location} has batch {newest['batch']} of {commit.lineage} already, and "
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
    """The last one that this batch has made, as long as it has not expired: of a backfill the one that adds the
    rows."""
    wanted = {
        name: value
        for name, value in commit.summary().items()
        if name in (f"{PREFIX}lineage", f"{PREFIX}output", f"{PREFIX}batch")
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
    """Commit the files that `files` writes, unless the batch is there; then compare what is there with what was meant.

    Gives the id of its snapshot, None where that has expired.

    instead_of   the rows that go in the same commit: those of the windows that a backfill has computed again
    replayed     an earlier attempt may have written it: then the snapshots are asked too
    """
    there = look(table.metadata, commit, snapshots=replayed)
    if there is None:
        written = files(table)
        with answering(table.location()):
            there = _until_alone(table, commit, written, instead_of)
    if (there["unit"], there["content"]) != (commit.unit, commit.content):
        raise InvariantBroken(
            f"{table.location()}: batch {commit.batch} of {commit.lineage} should hold {commit.unit} (content "
            f"{commit.content}), but there is {there}",
            data="what is there stays as it is; nothing of this attempt was written",
            hint="was the table, the log or the checkpoint restored from another moment? See onlyonce.commits for "
            "the unit",
        )
    made = _snapshot(table.metadata, commit)
    return made.snapshot_id if made else None


def _until_alone(
    table: Table, commit: Commit, written: Sequence[DataFile], instead_of: BooleanExpression | None
) -> dict[str, Any]:
    """Commit, again where others came between; gives what the table has then under the batch."""
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
                    return there  # a lost answer, or another driver's
                passing("iceberg-after-look")
                _put(table, commit, written, instead_of)
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

    Raise Refused if the table was dropped and made again since: no mark in the new one says what was committed.
    """
    try:
        table.refresh()
    except ValueError:  # what pyiceberg raises for another uuid
        found = iceberg_catalogs.find_table(table.catalog, ".".join(table.name()))
        ownership.refuse_replaced(
            table.location(), str(table.metadata.table_uuid), str(found.metadata.table_uuid) if found else None
        )
        raise


def _put(table: Table, commit: Commit, written: Sequence[DataFile], instead_of: BooleanExpression | None) -> None:
    """One try. Raises CommitFailedException where another commit came since the table was looked at."""
    specs = {file.spec_id for file in written} - {table.spec().spec_id}
    if specs:
        raise Retryable(
            f"{table.location()} was partitioned anew while a batch was written",
            data="nothing of it is in the table",
            hint="run the same command again",
        )
    change, summary = table.transaction(), commit.summary()
    if instead_of is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are no such rows is no news
            change.delete(instead_of, snapshot_properties=summary)
    # Also without files: a snapshot moves the branch, so whoever looked before must look again.
    with change.update_snapshot(snapshot_properties=summary).merge_append() as added:
        for file in written:
            added.append_data_file(file)
    change.set_properties({commit.key: commit.note()})
    at = table.metadata.snapshot_by_name(BRANCH)
    as_it_was = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=BRANCH, snapshot_id=at.snapshot_id if at else None),
    )
    table.catalog.commit_table(table, as_it_was, change._updates)
    passing("iceberg-after-commit")
