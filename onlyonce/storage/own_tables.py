"""Commits to the platform's own Delta tables (`events`, the registries): first the data files, then one entry in the log.

Tasks write the files into a folder of their attempt, which nobody reads. Then the driver names the files in one commit by
delta-rs, under the transaction id. Flink's Delta connector works the same way. Spark's own writer computes the state of the whole
table before each commit, to see whether the transaction id is there: three jobs, most of a small batch's time.
No commit names the files of a killed attempt, so they hold no rows. A collection removes them (`onlyonce.storage.attempt_files`).

Who calls it: `receive`, `at_least_once`, `registry`. The user's tables are written by Spark's own writer (`delta`), which knows all
their features. Errors: those of `delta.once`. Not promised: the names of the files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import tenacity
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyarrow import parquet

from onlyonce.failpoints import passing
from onlyonce.model import attempts
from onlyonce.storage import delta

BETWEEN = 20
"""How often a commit is tried while others come between. The files are there already, so a try takes a moment."""


def append(write: Callable[[Path], Sequence[Path]], path: Path, commit: delta.Commit) -> int:
    """Append the files that `write` puts into the folder which it is given, below folders of the partition's values, once;
    gives the table's version that holds them. `write` is not called where an earlier attempt has committed."""

    def once() -> None:
        _commit(path, commit, sorted(write(path / _folder(commit))))

    return delta.once(path, commit, once)


def append_rows(
    files: Sequence[Sequence[Mapping[str, Any]]],
    path: Path,
    commit: delta.Commit,
    partition: Mapping[str, str] | None = None,
) -> int:
    """Append a few rows once, one data file for each sequence of them and in this order; gives the version. No JVM needed."""
    values = dict(partition or {})

    def write() -> None:
        schema = pa.schema(
            field for field in pa.schema(DeltaTable(str(path)).schema().to_arrow()) if field.name not in values
        )
        folder = path.joinpath(_folder(commit), *(f"{name}={value}" for name, value in values.items()))
        folder.mkdir(parents=True)
        names = [folder / f"part-{number:05}.parquet" for number in range(len(files))]
        for rows, file in zip(files, names, strict=True):
            parquet.write_table(pa.Table.from_pylist(list(rows), schema=schema), file)
        _commit(path, commit, names)

    return delta.once(path, commit, write)


def _folder(commit: delta.Commit) -> str:
    return attempts.folder(commit.app_id, commit.version, uuid4().hex)


def _commit(path: Path, commit: delta.Commit, files: Sequence[Path]) -> None:
    passing("table-before-commit")
    # delta-rs refuses a commit whose transaction id another one has used since this look; the next look finds that out.
    for attempt in tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(CommitFailedError),
        stop=tenacity.stop_after_attempt(BETWEEN),
        wait=tenacity.wait_random(0, 0.2),
        reraise=True,
    ):
        with attempt:
            table = DeltaTable(str(path))
            there = table.transaction_version(commit.app_id)
            if there is not None and there >= commit.version:
                return  # a lost answer, or another driver's: `delta.once` looks whose
            properties = CommitProperties(
                custom_metadata={"userMetadata": commit.note(), "isBlindAppend": True},
                app_transactions=[Transaction(commit.app_id, commit.version, int(time.time() * 1000))],
            )
            indexed = [name for name in table.metadata().configuration.get(delta.SKIPPING, "").split(",") if name]
            added = [_add(path, file, indexed) for file in files]
            table.create_write_transaction(
                added, "append", table.schema(), table.metadata().partition_columns, commit_properties=properties
            )


def _add(table: Path, file: Path, indexed: Sequence[str]) -> AddAction:
    place, stat = file.relative_to(table), file.stat()
    partition = dict(part.split("=", 1) for part in place.parts[1:-1])
    found = json.dumps(statistics(parquet.read_metadata(file), indexed))
    return AddAction(str(place), stat.st_size, partition, int(stat.st_mtime * 1000), True, found)


def statistics(footer: parquet.FileMetaData, columns: Sequence[str]) -> dict[str, Any]:
    """What Delta skips files by, as its log has it: the number of rows, and of each column least, largest and nulls.

    A column of which a part of the file says nothing is left out. Without columns there is the number alone: where a table does
    not name its columns, delta-rs takes one that is missing in least and largest for one of nulls, and its filters leave the
    file out. Times are in whole milliseconds, the largest rounded up.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    if not columns:
        return {"numRecords": footer.num_rows}
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in columns:
        parts = [
            group.column(at).statistics
            for group in groups
            for at in range(group.num_columns)
            if group.column(at).path_in_schema == name
        ]
        if not parts or any(part is None or not part.has_null_count for part in parts):
            continue
        found["nullCount"][name] = sum(part.null_count for part in parts)
        known = [part for part in parts if part.has_min_max]
        if known and all(part.has_min_max or not part.num_values for part in parts):
            found["minValues"][name] = _said(min(part.min for part in known), up=False)
            found["maxValues"][name] = _said(max(part.max for part in known), up=True)
    return found


def _said(value: Any, *, up: bool) -> Any:
    if not isinstance(value, datetime):
        return value
    rest = value.microsecond % 1000
    whole = value - timedelta(microseconds=rest)
    if up and rest:
        with suppress(OverflowError):  # in the last millisecond that there is
            whole += timedelta(milliseconds=1)
    return whole.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
