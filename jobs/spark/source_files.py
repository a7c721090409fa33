"""The inbox of files, by a registry of our own.

Spark's file source takes a file replaced under its name as seen, has no positions and dies or loses rows
on a vanished file (experiments, B22). So the driver lists the inbox and appends what is new to the Delta
table `files`; receive streams that table, one of its data files a batch, and reads the files named there.
The cut into batches is made here, once: by sorted name, `max_files_a_batch` at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs import record_id
from jobs.commitlog.lineages import Driver
from jobs.model import releasing
from jobs.model.batch import EPOCH
from jobs.model.declare import Pipeline
from jobs.model.errors import InvariantBroken, Superseded
from jobs.spark import delta, line_reader, parse
from jobs.spark.listing import InputFile as InputFile
from jobs.spark.listing import changed, new_files, packed, records

SCHEMA = "batch_no long, path string, size long, modified_ns long, lines long, refusal string, seen_at timestamp"
PATTERN = set("{}[]*?\\")
AS_IT_IS = {
    "__globPaths__": "false",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Names are taken literally, and Hadoop's checksum files are left alone: it can't look for that of a name with a colon,
and a stale one (`.name.crc`, of a producer that uses Hadoop) would stop every run."""
LISTINGS = 5
NO_PLACE = -1
"""In the place of a position: the file as a whole."""
NO_BATCH = -1
"""In the place of a number of the registry: nothing was registered yet."""


@dataclass(frozen=True)
class Inbox:
    """Where files come in, and the table `files` that remembers them."""

    instance: str
    folder: Path
    table: Path
    max_files_a_batch: int
    header: str | None = None


def register(spark: SparkSession, inbox: Inbox, driver: Driver, now: datetime) -> int:
    """Append what is new in the inbox to the registry; gives the number of new entries.

    The transaction of the append is numbered, so of two drivers that list at once one wins and the other
    lists again. A file replaced under its old name becomes an entry with a refusal: counted as one invalid.
    """
    delta.make(inbox.table, StructType.fromDDL(SCHEMA), spark, [], delta.KEEP_ALL)
    for _ in range(LISTINGS):
        added = _register_once(spark, inbox, driver, now)
        if added is not None:
            return added
    raise Superseded(
        f"{inbox.table}: another driver registers the same inbox, {LISTINGS} times in a row",
        data="each file is registered once, by whichever driver was first",
        hint="nothing to do while the other one runs",
    )


def _register_once(spark: SparkSession, inbox: Inbox, driver: Driver, now: datetime) -> int | None:
    # None: another driver took the number with a listing of its own.
    app_id = f"{inbox.instance}/files"
    number = (delta.version(inbox.table, app_id) or 0) + 1
    known, batches, last_seen = _known(inbox.table)
    # System time never moves back, whatever the clock does: it decides what may be collected.
    now = max(now, last_seen) if last_seen else now
    found = list(new_files(inbox.folder, known, inbox.header))
    if not found:
        return 0
    rows = [
        (batches + offset, f.path, f.size, f.modified_ns, f.lines, f.refusal, now)
        for offset, group in enumerate(batched_files(found, inbox.max_files_a_batch))
        for f in group
    ]
    cuts = rows[-1][0] - batches + 1
    frame = spark.createDataFrame(rows, StructType.fromDDL(SCHEMA))
    frame = frame.repartitionById(cuts, (F.col("batch_no") - batches).cast("int"))
    listing = hashlib.sha256(repr(found).encode()).hexdigest()[:32]
    commit = delta.Commit(app_id, number, f"{app_id}/{number}", driver.epoch, listing)
    try:
        delta.append(frame, inbox.table, commit, [])
    except InvariantBroken:
        return None
    return len(rows)


def waiting(inbox: Inbox) -> list[InputFile]:
    """What a run would register now; writes nothing."""
    known = _known(inbox.table)[0] if delta.exists(inbox.table) else {}
    return list(new_files(inbox.folder, known, inbox.header))


def stream(spark: SparkSession, inbox: Inbox, start: int) -> DataFrame:
    """The registry as a stream, one data file (the files of one batch) at a time."""
    return (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 1)
        .option("startingVersion", start)
        .load(str(inbox.table))
    )


@dataclass(frozen=True)
class Listed:
    """The files of one batch by name, the batch's number in the registry, and its system time."""

    files: list[InputFile]
    batch_no: int
    seen_at: datetime

    def summary(self) -> dict[str, Any]:
        """What the batch row says of them."""
        names = [f.path for f in self.files]
        lines = sum(f.lines for f in self.files)
        ends = {"first": names[0], "last": names[-1]} if names else {}
        said = {"batch_no": self.batch_no, "files": len(names), "lines": lines, **ends}
        released = releasing.among(names)
        return {**said, "released": released} if released else said


def listed(batch: DataFrame) -> Listed:
    """The entries of a batch of the registry's stream. There are none in the first batch of an inbox that was empty."""
    # Times leave Spark as numbers: collected as datetimes they would be in the driver's own time zone.
    rows = sorted(batch.withColumn("seen_at", F.unix_micros("seen_at")).collect(), key=lambda row: row.path)
    if not rows:
        return Listed([], NO_BATCH, datetime.now(UTC))
    files = [InputFile(r.path, r.size, r.modified_ns, r.lines, r.refusal) for r in rows]
    return Listed(files, rows[0].batch_no, EPOCH + timedelta(microseconds=rows[0].seen_at))


def unreadable(files: list[InputFile]) -> dict[str, str]:
    """What is wrong with the files of a batch at the moment when it begins, by path. The batch row keeps it,
    so that a replay decides the same."""
    found = {f.path: f.refusal or changed(f) for f in files}
    return {path: reason for path, reason in found.items() if reason}


def lines(
    spark: SparkSession, pipeline: Pipeline, files: list[InputFile], bad: dict[str, str]
) -> tuple[DataFrame, int]:
    """The lines of a batch as (value, reason), and how many there must be. By position also as (oo_file, oo_position).

    The count comes from the registry, counted when the file was accepted: another way than Spark's reader,
    so conservation is no tautology (experiments, B12). A file that can't be read counts as one record.
    """
    readable = [f for f in files if f.path not in bad]
    rows = [(path, record_id.of_file(path), NO_PLACE, reason) for path, reason in sorted(bad.items())]
    refused = spark.createDataFrame(rows, f"{line_reader.SCHEMA}, reason string")
    columns = ["value", *(parse.PLACE if pipeline.by_position else ()), "reason"]
    frames = [refused] if bad else []
    # Spark's text source is the faster one; it knows no places and no headers.
    plain = [] if pipeline.by_position or pipeline.source.header else [f.path for f in readable if not packed(f.path)]
    if plain:
        frames.append(text(spark, plain).withColumn("reason", F.lit(None).cast("string")))
    if cut := [_range(pipeline, f) for f in readable if f.path not in set(plain)]:
        frames.append(line_reader.read(spark, cut).withColumn("reason", F.lit(None).cast("string")))
    frame = reduce(DataFrame.union, [one.select(*columns) for one in frames or [refused]])
    return frame, records(((f.path, f.lines) for f in files), bad)


def _range(pipeline: Pipeline, file: InputFile) -> line_reader.Range:
    key, skipped = record_id.of_file(file.path), int(pipeline.source.header)
    if packed(file.path):
        return line_reader.packed(file.path, key, skipped)
    return line_reader.Range(file.path, key, 0, file.size, file.size, skipped=skipped)


def text(spark: SparkSession, paths: list[str]) -> DataFrame:
    """The lines of files, as Spark's text source reads them. Called also by a release, for files that could not be read."""
    # Spark 4.2 reads all paths again for each one that looks like a pattern, also where it is told to take names
    # literally; one that is read alone is read once.
    reader = spark.read.option("lineSep", "\n").options(**AS_IT_IS)
    alone = [path for path in paths if PATTERN.intersection(path)]
    together = [path for path in paths if not PATTERN.intersection(path)]
    frames = [reader.text(group) for group in ([together] if together else []) + [[path] for path in alone]]
    return reduce(DataFrame.union, frames)


def batched_files(files: list[InputFile], size: int) -> Iterator[list[InputFile]]:
    """Groups of at most `size` files, in order."""
    for start in range(0, len(files), size):
        yield files[start : start + size]


def _known(table: Path) -> tuple[dict[str, tuple[int, int]], int, datetime | None]:
    # By path the last (size, mtime) seen, the number of batches cut so far, and the last system time.
    entries: pa.Table = pa.table(
        DeltaTable(str(table)).to_pyarrow_table(columns=["batch_no", "path", "size", "modified_ns", "seen_at"])
    ).sort_by("batch_no")
    marks = zip(entries["size"].to_pylist(), entries["modified_ns"].to_pylist(), strict=True)
    last: Any = pc.max(entries["batch_no"]).as_py()
    known = dict(zip(entries["path"].to_pylist(), marks, strict=True))
    return known, 0 if last is None else last + 1, pc.max(entries["seen_at"]).as_py()
