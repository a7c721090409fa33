"""The table `events`: every record that receive has judged, except duplicates; and the control rows.

What is in this table never changes. It is append-only, one Delta commit for each receive batch or close, partitioned
by `oo_kind` (kept, invalid, remnant, control).
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from onlyonce.commitlog.batches import Received
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.batch import to_time
from onlyonce.model.frontier import Frontier
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import (
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
from onlyonce.session import schemas
from onlyonce.sources.parse import columns
from onlyonce.storage import delta, log_entries, own_tables
from onlyonce.storage.stores import arrow

FRONTIER = "struct<tide: timestamp, ended: timestamp, silent_tide: timestamp, silent_clock: timestamp>"
PLATFORM = (
    f"{OO_KIND} string, {OO_HIGH} long, {OO_LOW} long, {OO_EVENT_TIME} timestamp, {OO_SYSTEM_TIME} timestamp, "
    f"{OO_LINEAGE} string, {OO_BATCH} long, {OO_PARTITION} int, {OO_FRONTIER} {FRONTIER}, {OO_REASON} string, "
    f"{OO_RAW} string, {OO_UNKNOWN} string, {OO_PLACE} string"
)
PROPERTIES = delta.KEEP_ALL | {
    # What files are skipped by. Without this Delta takes statistics of the first 32 columns, which are the user's, and
    # of none of ours behind them.
    delta.SKIPPING: f"{OO_HIGH},{OO_EVENT_TIME},{OO_SYSTEM_TIME},{OO_LINEAGE},{OO_BATCH}",
}
PLACED_BY = f"{OO_EVENT_TIME} timestamp, {OO_FRONTIER} {FRONTIER}"
"""What says of a row in which window it is, and whether that was closed."""
UNSPLIT = 2147483647
"""The files that one trigger may take: so many that a commit is never split over batches."""


def schema(pipeline: Pipeline) -> StructType:
    """The declared columns and the platform's."""
    return StructType(schemas.of(pipeline.schema).fields + schemas.of(PLATFORM).fields)


def make(spark: SparkSession, path: Location, pipeline: Pipeline) -> None:
    """Make the table if there is none, or add the columns that were declared since.

    Raises Refused for a changed type.
    """
    delta.make(path, schema(pipeline), spark, [OO_KIND], PROPERTIES)
    columns.fit(path, schema(pipeline), f"pipeline {pipeline.name}")


def add_control(
    path: Location, commit: delta.Commit, lineage: str, number: int, reached: Frontier, now: datetime
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
    added = [file for one in received for file in log_entries.added(path, one.delta_version)]
    return [file.path for file in added if file.partition[OO_KIND] == KEPT]


def count(files: list[Location]) -> int:
    """How many rows data files hold, as they say themselves."""
    return sum(arrow.footer(file).num_rows for file in files)
