"""The lines of released rows.

An invalid row has its line as it came; the line of a remnant row is made from its columns.

Each line is parsed as receive will parse it. A record that `events` has already as kept is left out here, since receive
could not recognise it if its id was collected. Who calls it: `onlyonce.outputs.releases.release`. Only that one file is
written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.batch import to_time
from onlyonce.model.errors import Refused
from onlyonce.model.outputs.releasing import Kind, RowSet
from onlyonce.model.stored_names import (
    KEPT,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_HIGH,
    OO_KIND,
    OO_LINEAGE,
    OO_LOW,
    OO_RAW,
    OO_REASON,
    OO_UNKNOWN,
)
from onlyonce.model.values import line_values
from onlyonce.outputs import results
from onlyonce.session import encoding, worker
from onlyonce.sources.files import regular_file
from onlyonce.sources.parse import id_columns, parse

AT_ONCE = 1 << 20
"""Bytes of lines that a task reads at once."""


@dataclass(frozen=True)
class Lines:
    """What a release would put into the inbox."""

    lines: int
    left_out: int
    still_invalid: int
    example: str | None
    first: datetime | None
    last: datetime | None


def prepare(
    spark: SparkSession,
    pipeline: Pipeline,
    table: DataFrame,
    kind: Kind,
    sets: list[RowSet],
    now: datetime,
    out: Path | None,
) -> Lines:
    """The lines of some sets of `events` as it was when they were taken, less the records that are kept already;
    written to `out` if it is given."""
    with ExitStack() as held:
        values = results.hold(held, _values(spark, pipeline, table, kind, sets))
        nowhere = {name: F.lit(0).cast("long") for name in parse.PLACE}  # their place is that in the file to come
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
    """One column `oo_line`: a line for each row of the sets, and the lines of their files."""
    wanted = spark.createDataFrame(
        [(one.lineage, one.batch_id, one.reason) for one in sets if not one.file],
        f"{OO_LINEAGE} string, {OO_BATCH} long, {OO_REASON} string",
    )
    rows = table.filter(F.col(OO_KIND) == kind).join(F.broadcast(wanted), wanted.columns, "left_semi")
    values = rows.select((_as_it_came() if kind == "invalid" else _as_json(pipeline, table.schema)).alias("oo_line"))
    files = sorted({one.file for one in sets if one.file})
    return values.union(whole_files(spark, [_openable(pipeline, path) for path in files])) if files else values


def whole_files(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Return the lines of files that could not be read when they were listed: without places, and whatever they are by
    now."""
    return worker.each(spark, paths, _lines_of, "oo_line binary").select(F.col("oo_line").cast("string"))


def _lines_of(path: str) -> Iterator[pa.RecordBatch]:
    # Who may write to the inbox may replace a file by a link between two looks, so the file is opened once, and no link
    # followed.
    with open(regular_file.opened(path), "rb") as file:  # noqa: PTH123 - a descriptor
        while lines := file.readlines(AT_ONCE):
            yield pa.record_batch({"oo_line": pa.array([line.removesuffix(b"\n") for line in lines], pa.binary())})


def _openable(pipeline: Pipeline, path: str) -> str:
    place = regular_file.place(path, links=pipeline.source.links)
    try:
        os.close(regular_file.opened(place))
    except OSError as error:
        raise Refused(
            f"{path} can't be released: {error.strerror}",
            data="nothing was read or written",
            hint="release by --reason or --batch what is something else; a file that is copied into the inbox is read",
        ) from error
    return place


def _as_it_came() -> Column:
    bytes_again = F.unhex(OO_RAW).cast("string")
    return F.when(F.startswith(OO_REASON, F.lit(line_values.NOT_UTF8)), bytes_again).otherwise(F.col(OO_RAW))


def _as_json(pipeline: Pipeline, there: StructType) -> Column:
    """A line that is parsed to the same columns; the whole line itself where it was kept for its unknown fields."""
    names = [name for name in pipeline.columns() if name in there.names]
    return F.coalesce(F.col(OO_UNKNOWN), encoding.json_object(there, names, pipeline.aliases))


def _kept(table: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The ids of all kept records, by the id columns that are declared now; by position an invalid line is never
    one."""
    if pipeline.by_position or not {*pipeline.record_id} <= {*table.columns}:
        return table.limit(0).select(F.lit(0).alias(OO_HIGH), F.lit(0).alias(OO_LOW))
    high, low = id_columns.hashes([*id_columns.salt(pipeline), *id_columns.strings(table.schema, pipeline.record_id)])
    return table.filter(f"{OO_KIND} = '{KEPT}'").select(high.alias(OO_HIGH), low.alias(OO_LOW))


def _write(out: Path, rows: Iterator[Any]) -> None:
    with out.open("wb") as file:
        for row in rows:
            file.write(row.oo_line + b"\n")
