"""The inbox of files, read by our own manifest.

Spark's file source does not notice a file that is replaced under its name. It has no positions, and fails or loses rows
if a file vanishes. So the driver lists the inbox and appends new files to the Delta table `files`. Receive streams that
table, one of its data files for each batch, and reads the files that it names. The batches are cut here, once: by
sorted name, `max_files_a_batch` at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.messages import Kafka
from onlyonce.api.pipeline import DeltaSource, Pipeline
from onlyonce.api.sources import IN_COLUMNS
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core import batch, reprocess, stored_names
from onlyonce.core.batch import EPOCH, NOTHING, Corrections
from onlyonce.core.errors import Refused, Superseded
from onlyonce.core.records import RecordPlaces
from onlyonce.core.stored_names import BATCH_NO, SEEN_AT
from onlyonce.engine import session
from onlyonce.sources import (
    custom,
    delta_log,
    discovery,
    file_bytes,
    folders,
    growing,
    line_reader,
    listing,
    manifest,
    record_id,
    typed_files,
)
from onlyonce.sources.discovery import NO_BATCH as NO_BATCH
from onlyonce.sources.discovery import Inbox as Inbox
from onlyonce.sources.lines import LINE_COLUMN, Lines
from onlyonce.sources.listing import InputFile as InputFile
from onlyonce.sources.listing import changed, records
from onlyonce.sources.manifest import Reading
from onlyonce.sources.record_id import Moved, inode
from onlyonce.tables import commit

FILES = stored_names.FILES_COLUMNS
RANGES = stored_names.PARTS_COLUMNS
"""For a source that is read in ranges, or for objects, whose ETag is the mark."""
LISTINGS = 5
NO_PLACE = -1
"""In place of a position: the file as a whole."""


def inbox_of(pipeline: Pipeline, instance: str, max_files: int | None, skipped: set[str] | None = None) -> Inbox:
    """Return where a pipeline's files come in, and the manifest of an instance.

    `skipped`: listings add the folders that they skip.
    """
    source = pipeline.source
    assert not isinstance(source, Kafka)
    folder = api_pipeline.folder(pipeline)
    assert folder is not None
    table = manifest.folder(pipeline, instance) / stored_names.FILES_MANIFEST
    return Inbox(
        instance,
        folder,
        table,
        max_files or source.max_files_a_batch,
        pipeline,
        record_id.moved_inboxes_of(pipeline.name),
        folders.of(pipeline, skipped),
    )


def placed(inbox: Inbox, session: Callable[[], SparkSession]) -> Inbox:
    """Return the inbox with the current location of a table, by path or from a Spark catalog. Raise Refused."""
    source = inbox.pipeline.source
    if not isinstance(source, DeltaSource):
        return inbox
    return replace(
        inbox, folder=delta_log.catalog_location(session(), source) if source.table else delta_log.log_location(source)
    )


def register(
    spark: SparkSession,
    inbox: Inbox,
    driver: Driver,
    now: datetime,
    reading: Reading[discovery.Registered] | None = None,
    corrected: Corrections = NOTHING,
) -> int:
    """Append new input of the inbox to the manifest, and return the number of new entries.

    `reading`: what the run has read of the manifest before.

    The transaction of the append is numbered, so if two drivers list concurrently, one wins and the other lists again.
    A file that was replaced under its old name becomes an entry with a refusal, which counts as one invalid record.
    The first run of a source with another start than 'earliest' decides the start in an append before the others.
    """
    inbox = placed(inbox, lambda: spark)
    commit.make(inbox.table, session.schema_of(_schema(inbox.pipeline)), spark, [], commit.KEEP_ALL)
    reading = reading or discovery.reading(inbox.table, inbox.pipeline)
    look = partial(_register, inbox, driver, now, reading, corrected)
    added = look()
    if inbox.pipeline.source.is_table:  # each page of versions is an append of its own
        while more := _more(look, added):
            added += more
    return added


def _more(look: Callable[[], int], added: int) -> int:
    # Versions before a refused one are read first; the next run raises its refusal.
    try:
        return look() if added else 0
    except Refused:
        return 0


def _register(
    inbox: Inbox, driver: Driver, now: datetime, reading: Reading[discovery.Registered], corrected: Corrections
) -> int:
    for _ in range(LISTINGS):
        added = _register_once(inbox, driver, now, reading, corrected)
        if added is not None:
            return added
    raise Superseded(
        f"{inbox.table}: another driver registers the same inbox, {LISTINGS} times in a row",
        data="each file is registered once, by whichever driver was first",
        hint="nothing to do while the other one runs",
    )


def _register_once(
    inbox: Inbox, driver: Driver, now: datetime, reading: Reading[discovery.Registered], corrected: Corrections
) -> int | None:
    # None: another driver has taken the transaction's number, or only the start was decided.
    app_id = stored_names.transaction(inbox.instance, stored_names.FILES_BY)
    there = reading.look()
    number = (reading.table.transaction_version(app_id) or 0) + 1
    now = corrected.following(now, manifest.name(inbox.table), there.batches - 1, there.last_seen)
    discovery.look_for_folder(inbox, there)
    start = discovery.undecided(inbox, there)
    first, added = NO_BATCH if start else there.batches, 0
    for found in [[discovery.before(inbox)]] if start else discovery.looks(inbox, there):
        rows = [_row(first + offset, file, inbox.pipeline, now) for offset, group in enumerate(found) for file in group]
        if added:
            # Read the table again: it now has our previous append, without which this append would fail.
            reading.table.look()
        if not manifest.append(reading.table, _schema(inbox.pipeline), rows, driver, number, app_id):
            return None
        first, added, number = first + len(found), added + len(rows), number + 1
    return None if start else added


def _schema(pipeline: Pipeline) -> str:
    return f"{RANGES if discovery.in_ranges(pipeline) else FILES}, seen_at timestamp"


def _row(batch_no: int, f: InputFile, pipeline: Pipeline, now: datetime) -> tuple[Any, ...]:
    file = (batch_no, f.path, f.size, f.modified_ns, f.lines, f.refusal, f.root, list(f.cuts), f.quoted_within)
    return (*file, f.identity, f.begins, f.ends, f.mark, now) if discovery.in_ranges(pipeline) else (*file, now)


def waiting(inbox: Inbox) -> list[list[InputFile]]:
    """Return what a run would register now, in batches; nothing is written."""
    there = discovery.Registered({}, {})
    if commit.exists(inbox.table):
        there = discovery.registered(inbox.table, inbox.pipeline)
    if inbox.pipeline.source.is_table:
        pages = delta_log.log_pages(inbox.pipeline, inbox.folder, there.of_table)
        return [group for page in pages for group in delta_log.batched_versions(page, inbox.max_files_a_batch)]
    there = discovery.decided(inbox) if discovery.undecided(inbox, there) else there
    return [group for look in discovery.looks(inbox, there) for group in look]


def stream(spark: SparkSession, inbox: Inbox, start: int) -> DataFrame:
    """Return the manifest as a stream, one data file (the files of one batch) at a time."""
    return manifest.stream(spark, inbox.table, start)


@dataclass(frozen=True)
class Listed:
    """The files of one batch by name, the batch's number in the manifest, and its ingestion time."""

    files: list[InputFile]
    batch_no: int
    seen_at: datetime

    def size(self) -> int:
        """Return about how many bytes the files have."""
        return sum(max(f.ends - f.begins or f.size, batch.A_RECORD * f.lines) for f in self.files)

    def summary(self) -> dict[str, Any]:
        """Return what the batch row keeps of the files."""
        names = [f.path for f in self.files]
        lines = sum(f.lines for f in self.files)
        ends = {"first": names[0], "last": names[-1]} if names else {}
        said = {BATCH_NO: self.batch_no, "files": len(names), stored_names.LINES: lines, **ends}
        reprocessed = reprocess.among(names)
        return {**said, "reprocessed": reprocessed} if reprocessed else said


def listed(batch: DataFrame, moved: Moved | None = None) -> Listed:
    """Return the entries of a batch of the manifest's stream; none in the first batch of an empty inbox."""
    # Times leave Spark as numbers: collected as datetimes they would be in the driver's own time zone.
    rows = sorted(batch.withColumn(SEEN_AT, F.unix_micros(SEEN_AT)).collect(), key=lambda row: row.path)
    if not rows:
        return Listed([], NO_BATCH, datetime.now(UTC))
    # Input before the source's start is in the manifest, but belongs to no batch.
    files = [] if rows[0].batch_no == NO_BATCH else [_where(_file(row), moved or {}) for row in rows]
    return Listed(files, rows[0].batch_no, EPOCH + timedelta(microseconds=rows[0].seen_at))


def _file(row: Row) -> InputFile:
    stored = {name: value for name, value in row.asDict().items() if name not in (BATCH_NO, SEEN_AT)}
    return InputFile(**stored | {"cuts": tuple(row.cuts)})


def _where(file: InputFile, moved: Moved) -> InputFile:
    now = record_id.place_in_inbox(file.path, moved)
    return file if now == file.path else replace(file, moved_to=now)


def unreadable(pipeline: Pipeline, files: list[InputFile]) -> dict[str, str]:
    """Return the reasons why files of a batch can't be read when it begins, by path.

    The batch row keeps them, so that a replay decides the same."""
    if pipeline.source.in_store:
        good = [f for f in files if not f.refusal]
        return listing.changed_objects(good) | {f.path: f.refusal for f in files if f.refusal}
    found = {f.path: f.refusal or _changed(pipeline, f) for f in files}
    bad = {path: reason for path, reason in found.items() if reason}
    if bad and pipeline.source.has_inbox:
        listing.check_inboxes(file for file in files if file.path in bad and not file.refusal)
    return bad


def _changed(pipeline: Pipeline, file: InputFile) -> str | None:
    links = pipeline.source.links
    if pipeline.source.is_table:
        delta_log.check_table_there(pipeline, file)
        return None
    if file.mark:
        return growing.located(file, links=links)[1]
    return None if file.identity else changed(file, links=links)


def lines(spark: SparkSession, pipeline: Pipeline, files: list[InputFile], bad: dict[str, str]) -> tuple[Lines, int]:
    """Return the lines of a batch (for a source with columns its records), and how many records there must be.

    The count comes from the manifest, which counted the records when the file was accepted. The reader counts another
    way, so conservation is a real check. A file that can't be read counts as one record.
    """
    readable = [f for f in files if f.path not in bad]
    count, places = records(((f.path, f.lines) for f in files), bad), _places(pipeline, files)
    if pipeline.source.format not in IN_COLUMNS:
        return Lines(
            [_range(pipeline, f) for f in readable], _refused(spark, bad) if bad else None, places=places
        ), count
    rows_of = custom.read if pipeline.source.is_own else typed_files.read
    rows = rows_of(spark, pipeline, readable)
    return Lines([], rows.unionByName(_refused(spark, bad), allowMissingColumns=True), places=places), count


def _places(pipeline: Pipeline, files: list[InputFile]) -> RecordPlaces:
    source = pipeline.source
    of_table = source.is_table  # a file of a table is identified with its version
    counts = "record" if source.is_own else "version" if of_table else "row" if source.format in IN_COLUMNS else "byte"
    # A file that can't be read as a whole is identified by its path alone.
    whole = {record_id.of_file(file.path): file.place for file in files}
    names = whole | {key(file): file.identity if of_table else file.place for file in files}
    return RecordPlaces(
        names, counts, {key(file) for file in files if file_bytes.compression_of(file.path)} if counts == "byte" else ()
    )


def _refused(spark: SparkSession, bad: dict[str, str]) -> DataFrame:
    rows = [(path, reason, record_id.of_file(path), NO_PLACE) for path, reason in sorted(bad.items())]
    return spark.createDataFrame(rows, session.schema_of(LINE_COLUMN))


def key(file: InputFile) -> int:
    """Return the number that stands for a file in the places of its records (oo_file)."""
    return record_id.of_file(file.identity or file.path)


def _range(pipeline: Pipeline, file: InputFile) -> line_reader.Range:
    source = pipeline.source
    asked: dict[str, Any] = {
        "skipped": int(source.header),
        "most": source.max_record_bytes,
        "quoted_within": file.quoted_within,
        "delimiter": source.delimiter,
        "encoding": source.encoding,
    }
    path, ending = file.place, file_bytes.compression_of(file.path)
    if pipeline.source.in_store:
        asked |= {"etag": file.mark, "bytes": file.size}
    elif file.identity:
        path = growing.located(file, links=source.links)[0]
    else:
        path = file_bytes.place_of_file(file.place, links=source.links)
    if ending:
        return line_reader.compressed(path, key(file), ending, **asked)
    if file.identity:
        return line_reader.Range(
            path, key(file), file.begins, file.ends, file.ends, inode=inode(file.identity), cuts=file.cuts, **asked
        )
    return line_reader.Range(path, key(file), 0, file.size, file.size, cuts=file.cuts, **asked)
