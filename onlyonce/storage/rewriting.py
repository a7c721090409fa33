"""Data files of one of the platform's own tables are rewritten: what they say in other files, in one commit of the
table.

The commit adds the new files and removes the old ones, and says of each that it changes no data (`dataChange` false): a
stream of Spark's over the table passes it by, and whoever reads the table as it is finds each row once. delta-rs writes
the commit. Its own `optimize` takes all small files of a partition, those of open batches too, and keeps no order, so
the files are written here.

The new files are an attempt's (`own_tables`), below a folder of its name; a kill leaves files that no commit names. The
old ones stay on the disk for readers under way, and their time begins with the rewrite: it is their time of
modification, by which `attempt_files` sweeps.

Who calls it: `onlyonce.operate.compact.compaction`, `onlyonce.storage.removing`. Errors: DeltaError and OSError;
ArrowException where files don't fit the table's columns. Not promised: that it happens: where another writer has taken
one of the files meanwhile, nothing does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.errors import InvariantBroken, OnlyonceError
from onlyonce.model.storage import attempts
from onlyonce.model.storage.location import Location
from onlyonce.storage import dictionaries, durable, log_entries, opening, own_tables, statistics, stores
from onlyonce.storage.stores import arrow

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


def files(table: DeltaTable, ordered_by: Sequence[str]) -> list[File]:
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
    folder = path / attempts.folder(app_id, number, uuid4().hex)
    new = write(folder, old[0].partition, 0, _changed(path, old, change))
    passing("rewrite-before-commit")
    done = replace(path, old, [new], app_id, number)
    passing("rewrite-after-commit")
    if not done:
        clear(folder)
    return done


def clear(folder: Location) -> None:
    """Take away the files of an attempt that no commit names."""
    with suppress(OSError, OnlyonceError):  # what stays is swept
        stores.of(folder).clear(folder)


def _changed(path: Location, old: Sequence[File], change: Rows) -> pa.Table:
    rows, before = read(path, old), sum(file.rows for file in old)
    if rows.num_rows != before:
        raise InvariantBroken(
            f"{path}: {len(old)} files have {rows.num_rows} rows, and {before} by the table's log",
            data="nothing was changed",
            hint="are files of the table damaged? `onlyonce audit --data` compares them with the log",
        )
    return change(rows)


def write(folder: Location, partition: dict[str, str], number: int, rows: pa.Table) -> Location:
    """Write a data file of an attempt, by its number, to the disk; gives its place."""
    new = folder.joinpath(*(f"{name}={value}" for name, value in partition.items()), f"part-{number:05}.parquet")
    arrow.write(
        new, rows, ROW_GROUP, use_dictionary=dictionaries.worth_it(rows), compression="zstd", store_schema=False
    )
    durable.sync(new)
    return new


def read(path: Location, old: Sequence[File], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of files of one partition, with the columns that the table has now, or some of them."""
    there = pa.schema(opening.table(path).schema().to_arrow())
    schema = pa.schema(
        field.with_nullable(True)
        for field in there
        if field.name not in old[0].partition and (columns is None or field.name in columns)
    )
    return pa.concat_tables([_fitted(_parquet(path / file.path, columns), schema) for file in old])


def _parquet(path: Location, columns: Sequence[str] | None) -> pa.Table:
    with arrow.opened(path) as file:
        return file.read(columns)


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def replace(path: Location, old: Sequence[File], new: Sequence[Location], app_id: str, number: int) -> bool:
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
                    "userMetadata": log_entries.text(
                        {stored_names.NOTE_APP_ID: app_id, stored_names.NOTE_VERSION: number}
                    ),
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
    store, log = stores.of(path), path / log_entries.LOG
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
