"""`events` is compacted, and the log of that table kept short. No Spark. Protocol step 19.

Each batch of receive adds a few small files to `events` and an entry to the log of the table. Here the files of commits that nobody reads one by one any more
become large ones, in order of event time, and what the log has for such commits goes. No row changes, and no stream over the table notices
(`storage/rewriting`). That commits up to a version are compacted is noted in PostgreSQL first: from then on whoever starts at the beginning takes the table as it
is, and whoever wants rows of those commits looks for them by their batch (`receive/past_rows`).

Who calls it: `maintain`. Errors: DeltaError, OSError and ArrowException where a table can't be read or written. Not promised: that all is compacted. A query that stands still
holds what it has not read, and the report names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from sqlalchemy import Connection

from onlyonce import settings
from onlyonce.commitlog import compaction
from onlyonce.database.connect import Database, run
from onlyonce.failpoints import passing
from onlyonce.model.batch import read_upto
from onlyonce.model.operate import compacting
from onlyonce.model.operate.compacting import Reader
from onlyonce.operate import under_way
from onlyonce.run import lineage
from onlyonce.storage import delta, rewriting
from onlyonce.storage.rewriting import File

ORDER = ("oo_event_time", "oo_system_time")
"""What a file is ordered by. Control rows have no event time."""
LOG_HOURS = 24.0
"""How long an entry of the table's log stays at least: longer than anybody takes to read a version that he has found."""


def compact(database: Database, instance: str, *, dry_run: bool) -> dict[str, Any] | None:
    """Compact the table of a pipeline; gives what was done, or with `dry_run` would be. None where there is no table."""
    path = settings.data_dir(instance) / "events"
    if not delta.exists(path):
        return None
    table = DeltaTable(str(path))
    upto, held_by = run(database, lambda conn: _upto(conn, instance))
    groups = list(_groups(path, table, upto))
    before, done, shortened = len(table.file_uris()), 0, 0
    if not dry_run:
        run(database, lambda conn: compaction.raise_to(conn, instance, upto))
        passing("compact-after-note")
        done = sum(_rewrite(path, instance, group) for group in groups)
        if done:
            DeltaTable(str(path)).create_checkpoint()
        passing("compact-after-checkpoint")
        oldest = under_way.hours(database, instance)
        shortened = rewriting.shorten_log(
            path, min([upto, *under_way.first_batches(database, instance)]), max(LOG_HOURS, oldest)
        )
        passing("compact-after-log")
    return {
        "pipeline": instance, "up to version": upto, "held by": held_by, "new files": done if not dry_run else len(groups),
        "files before": before, "files after": len(DeltaTable(str(path)).file_uris()), "log files": shortened,
    }  # fmt: skip


def _upto(connection: Connection, instance: str) -> tuple[int, str | None]:
    readers = [
        _reader(connection, instance, one) for one in compaction.queries(connection, instance) if one.query != "receive"
    ]
    return compacting.whole_from(compaction.ended(connection, instance), readers)


def _reader(connection: Connection, instance: str, one: Any) -> Reader:
    again = lineage.start_from(connection, instance, one.query, one.lineage, None) or {}
    return Reader(
        one.query, one.batch_id, read_upto(one.source_from), read_upto(one.source_to), int(again.get("version", 0))
    )


def _groups(path: Path, table: DeltaTable, upto: int) -> Iterator[list[File]]:
    """The files that are put together: of one kind of rows each, in order of time."""
    newer = {file.path for version in range(upto + 1, table.version() + 1) for file in delta.added(path, version)}
    old = [file for file in rewriting.files(table, ORDER) if path / file.path not in newer and file.rows is not None]
    # By the last of their times: of a batch with a late record the first says little.
    old.sort(key=lambda file: (sorted(file.partition.items()), file.largest is not None, file.largest))
    for _, some in groupby(old, key=lambda file: file.partition):
        yield from compacting.together(list(some))


def _rewrite(path: Path, instance: str, group: list[File]) -> bool:
    number = DeltaTable(str(path)).version()
    return rewriting.rewrite(path, group, f"{instance}/receive/0/compaction", number, _in_order)


def _in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in ORDER])
