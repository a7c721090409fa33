"""Replaces rows of Delta tables: files are removed and others added, in one commit with the transaction id.
docs/specification/delta-commit.md.

Each try reads the table as it is now, and its commit is conditional on the next version not existing: delta-rs's
conditional PUT. delta-rs takes such a commit for an append, which need not conflict with other commits. So delta-rs may
not retry by itself. A try that has lost checks first whether the transaction is in the table, which a twin may have
committed. Then it checks whether the files that may hold the rows are still the same. If they are, the written files
are committed at the new version; if not, they are planned and written again.

The new files belong to an attempt (`own_tables`): no commit names the files of a lost try or of a killed driver. A
VACUUM of a user's table removes them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from onlyonce.core import locations, stored_names
from onlyonce.core.errors import InvariantBroken, OnlyonceError
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import CONTROL, OO_BATCH, OO_INCARNATION, OO_KIND
from onlyonce.failpoints import passing
from onlyonce.tables import arrow_files, opening, own_tables, statistics, stores
from onlyonce.tables import commit as tables_commit
from onlyonce.tables.own_tables import Files
from onlyonce.tables.table_files import Held


@dataclass(frozen=True)
class Change:
    """Files to remove, and files to add."""

    gone: Sequence[Held]
    new: Files


class Plan(Protocol):
    """A planned change of a table's rows."""

    def files(self, table: DeltaTable) -> list[Held]:
        """Return the files of a version that may hold rows to change.

        All decisions about the table depend on these alone. Raise Refused for a table that can't be changed this way.
        """

    def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
        """Write below the folder what replaces these files' rows, and what is new."""


def change_rows(
    path: Location,
    commit: tables_commit.Commit,
    plan: Plan,
    *,
    replayed: bool = False,
    form: opening.Form | None = None,
) -> int | None:
    """Carry out a plan once; return the table's version as `commit.once` does.

    For `replayed` see `commit.once`, for `form` see `own_tables.append`.
    """
    opened = opening.table(path)
    checked = opening.form(opened) if form is None else form
    return tables_commit.once(
        path, commit, lambda: _carry_out(opened, path, commit, plan, checked), replayed=replayed, table=opened
    )


def _carry_out(
    opened: DeltaTable, path: Location, commit: tables_commit.Commit, plan: Plan, form: opening.Form
) -> int | None:
    """Return the version that has the commit, None if the transaction was already in the table."""
    planned: tuple[list[Held], Change] | None = None
    for attempt in own_tables.tries(path):
        with attempt:
            table = opened if attempt.retry_state.attempt_number == 1 else opening.table(path)
            there = table.transaction_version(commit.app_id)
            if there is not None and there >= commit.version:
                return None  # a lost answer, or another driver's: `once` compares it
            opening.refuse_changed(table, path, form)
            files = plan.files(table)
            if planned is None or files != planned[0]:
                planned = (files, plan.write(table, files, path / own_tables.folder(commit)))
            passing("table-before-commit")
            return _commit(table, path, commit, planned[1])
    return None


def _commit(table: DeltaTable, path: Location, commit: tables_commit.Commit, change: Change) -> int:
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
        post_commithook_properties=tables_commit.afterwards(new),
    )
    return new


# Rewrites data files of one of the platform's own tables: the same content in other files, in one commit.
#
# The commit adds the new files and removes the old ones, and declares that they change no data (`dataChange` false). So
# Spark's streams over the table skip it, and a reader of the table finds each row once. delta-rs writes the commit. Its
# own `optimize` takes all small files of a partition, even files of open batches, and keeps no order. So the files are
# written here.
#
# The new files belong to an attempt (`own_tables`), below a folder of its name; a kill leaves files that no commit
# names. The old files stay on the disk for current readers. Their modification time becomes the time of the rewrite,
# because `attempt_files` sweeps by it. If another writer has removed one of the files meanwhile, nothing is changed.


ROW_GROUP = 1 << 17

Rows = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class File:
    """A data file that a version of a table has."""

    path: str
    bytes: int
    rows: int
    partition: dict[str, str]
    least: Any
    largest: Any
    """`least` and `largest` bound the first column of the order for which the file has statistics."""


def rewritten_files(table: DeltaTable, ordered_by: Sequence[str]) -> list[File]:
    """Return the data files of the table's version."""
    columns = table.metadata().partition_columns
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        File(
            row["path"], row["size_bytes"], row["num_records"], {name: row[f"partition.{name}"] for name in columns},
            _first(row, "min", ordered_by), _first(row, "max", ordered_by),
        ) for row in rows
    ]  # fmt: skip


def _first(row: dict[str, Any], what: str, columns: Sequence[str]) -> Any:
    return next((row[f"{what}.{name}"] for name in columns if row.get(f"{what}.{name}") is not None), None)


def rewrite(path: Location, old: Sequence[File], app_id: str, number: int, change: Rows) -> bool:
    """Replace some files of one partition by one file, with the rows that `change` makes of theirs.

    Return False if another writer was first; then nothing has changed. Raise InvariantBroken if the files don't have as
    many rows as the table's log says.
    """
    folder = path / locations.attempt_folder(app_id, number, uuid4().hex)
    new = write_files(folder, old[0].partition, 0, _changed(path, old, change))
    passing("rewrite-before-commit")
    done = replace_files(path, old, [new], app_id, number)
    passing("rewrite-after-commit")
    if not done:
        clear_rewritten(folder)
    return done


def clear_rewritten(folder: Location) -> None:
    """Remove the files of an attempt that no commit names."""
    with suppress(OSError, OnlyonceError):  # what stays is swept
        stores.of(folder).clear(folder)


def _changed(path: Location, old: Sequence[File], change: Rows) -> pa.Table:
    rows, before = read_files(path, old), sum(file.rows for file in old)
    if rows.num_rows != before:
        raise InvariantBroken(
            f"{path}: {len(old)} files have {rows.num_rows} rows, and {before} by the table's log",
            data="nothing was changed",
            hint="are files of the table damaged? `onlyonce audit --data` compares them with the log",
        )
    return change(rows)


def write_files(folder: Location, partition: dict[str, str], number: int, rows: pa.Table) -> Location:
    """Write a data file of an attempt, by its number, flush it to the disk, and return its location."""
    new = folder.joinpath(*(f"{name}={value}" for name, value in partition.items()), f"part-{number:05}.parquet")
    arrow_files.write(
        new, rows, ROW_GROUP, use_dictionary=own_tables.worth_it(rows), compression="zstd", store_schema=False
    )
    stores.sync(new)
    return new


def read_files(path: Location, old: Sequence[File], columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of files of one partition, with the table's current columns, or some of them."""
    there = pa.schema(opening.table(path).schema().to_arrow())
    schema = pa.schema(
        field.with_nullable(True)
        for field in there
        if field.name not in old[0].partition and (columns is None or field.name in columns)
    )
    return pa.concat_tables([_fitted(_parquet(path / file.path, columns), schema) for file in old])


def _parquet(path: Location, columns: Sequence[str] | None) -> pa.Table:
    with arrow_files.opened(path) as file:
        return file.read(columns)


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def replace_files(path: Location, old: Sequence[File], new: Sequence[Location], app_id: str, number: int) -> bool:
    """Commit files in place of others, of any partitions. Return False if one of the old ones is gone; then nothing
    changes.

    A commit whose answer was lost is found by its new files, not by its transaction: another writer may use the same
    number.
    """
    ours = {str(locations.below(file, path)) for file in new}
    for file in old:
        stores.of(path).renew(path / file.path)  # it is an old file from now on
    # delta-rs takes this for an append, which need not conflict with other commits. So it may not retry by itself: each
    # try is conditional on the version that was read.
    for attempt in own_tables.tries(path):
        with attempt:
            table = opening.table(path)
            there = set(table.get_add_actions(flatten=True).column("path").to_pylist())
            if ours and ours <= there:
                return True
            if not {file.path for file in old} <= there:
                return False
            now = int(time.time() * 1000)
            actions: list[AddAction | RemoveAction] = [
                RemoveAction(
                    path=file.path, data_change=False, deletion_timestamp=now, size=file.bytes,
                    partition_values=file.partition,
                ) for file in old
            ]  # fmt: skip
            indexed = statistics.columns(table)
            actions += [own_tables.added(path, file, indexed, data_change=False) for file in new]
            properties = CommitProperties(
                custom_metadata={
                    "userMetadata": opening.text({stored_names.NOTE_APP_ID: app_id, stored_names.NOTE_VERSION: number}),
                    "isBlindAppend": False,
                },
                app_transactions=[Transaction(app_id, number, now)],
                max_commit_retries=0,
            )
            table.create_write_transaction(
                actions, "append", table.schema(), table.metadata().partition_columns, commit_properties=properties
            )
    return True


def shorten_log(path: Location, upto: int, hours: float) -> int:
    """Remove the log's entries before the last checkpoint at or before `upto`, if they are older than some hours.

    Return the number of files. Every version from `upto` on can be read as before.
    """
    store, log = stores.of(path), path / opening.LOG
    named = [(int(name[:20]), name) for name in store.names(log) if name[:20].isdigit()]
    checkpoints = [version for version, name in named if ".checkpoint" in name and version <= upto]
    if not checkpoints:
        return 0
    removed = 0
    for _, name in sorted((version, name) for version, name in named if version < max(checkpoints)):
        there = store.look(log / name)
        if there and time.time() - there.modified >= hours * 3600:
            store.delete(log / name)
            removed += 1
    return removed


# Remove rows of `events`. One commit removes their files from the table, and adds new files with the other rows.
#
# The commit declares that the files change no data (`dataChange` false), as a compaction does: Spark's streams over the
# table skip it. So only rows that no stream has still to read may be removed. The old files stay on the disk for
# current readers, and `attempt_files` sweeps them.


KEYS = (OO_INCARNATION, OO_BATCH, OO_KIND)

Gone = Callable[[pa.Table], pa.Array]
"""A function that returns which rows to remove, given rows with the columns that it needs."""


@dataclass(frozen=True)
class Cut:
    """A file with rows to remove: their number by incarnation of receive, batch and fate, and the number of rows that
    stay.
    """

    file: File
    counts: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    stay: int = 0


def files_of_batches(rows: pa.Table, last: Mapping[str, int]) -> pa.Array:
    """Return which rows belong to these incarnations of receive, each up to a batch."""
    batches = (
        pc.and_(pc.equal(rows.column(OO_INCARNATION), incarnation), pc.less_equal(rows.column(OO_BATCH), number))
        for incarnation, number in sorted(last.items())
    )
    return reduce(pc.or_, batches, pa.scalar(False))


def cut_rows(path: Location, file: File, columns: Sequence[str], gone: Gone) -> Cut | None:
    """Return what to remove from a file; None if nothing.

    Only these columns are read, and the columns needed for the counts. Control rows stay.
    """
    rows = _with_kind(file, read_files(path, [file], [*KEYS, *columns]))
    going = rows.filter(_mask(rows, gone))
    if not going.num_rows:
        return None
    groups = going.select(list(KEYS)).group_by(list(KEYS)).aggregate([([], "count_all")]).to_pylist()
    counts = Counter({tuple(group[key] for key in KEYS): group["count_all"] for group in groups})
    return Cut(file, counts, rows.num_rows - going.num_rows)


def remove_rows(path: Location, cuts: Sequence[Cut], gone: Gone, app_id: str, number: int) -> bool:
    """Remove these rows in one commit. Return False if another writer was first; then nothing has changed."""
    folder = path / locations.attempt_folder(app_id, number, uuid4().hex)
    new = [
        write_files(folder, one.file.partition, place, _left(path, one.file, gone))
        for place, one in enumerate(cuts)
        if one.stay
    ]
    passing("remove-before-commit")
    done = replace_files(path, [one.file for one in cuts], new, app_id, number)
    passing("remove-after-commit")
    if not done:
        clear_rewritten(folder)
    return done


def _left(path: Location, file: File, gone: Gone) -> pa.Table:
    rows = read_files(path, [file])
    return rows.filter(pc.invert(_mask(_with_kind(file, rows), gone)))


def _mask(rows: pa.Table, gone: Gone) -> pa.Array:
    return pc.and_(pc.fill_null(gone(rows), False), pc.not_equal(rows.column(OO_KIND), CONTROL))


def _with_kind(file: File, rows: pa.Table) -> pa.Table:
    if OO_KIND in rows.column_names:
        return rows
    return rows.append_column(OO_KIND, pa.repeat(pa.scalar(file.partition[OO_KIND]), rows.num_rows))
