"""The manifest of a source: an append-only Delta table in which the driver notes new input, cut into batches once.

Receive streams that table, one of its data files (one batch) at a time, and reads the input that it names. So a replay,
a second driver and a new incarnation read the same input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from onlyonce import settings
from onlyonce.api.pipeline import Pipeline
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import BATCH_NO, SEEN_AT
from onlyonce.engine import session
from onlyonce.tables import arrow_files, attempt_files, opening, own_tables
from onlyonce.tables import commit as tables_commit
from onlyonce.tables.commit import Appended, Own


def append(
    table: Appended, schema: str, rows: Sequence[tuple[Any, ...]], driver: Driver, number: int, app_id: str
) -> bool:
    """Append entries, whose first column is the number of their batch, as one data file for each batch.

    `table`: as of the reading that found the entries. The transaction has a number, so one of two concurrent drivers
    wins. Return False if the other driver has won, with other entries.
    """
    names = session.schema_of(schema).names
    batches = groupby(rows, key=itemgetter(0))
    files = [[dict(zip(names, row, strict=True)) for row in batch] for _, batch in batches]
    content = hashlib.sha256(json.dumps([row[:-1] for row in rows], default=str).encode()).hexdigest()[:32]
    commit = tables_commit.Commit(app_id, number, stored_names.numbered(app_id, number), driver.epoch, content)
    try:
        own_tables.append_rows(files, table, commit)
    except InvariantBroken:
        return False
    return True


def last(table: Location, columns: list[str]) -> pa.Table | None:
    """Return columns of the entries that the last commit with entries has added; None before the first.

    This needs no JVM.
    """
    try:
        _, files = _last_added(table)
        return pa.concat_tables(arrow_files.rows(file.path, columns) for file in files) if files else None
    except FileNotFoundError:  # a compaction has merged these entries, and its commit or its file is gone since
        rows = pa.table(opening.table(table).to_pyarrow_table(columns=list(dict.fromkeys([*columns, BATCH_NO]))))
        return rows.filter(pc.equal(rows[BATCH_NO], pc.max(rows[BATCH_NO]))).select(columns) if len(rows) else None


def last_append(table: Location) -> int:
    """Return the version of the last commit that has added entries; 0 before the first.

    Raise FileNotFoundError if the commit is no longer in the table's log.
    """
    return _last_added(table)[0]


def _last_added(table: Location) -> tuple[int, list[opening.Added]]:
    for version in range(tables_commit.latest(table), -1, -1):
        if files := opening.added(table, version):  # new columns, or entries moved to other files, add none
            return version, files
    return 0, []


def last_entry(entries: pa.Table | pa.RecordBatch) -> tuple[int | None, datetime | None]:
    """Return the number of the last batch among some entries, and when it arrived; None for no entries."""
    number = pc.max(entries[BATCH_NO])
    return number.as_py(), pc.max(
        pc.filter(entries[SEEN_AT], pc.equal(entries[BATCH_NO], number))
    ).as_py() if number.is_valid else None


def name(table: Location) -> str:
    """Return the log's name for a manifest of an instance: its table, and the source if there are several."""
    above = table.parent
    return f"{above.name}/{table.name}" if above.parent.name == stored_names.SOURCES_FOLDER else table.name


def last_batches(instance: str) -> dict[str, int]:
    """Return the number of the last batch of each manifest of an instance, by its name."""
    tables = [table for table in attempt_files.of(instance) if opening.any_in(table)]
    found = {name(table): last_batch(table) for table in tables}
    return {manifest: number for manifest, number in found.items() if number is not None}


@dataclass(frozen=True)
class Vouched:
    """One of the platform's own tables: up to which `unit` (a version, or a batch) the log vouches for it, and how far
    it reaches now; -1 for nothing.
    """

    at: Location
    unit: str
    vouched: int
    there: int


def vouched(table: Location, batch_no: int | None) -> Vouched:
    """Return how far a manifest reaches. Its batches up to `batch_no` were read; None: no batch was."""
    there = last_batch(table) if batch_no is not None and tables_commit.exists(table) else None
    return Vouched(table, "batch", *(-1 if number is None else number for number in (batch_no, there)))


def last_batch(table: Location) -> int | None:
    """Return the number of the last registered batch; None before the first."""
    entries = last(table, [BATCH_NO])
    return None if entries is None else int(pc.max(entries[BATCH_NO]).as_py())


def after(table: Location, batch_no: int | None, columns: list[str]) -> pa.Table:
    """Return columns of the entries of later batches than `batch_no`; of all batches if it is None."""
    later = [(BATCH_NO, ">", -1 if batch_no is None else batch_no)]
    return pa.table(opening.table(table).to_pyarrow_table(columns=columns, filters=later))


def batches(entries: pa.Table, records: str) -> list[tuple[int, int, datetime]]:
    """Return (number, records, ingestion time) of each batch of some entries, in order.

    `records` is the column with an entry's number of records."""
    found = entries.group_by(BATCH_NO).aggregate([(records, "sum"), (SEEN_AT, "max")]).sort_by(BATCH_NO)
    columns = (found[name].to_pylist() for name in (BATCH_NO, f"{records}_sum", "seen_at_max"))
    return list(zip(*columns, strict=True))


def folder(pipeline: Pipeline, instance: str) -> Location:
    """Return where the manifest of an instance is; each of several sources has its own folder."""
    home = settings.data_location(instance)
    return home / stored_names.SOURCES_FOLDER / pipeline.part.name if pipeline.part else home


def batch(spark: SparkSession, table: Location, batch_no: int) -> DataFrame:
    """Return the entries of one batch by its number, as in the stream.

    Delta's statistics name the one file with these entries; Spark would need a second to find them.
    """
    found = opening.table(table).to_pyarrow_table(filters=[(BATCH_NO, "=", batch_no)])
    return spark.createDataFrame(pa.table(found))


def stream(spark: SparkSession, table: Location, start: int) -> DataFrame:
    """Return a manifest as a stream, one data file (one batch) at a time.

    A new incarnation that has nothing to read yet begins with the last entry, whose batch it knows.
    """
    start = min(start, tables_commit.latest(table))
    return (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 1)
        .option("startingVersion", start)
        .load(str(table))
    )


# What one run has read of a manifest.
#
# Reading a whole manifest opens a file for each of its batches, and a continuous run reads it several times a
# second. So each further reading opens only the files that were added since, and costs as much after a year as on the
# first day. Only one thread of a run may read a manifest. A table that was dropped and created again is not noticed,
# but its run is fenced.


Known = TypeVar("Known")
Readings = dict[str, "Reading[Any]"]
"""The readings of a run, by the manifest's place."""


class Reading(Generic[Known]):
    """How a run reads the manifest at a location, and the state that it has computed from it.

    whole   computes it from all entries
    more    computes it from what was known and these columns of the new entries; None: the manifest is read as a whole
            whenever it has new entries
    """

    def __init__(
        self,
        at: Location,
        whole: Callable[[Location], Known],
        columns: Sequence[str] = (),
        more: Callable[[Known, pa.Table], Known] | None = None,
    ) -> None:
        self._at, self._whole, self._columns, self._more = at, whole, list(columns), more
        self._table: Own | None = None
        self._read: tuple[int, Known] | None = None

    @property
    def table(self) -> Own:
        """Return the table as of the last reading, to which the next entries are appended."""
        assert self._table is not None, "nobody has looked yet"
        return self._table

    def look(self) -> Known:
        """Return what is known by the current table."""
        self._table = self._table.look() if self._table else Own(self._at)
        now = self._table.table.version()
        if self._read is None or self._read[0] != now:
            self._read = now, self._made(now)
        return self._read[1]

    def _made(self, now: int) -> Known:
        if self._read is None or self._more is None:
            return self._whole(self._at)
        files = self._added(self._read[0], now)
        if files is None:
            return self._whole(self._at)
        return (
            self._more(self._read[1], pa.concat_tables(arrow_files.rows(file, self._columns) for file in files))
            if files
            else self._read[1]
        )

    def _added(self, before: int, now: int) -> list[Location] | None:
        """Return the files that commits have added since version `before`; None if the table must be read as a whole.

        This is so if entries of the log or files of the table were removed."""
        try:
            since = [opening.actions(self._at, version) for version in range(before + 1, now + 1)]
        except FileNotFoundError:
            return None
        if before > now or any("remove" in action for said in since for action in said):
            return None
        return [file.path for said in since for file in opening.added_by(self._at, said)]


def reading_of(readings: Readings | None, at: Location, make: Callable[[], Reading[Known]]) -> Reading[Known]:
    """Return the run's reading of the manifest at a location, made at the first call; without a run a new reading."""
    return make() if readings is None else readings.setdefault(str(at), make())
