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
from onlyonce.core.stored_names import CONTROL, OO_BATCH, OO_KIND, OO_LINEAGE
from onlyonce.failpoints import passing
from onlyonce.tables import arrow_files, opening, own_tables, statistics, stores
from onlyonce.tables import commit as tables_commit
from onlyonce.tables.own_tables import Files
from onlyonce.tables.table_files import Held


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


def change_rows(
    path: Location,
    commit: tables_commit.Commit,
    plan: Plan,
    *,
    replayed: bool = False,
    form: opening.Form | None = None,
) -> int | None:
    """Carry out a plan once; return the table's version as `delta.once` does.

    For `replayed` see `delta.once`, for `form` see `own_tables.append`.
    """
    opened = opening.table(path)
    checked = opening.form(opened) if form is None else form
    return tables_commit.once(
        path, commit, lambda: _carry_out(opened, path, commit, plan, checked), replayed=replayed, table=opened
    )


def _carry_out(
    opened: DeltaTable, path: Location, commit: tables_commit.Commit, plan: Plan, form: opening.Form
) -> int | None:
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


# Data files of one of the platform's own tables are rewritten: what they say in other files, in one commit of the
# table.
#
# The commit adds the new files and removes the old ones, and says of each that it changes no data (`dataChange` false):
# a stream of Spark's over the table passes it by, and whoever reads the table as it is finds each row once. delta-rs
# writes the commit. Its own `optimize` takes all small files of a partition, those of open batches too, and keeps no
# order, so the files are written here.
#
# The new files are an attempt's (`own_tables`), below a folder of its name; a kill leaves files that no commit names.
# The old ones stay on the disk for readers under way, and their time begins with the rewrite: it is their time of
# modification, by which `attempt_files` sweeps.
#
# Who calls it: `onlyonce.operate.compact`, `onlyonce.tables.rewrite`. Errors: DeltaError and OSError;
# ArrowException where files don't fit the table's columns. Not promised: that it happens: where another writer has
# taken one of the files meanwhile, nothing does.


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
    """Of the first column of an order that the file's statistics say something of."""


def rewritten_files(table: DeltaTable, ordered_by: Sequence[str]) -> list[File]:
    """The data files of the table's version."""
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
    """Put one file in the place of some of one partition, with the rows that `change` makes of theirs; False where
    another writer was first, and nothing has changed.

    Raises InvariantBroken for files that have not as many rows as the table says."""
    folder = path / locations.attempt_folder(app_id, number, uuid4().hex)
    new = write_files(folder, old[0].partition, 0, _changed(path, old, change))
    passing("rewrite-before-commit")
    done = replace_files(path, old, [new], app_id, number)
    passing("rewrite-after-commit")
    if not done:
        clear_rewritten(folder)
    return done


def clear_rewritten(folder: Location) -> None:
    """Take away the files of an attempt that no commit names."""
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
    """Write a data file of an attempt, by its number, to the disk; gives its place."""
    new = folder.joinpath(*(f"{name}={value}" for name, value in partition.items()), f"part-{number:05}.parquet")
    arrow_files.write(
        new, rows, ROW_GROUP, use_dictionary=own_tables.worth_it(rows), compression="zstd", store_schema=False
    )
    stores.sync(new)
    return new


def read_files(path: Location, old: Sequence[File], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of files of one partition, with the columns that the table has now, or some of them."""
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
    """Commit files in the place of others, of whatever partitions; False where one of the old ones is not there any
    more, and nothing has changed."""
    for file in old:
        stores.of(path).renew(path / file.path)  # it is an old file from now on
    # delta-rs takes this for an append, which stands beside whatever came between. So it is not to try by itself: each
    # try is at the version that was looked at, and no other.
    for attempt in own_tables.tries(path):
        with attempt:
            table = opening.table(path)
            there = set(table.get_add_actions(flatten=True).column("path").to_pylist())
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
    """Take away what the table's log has for versions that nothing can ask for: what comes before the last checkpoint
    at or before `upto`, as far as it is older than some hours.

    Gives the number of files. Every version from `upto` on can be read as before."""
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


# Rows of `events` are removed: their files go from the table, and what else a file holds is written into a new one, all
# in one commit.
#
# The commit says of each file that it changes no data (`dataChange` false), as a compaction does: a stream of Spark's
# over the table passes it by. So only rows may go that no stream is still to read. The old files stay on the disk for
# readers under way, and `attempt_files` sweeps them.
#
# Who calls it: `onlyonce.operate.compact`, `onlyonce.operate.erase_rows`. Errors: those of `rewriting`.
# Not promised: that it happens; where another writer has taken one of the files meanwhile, nothing does.


KEYS = (OO_LINEAGE, OO_BATCH, OO_KIND)

Gone = Callable[[pa.Table], pa.Array]
"""Which rows go, given rows with the columns that it asks for."""


@dataclass(frozen=True)
class Cut:
    """A file with rows that go: how many by life of receive, batch and fate, and how many stay."""

    file: File
    counts: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    stay: int = 0


def files_of_batches(rows: pa.Table, last: Mapping[str, int]) -> pa.Array:
    """Which rows are of these lives of receive, each up to a batch."""
    batches = (
        pc.and_(pc.equal(rows.column(OO_LINEAGE), lineage), pc.less_equal(rows.column(OO_BATCH), number))
        for lineage, number in sorted(last.items())
    )
    return reduce(pc.or_, batches, pa.scalar(False))


def cut_rows(path: Location, file: File, columns: Sequence[str], gone: Gone) -> Cut | None:
    """What of a file goes; None where nothing does.

    Only these columns are read, and those that count. Control rows stay.
    """
    rows = _with_kind(file, read_files(path, [file], [*KEYS, *columns]))
    going = rows.filter(_mask(rows, gone))
    if not going.num_rows:
        return None
    groups = going.select(list(KEYS)).group_by(list(KEYS)).aggregate([([], "count_all")]).to_pylist()
    counts = Counter({tuple(group[key] for key in KEYS): group["count_all"] for group in groups})
    return Cut(file, counts, rows.num_rows - going.num_rows)


def remove_rows(path: Location, cuts: Sequence[Cut], gone: Gone, app_id: str, number: int) -> bool:
    """Remove these rows in one commit; False where another writer was first, and nothing has changed."""
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
