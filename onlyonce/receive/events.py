"""The table `events`: every record that receive has judged, except duplicates; and the control rows.

What is in this table never changes. It is append-only, one Delta commit for each receive batch or close, partitioned
by `oo_kind` (kept, invalid, remnant, control).
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
from onlyonce.core.frontier import Frontier, Turn, after_batch
from onlyonce.core.locations import Location
from onlyonce.core.records import RecordPlaces
from onlyonce.core.stored_names import (
    CONTROL,
    KEPT,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_FRONTIER,
    OO_HIGH,
    OO_KIND,
    OO_LINEAGE,
    OO_LOW,
    OO_PARTITION,
    OO_PLACE,
    OO_RAW,
    OO_REASON,
    OO_SYSTEM_TIME,
    OO_UNKNOWN,
)
from onlyonce.core.windows import Micros
from onlyonce.engine import session
from onlyonce.receive.exchange import CODE
from onlyonce.sources.values import parse
from onlyonce.sources.values.fast_json import INSTANT
from onlyonce.sources.values.parse import PLACED
from onlyonce.tables import arrow_files, commit, opening, own_tables

FRONTIER = "struct<tide: timestamp, ended: timestamp, silent_tide: timestamp, silent_clock: timestamp>"
PLATFORM = (
    f"{OO_KIND} string, {OO_HIGH} long, {OO_LOW} long, {OO_EVENT_TIME} timestamp, {OO_SYSTEM_TIME} timestamp, "
    f"{OO_LINEAGE} string, {OO_BATCH} long, {OO_PARTITION} int, {OO_FRONTIER} {FRONTIER}, {OO_REASON} string, "
    f"{OO_RAW} string, {OO_UNKNOWN} string, {OO_PLACE} string"
)
PROPERTIES = commit.KEEP_ALL | {
    # What files are skipped by. Without this Delta takes statistics of the first 32 columns, which are the user's, and
    # of none of ours behind them.
    commit.SKIPPING: f"{OO_HIGH},{OO_EVENT_TIME},{OO_SYSTEM_TIME},{OO_LINEAGE},{OO_BATCH}",
}
PLACED_BY = f"{OO_EVENT_TIME} timestamp, {OO_FRONTIER} {FRONTIER}"
"""What says of a row in which window it is, and whether that was closed."""
UNSPLIT = 2147483647
"""The files that one trigger may take: so many that a commit is never split over batches."""


def schema(pipeline: Pipeline) -> StructType:
    """The declared columns and the platform's."""
    return StructType(session.schema_of(pipeline.schema).fields + session.schema_of(PLATFORM).fields)


def make(spark: SparkSession, path: Location, pipeline: Pipeline) -> None:
    """Make the table if there is none, or add the columns that were declared since.

    Raises Refused for a changed type.
    """
    commit.make(path, schema(pipeline), spark, [OO_KIND], PROPERTIES)
    parse.fit_columns(path, schema(pipeline), f"pipeline {pipeline.name}")


def add_control(
    path: Location, commit: commit.Commit, lineage: str, number: int, reached: Frontier, now: datetime
) -> int:
    """Commit one control row; gives the table's version.

    `number` is the batch that it follows, or a close's, negative.
    """
    row = {
        OO_SYSTEM_TIME: now, OO_LINEAGE: lineage, OO_BATCH: number,
        OO_FRONTIER: {name: to_time(value) for name, value in asdict(reached).items()},
    }  # fmt: skip
    return own_tables.append_rows([[row]], path, commit, {OO_KIND: CONTROL})


def stream(spark: SparkSession, path: Location, start: int | None, files: int = UNSPLIT) -> DataFrame:
    """The table as a stream, whole commits at a time: from a version on, or (None) all that it has now and then what
    comes.

    `files` ends a batch: as many as some whole commits have."""
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", files)
    return (reader if start is None else reader.option("startingVersion", start)).load(str(path))


def kept_files(path: Location, received: list[Received]) -> list[Location]:
    """The data files with the kept rows of some receive batches, by the commits that hold them.

    No look at the table's state, which grows with it. Not for batches whose commits are compacted (`past_rows`). No JVM
    needed.
    """
    added = [file for one in received for file in opening.added(path, one.delta_version)]
    return [file.path for file in added if file.partition[OO_KIND] == KEPT]


def count(files: list[Location]) -> int:
    """How many rows data files hold, as they say themselves."""
    return sum(arrow_files.footer(file).num_rows for file in files)


# The rows of `events` as of an earlier version, and those of some batches, whatever has become of the files that they
# were written to.
#
# Old commits are compacted (docs/specification/compaction.md): their rows are in other files, and Delta's log forgets
# them. So nobody asks Delta for an old version. The table is read as it is now, less what has come later; a row says of
# which batch it is, and the log of which version that is.
#
# Who calls it: outputs, backfills, releases. Errors: those of Spark.


def rows_as_of(context: RunContext, version: int) -> DataFrame:
    """The rows of all kinds but control that batches of receive have put into `events` up to a version."""
    last = Compactions(context.database).last_in(context.instance, version)
    return rows_upto(context.spark, context.events, last)


def rows_upto(spark: SparkSession, path: Location, last: Mapping[str, int]) -> DataFrame:
    """The rows of all kinds but control of these lives of receive, each up to a batch."""
    return spark.read.format("delta").load(str(path)).filter((F.col(OO_KIND) != CONTROL) & rows_in_batches(last))


def rows_in_batches(last: Mapping[str, int], after: Mapping[str, int] | None = None) -> Column:
    """Whether a row is of one of these lives of receive, up to its batch; and of a later one than `after` has of that
    life."""
    return reduce(
        lambda found, one: found | _of_life(one[0], (after or {}).get(one[0], -1), one[1]),
        sorted(last.items()),
        F.lit(False),
    )


def _of_life(lineage: str, after: int, last: int) -> Column:
    found = (F.col(OO_LINEAGE) == lineage) & (F.col(OO_BATCH) <= last)
    return found & (F.col(OO_BATCH) > after) if after >= 0 else found


def rows_kept(spark: SparkSession, path: Location, schema: StructType, received: list[Received]) -> DataFrame:
    """The kept rows of some receive batches, with the columns of a schema."""
    intact = [one for one in received if not one.compacted]
    files = kept_files(path, intact)
    rows = session.file_reader(spark).schema(schema).parquet(*map(str, files)) if files else _none(spark, schema)
    moved = [one for one in received if one.compacted]
    if not moved:
        return rows
    table = spark.read.format("delta").load(str(path)).filter(F.col(OO_KIND) == KEPT)
    ids = spark.createDataFrame([(one.lineage, one.batch_id) for one in moved], f"{OO_LINEAGE} string, {OO_BATCH} long")
    numbers = [one.batch_id for one in moved]
    between = F.col(OO_BATCH).between(min(numbers), max(numbers))  # what files are skipped by
    found = table.filter(between).join(F.broadcast(ids), [OO_LINEAGE, OO_BATCH], "left_semi")
    return rows.unionByName(found.select(*schema.names))


def _none(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, as a local relation: Spark's optimizer ends at it, and there is no job.

    (Of an empty list Spark makes an RDD.)
    """
    nothing = spark.createDataFrame(pa.table({"n": pa.array([], pa.int8())}))
    return nothing.select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields])


# Writes the data files of `events` of one task, by Arrow: one file for each kind of record that the task has.
#
# Each attempt writes under names of its own, and tells of a file once it is on disk. The rows are in the table when the
# driver's commit names the file (`own_tables`). Who calls it: `receive_task`. Errors: OSError, which fails the task,
# and Spark tries it again. `onlyonce.tables.attempt_files` removes what a killed attempt has left.


FRONTIER_ROW = pa.struct([(name, INSTANT) for name in ("tide", "ended", "silent_tide", "silent_clock")])
HELD = stored_names.OO_BYTES.encode()
"""The entry of a file's footer that says how many bytes its rows take in memory: encoded rows may be a thousand times
smaller."""
ROWS, BYTES = 1 << 17, 1 << 26
"""A row group is written as soon as it has so many rows, or takes so much memory."""


@dataclass(frozen=True)
class Stamp:
    """What all records of a batch have alike."""

    system_time: datetime
    lineage: str
    batch_id: int
    frontier: Frontier
    turn: Turn | None = None
    places: RecordPlaces = field(default_factory=RecordPlaces)

    def after(self, largest: Micros | None) -> Frontier:
        """The frontier once the batch is committed, as far as a task knows that has kept this largest event time."""
        return after_batch(self.frontier, self.turn, largest)

    def columns(self, rows: int, partition: int, frontier: Frontier) -> dict[str, pa.Array]:
        """These as columns of so many rows."""
        known = {name: to_time(value) for name, value in asdict(frontier).items()}
        return {
            OO_SYSTEM_TIME: pa.repeat(pa.scalar(self.system_time, INSTANT), rows),
            OO_LINEAGE: pa.repeat(pa.scalar(self.lineage), rows),
            OO_BATCH: pa.repeat(pa.scalar(self.batch_id, pa.int64()), rows),
            OO_PARTITION: pa.repeat(pa.scalar(partition, pa.int32()), rows),
            OO_FRONTIER: pa.repeat(pa.scalar(known, FRONTIER_ROW), rows),
        }


class EventFiles:
    """Open files, as a context; at its end they are whole, and `paths` has their names."""

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
        """Records of one kind; a control row has a frontier of its own."""
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
        """What all rows have alike, made once for the most rows that came so far."""
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
