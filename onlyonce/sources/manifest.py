"""The registry of a source: an append-only Delta table in which the driver notes new input.

The input is cut into batches here, once.

Receive streams that table, one of its data files (one batch) at a time, and reads the input that it names. So a replay,
a second driver and a new life read the same input. Who calls it: `source_files`, `source_kafka`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from onlyonce import settings
from onlyonce.api.pipeline import Pipeline
from onlyonce.commitlog.lineages import Driver
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
    """Append entries, whose first column is the number of their batch, one data file for each batch.

    `table`: as of the look that found them.

    The transaction has a number, so of two drivers that look at once one wins. False: the other did, with another find.
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
    """These columns of the entries that the last commit with entries has added; None before the first.

    No JVM needed.
    """
    for version in range(tables_commit.latest(table), -1, -1):
        if files := opening.added(table, version):  # a commit of another kind, such as new columns, adds none
            return pa.concat_tables(arrow_files.rows(file.path, columns) for file in files)
    return None


def last_entry(entries: pa.Table | pa.RecordBatch) -> tuple[int | None, datetime | None]:
    """Return the number of the last batch of some entries, and when it arrived; None of none."""
    number = pc.max(entries[BATCH_NO])
    return number.as_py(), pc.max(
        pc.filter(entries[SEEN_AT], pc.equal(entries[BATCH_NO], number))
    ).as_py() if number.is_valid else None


def name(table: Location) -> str:
    """Return what the log calls a registry of an instance: its table, and of several sources which one's it is."""
    above = table.parent
    return f"{above.name}/{table.name}" if above.parent.name == stored_names.SOURCES_FOLDER else table.name


def last_batches(instance: str) -> dict[str, int]:
    """Return the number of the last batch of each registry of an instance, by its name."""
    tables = [table for table in attempt_files.of(instance) if opening.any_in(table)]
    found = {name(table): last_batch(table) for table in tables}
    return {registry: number for registry, number in found.items() if number is not None}


def last_batch(table: Location) -> int | None:
    """The number of the last batch that was registered; None before the first."""
    entries = last(table, [BATCH_NO])
    return None if entries is None else int(pc.max(entries[BATCH_NO]).as_py())


def after(table: Location, batch_no: int | None, columns: list[str]) -> pa.Table:
    """These columns of the entries of later batches than that one; of all where it is None."""
    later = [(BATCH_NO, ">", -1 if batch_no is None else batch_no)]
    return pa.table(opening.table(table).to_pyarrow_table(columns=columns, filters=later))


def batches(entries: pa.Table, records: str) -> list[tuple[int, int, datetime]]:
    """(number, records, system time) of each batch of some entries, in order; `records` is the column with how many an
    entry has."""
    found = entries.group_by(BATCH_NO).aggregate([(records, "sum"), (SEEN_AT, "max")]).sort_by(BATCH_NO)
    columns = (found[name].to_pylist() for name in (BATCH_NO, f"{records}_sum", "seen_at_max"))
    return list(zip(*columns, strict=True))


def folder(pipeline: Pipeline, instance: str) -> Location:
    """Where the registry of an instance is; of several sources each has a folder of its own."""
    home = settings.data_location(instance)
    return home / stored_names.SOURCES_FOLDER / pipeline.part.name if pipeline.part else home


def batch(spark: SparkSession, table: Location, batch_no: int) -> DataFrame:
    """The entries of one batch by its number, as the stream gives them.

    Spark would take a second to find them: by its statistics one file has them.
    """
    found = opening.table(table).to_pyarrow_table(filters=[(BATCH_NO, "=", batch_no)])
    return spark.createDataFrame(pa.table(found))


def stream(spark: SparkSession, table: Location, start: int) -> DataFrame:
    """A registry as a stream, one data file (one batch) at a time.

    A new life that has nothing to read yet begins with the last entry, whose batch it knows.
    """
    start = min(start, tables_commit.latest(table))
    return (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 1)
        .option("startingVersion", start)
        .load(str(table))
    )


# What one run has read of a registry.
#
# A look reads the entries that have come since the last one, so it costs as much after a year as on the first day.
#
# To read a registry as a whole means to open a file for each of its batches, and a long run looks some times a second.
#
# Who makes it: `RunContext`, for as long as a run; who registers once, for that. Errors: those of `opening`. Not
# promised: anything where two threads of a run look at one registry; a table that was dropped and made anew since, from
# which a run is fenced.


Known = TypeVar("Known")
Readings = dict[str, "Reading[Any]"]
"""Those of a run, by the registry's place."""


class Reading(Generic[Known]):
    """What a run knows of the registry at a location.

    whole   makes it of all entries
    more    makes it of what was known and these columns of the entries that came since; None: all is read again, once
            something came
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
        """The table as of the last look, for the next entries to be appended to."""
        assert self._table is not None, "nobody has looked yet"
        return self._table

    def look(self) -> Known:
        """What is known by the table as it is now."""
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
        """The files that commits have added since; None where that does not tell all: entries went from the log, or
        files from the table."""
        try:
            since = [opening.actions(self._at, version) for version in range(before + 1, now + 1)]
        except FileNotFoundError:
            return None
        if before > now or any("remove" in action for said in since for action in said):
            return None
        return [file.path for said in since for file in opening.added_by(self._at, said)]


def reading_of(readings: Readings | None, at: Location, make: Callable[[], Reading[Known]]) -> Reading[Known]:
    """That of a run for the registry at a location, made at the first call; without a run a new one."""
    return make() if readings is None else readings.setdefault(str(at), make())
