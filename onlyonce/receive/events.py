"""The table `events`: every record that receive has judged, except duplicates; and the control rows.

Its rows never change. The table is append-only, with one Delta commit for each receive batch or watermark marker. It is
partitioned by `oo_kind` (kept, invalid, expired, control).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import reduce
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.api.pipeline import Pipeline
from onlyonce.commitlog.batches import Received
from onlyonce.commitlog.cuts import Compactions
from onlyonce.context import RunContext
from onlyonce.core import stored_names
from onlyonce.core.batch import to_time
from onlyonce.core.frontier import Frontier, SourceBatch, after_batch
from onlyonce.core.locations import Location
from onlyonce.core.records import RecordPlaces
from onlyonce.core.stored_names import (
    CONTROL,
    KEPT,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_FRONTIER,
    OO_HIGH,
    OO_INCARNATION,
    OO_INGESTION_TIME,
    OO_KIND,
    OO_LOW,
    OO_PARTITION,
    OO_PLACE,
    OO_RAW,
    OO_REASON,
    OO_UNKNOWN,
)
from onlyonce.core.windows import Micros
from onlyonce.engine import session
from onlyonce.receive.exchange import CODE
from onlyonce.sources.values import parse
from onlyonce.sources.values.fast_json import INSTANT
from onlyonce.sources.values.parse import PLACED
from onlyonce.tables import arrow_files, commit, opening, own_tables

FRONTIER = (
    "struct<max_event_time: timestamp, ended: timestamp, silent_max_event_time: timestamp, silent_clock: timestamp>"
)
PLATFORM = (
    f"{OO_KIND} string, {OO_HIGH} long, {OO_LOW} long, {OO_EVENT_TIME} timestamp, {OO_INGESTION_TIME} timestamp, "
    f"{OO_INCARNATION} string, {OO_BATCH} long, {OO_PARTITION} int, {OO_FRONTIER} {FRONTIER}, {OO_REASON} string, "
    f"{OO_RAW} string, {OO_UNKNOWN} string, {OO_PLACE} string"
)
PROPERTIES = commit.KEEP_ALL | {
    # The columns by which files are skipped. By default Delta takes statistics of the first 32 columns: these are the
    # user's, and the platform's columns come after them.
    commit.SKIPPING: f"{OO_HIGH},{OO_EVENT_TIME},{OO_INGESTION_TIME},{OO_INCARNATION},{OO_BATCH}",
}
PLACED_BY = f"{OO_EVENT_TIME} timestamp, {OO_FRONTIER} {FRONTIER}"
"""The columns from which a row's window follows, and whether that window was closed."""
UNSPLIT = 2147483647
"""The largest number of files that one trigger may take, so that no commit is split over batches."""


def schema(pipeline: Pipeline) -> StructType:
    """Return the declared columns and the platform's columns."""
    return StructType(session.schema_of(pipeline.schema).fields + session.schema_of(PLATFORM).fields)


def make(spark: SparkSession, path: Location, pipeline: Pipeline, table: DeltaTable | None = None) -> None:
    """Create the table if there is none, or add the columns that were declared since.

    `table`: the table, if the caller has just opened it. Raise Refused if a type has changed.
    """
    if table is None:
        commit.make(path, schema(pipeline), spark, [OO_KIND], PROPERTIES)
    parse.fit_columns(path, schema(pipeline), f"pipeline {pipeline.name}", table)


def add_control(
    path: Location, commit: commit.Commit, incarnation: str, number: int, reached: Frontier, now: datetime
) -> int:
    """Commit one control row and return the table's version.

    `number` is the batch that the row follows, or the negative number of a watermark marker.
    """
    row = {
        OO_INGESTION_TIME: now, OO_INCARNATION: incarnation, OO_BATCH: number,
        OO_FRONTIER: {name: to_time(value) for name, value in asdict(reached).items()},
    }  # fmt: skip
    return own_tables.append_rows([[row]], path, commit, {OO_KIND: CONTROL})


def stream(spark: SparkSession, path: Location, start: int | None, files: int = UNSPLIT) -> DataFrame:
    """Return the table as a stream of whole commits from version `start` on; if None, of its present content first.

    `files` ends a batch: it is the number of files of some whole commits.
    """
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", files)
    return (reader if start is None else reader.option("startingVersion", start)).load(str(path))


def kept_files(path: Location, received: list[Received]) -> list[Location]:
    """Return the data files with the kept rows of some receive batches, from the commits that hold them. No JVM needed.

    The table's state is not read, because it grows with the table. If a batch's commit is compacted, use `rows_kept`.
    """
    added = [file for one in received for file in opening.added(path, one.delta_version)]
    return [file.path for file in added if file.partition[OO_KIND] == KEPT]


def count(files: list[Location]) -> int:
    """Return how many rows the data files hold, from their footers."""
    return sum(arrow_files.footer(file).num_rows for file in files)


# The rows of `events` as of an earlier version, and the rows of some batches, even if their files were rewritten.
#
# Old commits are compacted (docs/specification/compaction.md): their rows move to other files, and Delta's log forgets
# the commits. So Delta is never asked for an old version. The newest version is read without the rows that came later:
# each row names its batch, and the log has the version of each batch.


def rows_as_of(context: RunContext, version: int) -> DataFrame:
    """Return the rows of all kinds except control that batches of receive have put into `events` up to a version."""
    last = Compactions(context.database).last_in(context.instance, version)
    return rows_upto(context.spark, context.events, last)


def rows_upto(spark: SparkSession, path: Location, last: Mapping[str, int]) -> DataFrame:
    """Return the rows of all kinds except control of these incarnations of receive, each incarnation up to its batch in
    `last`.
    """
    return spark.read.format("delta").load(str(path)).filter((F.col(OO_KIND) != CONTROL) & rows_in_batches(last))


def rows_in_batches(last: Mapping[str, int], after: Mapping[str, int] | None = None) -> Column:
    """Return whether a row is of one of these incarnations of receive, up to the incarnation's batch in `last`.

    If `after` has the incarnation, the row's batch must be later than the batch there.
    """
    return reduce(
        lambda found, one: found | _of_incarnation(one[0], (after or {}).get(one[0], -1), one[1]),
        sorted(last.items()),
        F.lit(False),
    )


def _of_incarnation(incarnation: str, after: int, last: int) -> Column:
    found = (F.col(OO_INCARNATION) == incarnation) & (F.col(OO_BATCH) <= last)
    return found & (F.col(OO_BATCH) > after) if after >= 0 else found


def rows_kept(spark: SparkSession, path: Location, schema: StructType, received: list[Received]) -> DataFrame:
    """Return the kept rows of some receive batches, with the columns of a schema."""
    intact = [one for one in received if not one.compacted]
    files = kept_files(path, intact)
    rows = session.file_reader(spark).schema(schema).parquet(*map(str, files)) if files else _none(spark, schema)
    moved = [one for one in received if one.compacted]
    if not moved:
        return rows
    table = spark.read.format("delta").load(str(path)).filter(F.col(OO_KIND) == KEPT)
    ids = spark.createDataFrame(
        [(one.incarnation, one.batch_id) for one in moved], f"{OO_INCARNATION} string, {OO_BATCH} long"
    )
    numbers = [one.batch_id for one in moved]
    between = F.col(OO_BATCH).between(min(numbers), max(numbers))  # what files are skipped by
    found = table.filter(between).join(F.broadcast(ids), [OO_INCARNATION, OO_BATCH], "left_semi")
    return rows.unionByName(found.select(*schema.names))


def _none(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return no rows, as a local relation: Spark's optimizer stops there, so that no job runs.

    From an empty list Spark would make an RDD.
    """
    nothing = spark.createDataFrame(pa.table({"n": pa.array([], pa.int8())}))
    return nothing.select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields])


# Write the data files of `events` for one task with Arrow: one file for each kind of record that the task has.
#
# Each attempt writes under its own names, and returns a file's name once the file is on disk. The rows are in the table
# when the driver's commit names the file (`own_tables`). If an OSError fails the task, Spark repeats it.
# `onlyonce.tables.attempt_files` removes the files of a killed attempt.


FRONTIER_ROW = pa.struct(
    [(name, INSTANT) for name in ("max_event_time", "ended", "silent_max_event_time", "silent_clock")]
)
HELD = stored_names.OO_BYTES.encode()
"""The key of a file's footer for the number of bytes that its rows take in memory.

Encoded rows may be a thousand times smaller.
"""
ROWS, BYTES = 1 << 17, 1 << 26
"""The number of rows, or of bytes in memory, at which a row group is written."""


@dataclass(frozen=True)
class Stamp:
    """The values that all records of a batch share."""

    ingestion_time: datetime
    incarnation: str
    batch_id: int
    frontier: Frontier
    source_batch: SourceBatch | None = None
    places: RecordPlaces = field(default_factory=RecordPlaces)

    def after(self, largest: Micros | None) -> Frontier:
        """Return the frontier after the batch, as far as a task knows whose largest kept event time is `largest`."""
        return after_batch(self.frontier, self.source_batch, largest)

    def columns(self, rows: int, partition: int, frontier: Frontier) -> dict[str, pa.Array]:
        """Return the shared values as columns with this number of rows."""
        known = {name: to_time(value) for name, value in asdict(frontier).items()}
        return {
            OO_INGESTION_TIME: pa.repeat(pa.scalar(self.ingestion_time, INSTANT), rows),
            OO_INCARNATION: pa.repeat(pa.scalar(self.incarnation), rows),
            OO_BATCH: pa.repeat(pa.scalar(self.batch_id, pa.int64()), rows),
            OO_PARTITION: pa.repeat(pa.scalar(partition, pa.int32()), rows),
            OO_FRONTIER: pa.repeat(pa.scalar(known, FRONTIER_ROW), rows),
        }


class EventFiles:
    """Context of open files. When it ends the files are complete, and `paths` has their names."""

    def __init__(self, folder: Location, stamp: Stamp, partition: int) -> None:
        self.paths: list[str] = []
        self._folder, self._stamp, self._partition = folder, stamp, partition
        self._name = f"part-{partition:05}-{uuid4().hex}.parquet"
        self._open = ExitStack()
        self._writers: dict[str, parquet.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._bytes: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._alike: dict[Frontier, pa.RecordBatch] = {}

    def __enter__(self) -> EventFiles:
        return self

    def __exit__(self, *error: Any) -> None:
        with self._open:
            if error[0] is None:
                for kind in [*self._waiting]:
                    self._write(kind)
                for kind, file in self._writers.items():
                    note_bytes(file, self._held[kind])

    def add(self, kind: str, records: pa.RecordBatch, frontier: Frontier | None = None) -> None:
        """Add records of one kind. A control row has a frontier of its own."""
        if not records.num_rows:
            return
        fixed = self._fixed(records.num_rows, frontier or self._stamp.frontier)
        given = {name: records.column(name) for name in records.schema.names if name not in (CODE, PLACED)}
        if kind == stored_names.INVALID:  # any other record is known by its id
            given[PLACED] = self._placed(records.column(PLACED))
        rows = pa.RecordBatch.from_pydict(given | dict(zip(fixed.schema.names, fixed.columns, strict=True)))
        waiting = self._waiting.setdefault(kind, [])
        waiting.append(rows)
        self._bytes[kind] = self._bytes.get(kind, 0) + rows.nbytes
        if self._bytes[kind] >= BYTES or sum(batch.num_rows for batch in waiting) >= ROWS:
            self._write(kind)

    def _placed(self, places: pa.StructArray) -> pa.Array:
        files, positions = places.flatten()
        coded = files.dictionary_encode()
        around = [self._stamp.places.around(file) for file in coded.dictionary.to_pylist()]
        before, after = (
            pa.array([one and one[side] for one in around], pa.string()).take(coded.indices) for side in (0, 1)
        )
        named = pc.binary_join_element_wise(before, positions.cast(pa.string()), after, "")
        whole = pc.fill_null(pc.less(positions, 0), False)  # a file, or a lost range: few, each with a form of its own
        few = [self._stamp.places.of(*one.values()) for one in places.filter(whole).to_pylist()]
        return pc.replace_with_mask(named, whole, pa.array([one and str(one) for one in few], pa.string()))

    def _fixed(self, rows: int, frontier: Frontier) -> pa.RecordBatch:
        """Return the columns that all rows share, cached for the largest number of rows so far."""
        made = self._alike.get(frontier)
        if made is None or made.num_rows < rows:
            made = self._alike[frontier] = pa.RecordBatch.from_pydict(
                self._stamp.columns(rows, self._partition, frontier)
            )
        return made.slice(0, rows)

    def _write(self, kind: str) -> None:
        rows, self._bytes[kind] = pa.Table.from_batches(self._waiting.pop(kind)), 0
        self._held[kind] = self._held.get(kind, 0) + rows.nbytes
        if kind not in self._writers:
            self._writers[kind] = self._opened(kind, rows)
        self._writers[kind].write_table(rows)

    def _opened(self, kind: str, first: pa.Table) -> parquet.ParquetWriter:
        path = self._folder / f"{OO_KIND}={kind}" / self._name
        # Zstandard takes the time of Snappy here, and two thirds of its space.
        repeated = own_tables.worth_it(first)
        writer = arrow_files.writer(path, first.schema, use_dictionary=repeated, compression="zstd", store_schema=False)
        self.paths.append(str(path))
        return self._open.enter_context(writer)


def note_bytes(file: parquet.ParquetWriter, held: int) -> None:
    """Note in a file's footer how many bytes its rows take in memory."""
    file.add_key_value_metadata({HELD.decode(): str(held)})


def bytes_of(footer: parquet.FileMetaData) -> int | None:
    """Return how many bytes a file's rows take in memory; None if its footer does not say."""
    found = (footer.metadata or {}).get(HELD)
    return None if found is None else int(found)
