"""Entry point: take invalid or expired rows in again after a correction, exactly once.

Their lines become a new file in the inbox, and the next run reads and counts it like any other file. A set of rows (one
batch, one reason) is reprocessed at most once. A record that is already kept is left out. A record that is still
invalid becomes invalid again, in its new batch, and may be reprocessed again from there.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce import logs, settings
from onlyonce.api import load as declarations
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import Pipeline
from onlyonce.asked import parse as asked_parse
from onlyonce.commitlog import units
from onlyonce.commitlog.cuts import Compactions
from onlyonce.commitlog.drivers import DriverClock
from onlyonce.commitlog.removals import Removals
from onlyonce.commitlog.reprocessings import Put, Reprocessing, Reprocessings
from onlyonce.core import line_values, reprocess, retention, stored_names
from onlyonce.core.batch import to_time
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, Url, is_url
from onlyonce.core.reprocess import Kind, RowSet
from onlyonce.core.runs import Report
from onlyonce.core.stored_names import (
    KEPT,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_HIGH,
    OO_INCARNATION,
    OO_KIND,
    OO_LOW,
    OO_RAW,
    OO_REASON,
    OO_UNKNOWN,
)
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.engine import encoding, worker
from onlyonce.failpoints import passing
from onlyonce.outputs import results
from onlyonce.sources import file_bytes
from onlyonce.sources.values import parse
from onlyonce.tables import opening, stores, table_files

AT_ONCE = 1 << 20
"""Bytes of lines that a task reads at once."""


@dataclass(frozen=True)
class Lines:
    """The lines that a reprocessing would put into the inbox."""

    lines: int
    left_out: int
    still_invalid: int
    example: str | None
    first: datetime | None
    last: datetime | None


def prepare_lines(
    spark: SparkSession,
    pipeline: Pipeline,
    table: DataFrame,
    kind: Kind,
    sets: list[RowSet],
    now: datetime,
    out: Path | None,
) -> Lines:
    """Return the lines of some sets of `events` as of their version, without the records that are already kept.

    An invalid row has its line as received; an expired row's line is made from its columns. Each line is parsed as
    receive will parse it. Records that are already kept must be left out here: receive could not recognise a record
    whose id was removed. The lines are written to `out` if it is given; nothing else is written.
    """
    with ExitStack() as held:
        values = results.hold(held, _values(spark, pipeline, table, kind, sets))
        nowhere = {name: F.lit(0).cast("long") for name in parse.PLACE}  # their place will be in the new file
        values_as_read = values.withColumns({"oo_refused": F.lit(None).cast("string"), **nowhere})
        records = parse.records(values_as_read, pipeline, now)
        records = results.hold(held, records.select("oo_payload", OO_HIGH, OO_LOW, OO_REASON, OO_EVENT_TIME))
        known = records.join(_kept(table, pipeline), [OO_HIGH, OO_LOW], "left_semi").filter(f"{OO_REASON} IS NULL")
        known = results.hold(held, known.select("oo_payload").distinct())
        rest = values.join(known, F.xxhash64("oo_line") == F.col("oo_payload"), "left_anti")
        going = records.join(known, "oo_payload", "left_anti")
        found = going.agg(
            F.count(F.lit(1)).alias("lines"),
            F.count(OO_REASON).alias("invalid"),
            F.first(OO_REASON, True).alias("example"),
            F.unix_micros(F.min(OO_EVENT_TIME)).alias("first"),
            F.unix_micros(F.max(OO_EVENT_TIME)).alias("last"),
        ).collect()[0]
        if out is not None and found.lines:
            _write(out, rest.select(F.col("oo_line").cast("binary").alias("oo_line")).sort("oo_line").toLocalIterator())
        left_out = values.count() - found.lines
    return Lines(found.lines, left_out, found.invalid, found.example, to_time(found.first), to_time(found.last))


def _values(spark: SparkSession, pipeline: Pipeline, table: DataFrame, kind: Kind, sets: list[RowSet]) -> DataFrame:
    """Return one column `oo_line`: a line for each row of the sets, and the lines of their files."""
    wanted = spark.createDataFrame(
        [(one.incarnation, one.batch_id, one.reason) for one in sets if not one.file],
        f"{OO_INCARNATION} string, {OO_BATCH} long, {OO_REASON} string",
    )
    rows = table.filter(F.col(OO_KIND) == kind).join(F.broadcast(wanted), wanted.columns, "left_semi")
    values = rows.select((_as_it_came() if kind == "invalid" else _as_json(pipeline, table.schema)).alias("oo_line"))
    files = sorted({one.file for one in sets if one.file})
    return values.union(whole_files(spark, [_openable(pipeline, path) for path in files])) if files else values


def whole_files(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Return the present lines of files that could not be read when they were listed. The lines have no places."""
    return worker.each(spark, paths, _lines_of, "oo_line binary").select(F.col("oo_line").cast("string"))


def _lines_of(path: str) -> Iterator[pa.RecordBatch]:
    # A user who may write to the inbox may replace a file by a link between two calls. So the file is opened once, and
    # no link is followed.
    with open(file_bytes.opened_file(path), "rb") as file:  # noqa: PTH123 - a descriptor
        while lines := file.readlines(AT_ONCE):
            yield pa.record_batch({"oo_line": pa.array([line.removesuffix(b"\n") for line in lines], pa.binary())})


def _openable(pipeline: Pipeline, path: str) -> str:
    place = file_bytes.place_of_file(path, links=pipeline.source.links)
    try:
        os.close(file_bytes.opened_file(place))
    except OSError as error:
        raise Refused(
            f"{path} can't be reprocessed: {error.strerror}",
            data="nothing was read or written",
            hint="reprocess by --reason or --batch what is something else; a file that is copied into the inbox is "
            "read",
        ) from error
    return place


def _as_it_came() -> Column:
    bytes_again = F.unhex(OO_RAW).cast("string")
    return F.when(F.startswith(OO_REASON, F.lit(line_values.NOT_UTF8)), bytes_again).otherwise(F.col(OO_RAW))


def _as_json(pipeline: Pipeline, there: StructType) -> Column:
    """Return a line that is parsed to the same columns; the original line if it was stored for its unknown fields."""
    names = [name for name in pipeline.columns() if name in there.names]
    return F.coalesce(F.col(OO_UNKNOWN), encoding.json_object(there, names, pipeline.aliases))


def _kept(table: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Return the ids of all kept records, computed from the id columns that are declared now.

    Return none for ids by position: an invalid line never has the position of a kept record.
    """
    if pipeline.by_position or not {*pipeline.record_id} <= {*table.columns}:
        return table.limit(0).select(F.lit(0).alias(OO_HIGH), F.lit(0).alias(OO_LOW))
    high, low = parse.id_hashes([*parse.id_salt(pipeline), *parse.id_strings(table.schema, pipeline.record_id)])
    return table.filter(f"{OO_KIND} = '{KEPT}'").select(high.alias(OO_HIGH), low.alias(OO_LOW))


def _write(out: Path, rows: Iterator[Any]) -> None:
    with out.open("wb") as file:
        for row in rows:
            file.write(row.oo_line + b"\n")


log = structlog.get_logger()


def main(argv: list[str]) -> Report:
    """Reprocessing once, or without --yes report what would be reprocessed. Raise the platform's errors."""
    asked = arguments(argv)
    logs.configure(pipeline=asked.pipeline, run_id=asked.run_id)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)
    if pipeline.source.is_topic:
        raise Refused(
            f"only JSON lines of an inbox can be reprocessed, and {pipeline.name} reads {pipeline.source.reads}",
            data="nothing was changed",
            hint=f"correct the messages (onlyonce invalid {pipeline.name} shows them) and send them to the topic: an "
            "invalid message has taken no record id",
        )
    if pipeline.source.format != "json":
        raise Refused(
            f"only JSON lines of an inbox can be reprocessed, and {pipeline.name} reads {pipeline.source.layout()}",
            data="nothing was changed",
            hint=f"correct the records (onlyonce invalid {pipeline.name} shows them) and deliver them as new input: an "
            "invalid record has taken no record id",
        )
    database = units.database_of(None)
    migrate(database.url)
    left = Reprocessings(database).begun(pipeline.name)
    sure = asked.yes
    finished = [_put(database, pipeline, left, asked)] if left and sure else []
    sets, version = waiting(database, pipeline.name, asked.kind, asked.batch, asked.reason)
    whole = not pipeline.source.in_ranges
    gone = [
        one
        for one in sets
        if one.file
        and (not whole or is_url(one.file) or file_bytes.compression_of(one.file) or not Path(one.file).is_file())
    ]
    sets = [one for one in sets if one not in gone]
    warnings = [f"{one.file} {_why_not(str(one.file), whole=whole)}, so it can't be reprocessed" for one in gone]
    if kept := Removals(database).kept_from(pipeline.name):
        warnings.append(
            f"rows from before {retention.said(kept)} are removed (keep_events), so they can't be reprocessed"
        )
    if left and not sure:
        warnings.append(f"reprocessing {left.number} was left half done; it is finished first (with --yes)")
    if not sets:
        return _report(pipeline, asked.kind, "nothing to reprocess", sets, finished, {}, warnings)
    found = _lines(database, pipeline, asked, sets, version, None)
    facts = _facts(found)
    reprocess.check_worth_it(pipeline.name, asked.kind, found.lines, found.still_invalid, found.example)
    if not sure:
        return _report(pipeline, asked.kind, "a reprocessing would put in again (add --yes)", sets, [], facts, warnings)
    begun = Reprocessings(database).begin(pipeline.name, asked.kind, asked.run_id, version, sets)
    passing("reprocess-after-begin")
    finished.append(_put(database, pipeline, begun, asked))
    return _report(pipeline, asked.kind, "put in again", sets, finished, facts, warnings)


def arguments(argv: list[str]) -> Namespace:
    """Parse the arguments of a reprocessing, like `onlyonce reprocess`."""
    asked = asked_parse("reprocess", argv)
    if asked.invalid == asked.expired:
        raise Refused("which rows shall be reprocessed?", hint="say --invalid or --expired, one of the two")
    asked.kind = "invalid" if asked.invalid else "expired"
    return asked


def waiting(
    database: Database, instance: str, kind: Kind, batch: int | None, reason: str | None
) -> tuple[list[RowSet], int]:
    """Return the sets that may be reprocessed, and the version of `events` that they were read from, without Spark."""
    path = _events(instance)
    if not opening.any_in(path):
        raise Refused(f"nothing of {instance} has run yet", hint=f"onlyonce run {instance} comes first")
    facts = Reprocessings(database).committed(instance)
    files = {file for of_batch in facts.values() for file in of_batch}
    table = opening.table(path)
    rows: list[tuple[str, int, str, str, int]] = []
    columns = [OO_INCARNATION, OO_BATCH, OO_REASON, OO_RAW]
    for part in table_files.dataset_of_events(path, table).to_batches(
        columns=columns, filter=pc.field(OO_KIND) == kind
    ):
        rows += _counted(part, files)
    reprocessed = Reprocessings(database).reprocessed(instance, kind)
    return reprocess.chosen(reprocess.sets(rows, facts), reprocessed, batch, reason), table.version()


def _counted(part: Any, files: set[str]) -> list[tuple[str, int, str, str, int]]:
    """Count a piece of `events`: return (incarnation, batch, reason, raw of a file or '', rows)."""
    import pyarrow as pa

    raw = part.column(OO_RAW)
    is_file = pc.fill_null(pc.is_in(raw, value_set=pa.array(sorted(files), raw.type)), False)
    named = pc.if_else(is_file, raw, pa.scalar("", raw.type))
    keys = [OO_INCARNATION, OO_BATCH, OO_REASON, "file"]
    table = pa.table([*(part.column(name) for name in keys[:3]), named], names=keys)
    counts = table.group_by(keys).aggregate([([], "count_all")]).to_pylist()
    return [(*(row[key] for key in keys), row["count_all"]) for row in counts]


def _put(database: Database, pipeline: Pipeline, reprocessing: Reprocessing, asked: Namespace) -> dict[str, Any]:
    """Put a begun reprocessing's file into the inbox, unless an earlier attempt has, and end the reprocessing."""
    folder = api_pipeline.folder(pipeline)
    assert folder is not None
    path = folder / reprocess.file_name(reprocessing.kind, reprocessing.number)
    with _beside(path) as partial:
        found = _lines(
            database, pipeline, asked, reprocessing.sets, reprocessing.events_version, partial, reprocessing.kind
        )
        passing("reprocess-before-put")
        put = Put(str(path) if found.lines else None, found.lines, found.left_out, found.still_invalid)
        Reprocessings(database).end(reprocessing, lambda: _in_place(pipeline, partial, path, put))
    log.info("reprocessed", reprocessing=reprocessing.number, path=put.path, lines=put.lines, left_out=put.left_out)
    return {
        "reprocess": reprocessing.number,
        "kind": reprocessing.kind,
        "lines": put.lines,
        "left_out": put.left_out,
        "file": put.path,
    }


@contextmanager
def _beside(path: Location) -> Iterator[Path]:
    """Yield a temporary path for the lines: hidden in the folder, or on this machine for an object store.

    No temporary file is left behind.
    """
    if isinstance(path, Url):
        with TemporaryDirectory() as here:
            yield Path(here, path.name)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)
    for left in path.parent.glob(
        f".{path.name}.*"
    ):  # of attempts that were killed; once the reprocessing has ended, no attempt needs its file
        left.unlink(missing_ok=True)


def _in_place(pipeline: Pipeline, partial: Path, path: Location, put: Put) -> Put:
    """Give the file its final name, once. If receive has read the file and it was removed since, don't put it back."""
    if put.path is None or str(path) in _registered(pipeline.name):
        return put
    if not _named(partial, path):
        log.info("an attempt before has put it", path=str(path))
    return put


def _named(partial: Path, path: Location) -> bool:
    """Give the file its name; return False if the name is taken.

    Both a hard link and a conditional PUT fail if the name is taken. A PUT holds the lines in memory.
    """
    if isinstance(path, Url):
        return stores.of(path).put_new(path, partial.read_bytes())
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    return True


def _registered(instance: str) -> set[str]:
    manifest = settings.data_location(instance) / stored_names.FILES_MANIFEST
    if not opening.any_in(manifest):
        return set()
    return set(opening.table(manifest).to_pyarrow_table(columns=["path"])["path"].to_pylist())


def _lines(
    database: Database, pipeline: Pipeline, asked: Namespace, sets: list[RowSet], version: int, out: Path | None,
    kind: Kind | None = None,
) -> Any:  # fmt: skip
    from onlyonce.engine import session
    from onlyonce.receive import events

    DriverClock(database).check()
    spark = session.start(f"onlyonce reprocess {pipeline.name}", asked.master)
    now = datetime.now(UTC)
    last = Compactions(database).last_in(pipeline.name, version)
    table = events.rows_upto(spark, _events(pipeline.name), last)
    return prepare_lines(spark, pipeline, table, kind or asked.kind, sets, now, out)


def _why_not(file: str, *, whole: bool) -> str:
    if not whole:
        return "grew, and part of it may be kept"
    if is_url(file):
        return "is an object (put what it holds into the inbox under a new name)"
    return "is compressed, and was damaged as a whole" if file_bytes.compression_of(file) else "does not exist any more"


def _events(instance: str) -> Location:
    return settings.data_location(instance) / stored_names.EVENTS_FOLDER


def _facts(found: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"lines": found.lines, "kept already, left out": found.left_out}
    if found.still_invalid:
        facts |= {"invalid again": found.still_invalid, "because": found.example}
    if found.first is not None:
        facts |= {"event times from": found.first, "to": found.last}
    return facts


def _report(
    pipeline: Pipeline,
    kind: Kind,
    title: str,
    sets: list[RowSet],
    finished: list[dict[str, Any]],
    facts: dict[str, Any],
    warnings: list[str],
) -> Report:
    rows = [vars(one) for one in sets]
    following = [
        {"command": f"onlyonce run {pipeline.name}", "why": "takes the file in"},
        {
            "command": f"onlyonce backfill {pipeline.name} --from … --to …",
            "why": "folds in what is late for its window",
        },
    ]
    tables = {"sets": rows, "reprocessings": finished, "next": following if finished else []}
    shown = {name: found for name, found in tables.items() if found}
    return Report(f"{pipeline.name}, {kind}: {title}", "reprocess", facts, shown, warnings)
