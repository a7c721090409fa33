"""Tasks over the lines of a batch, from files and from rows, and over those that such tasks have left.

Who calls it: `exchange` and `straight`. Errors: those of the source and of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampType

from onlyonce.receive.blocks import block_files
from onlyonce.session import schemas, worker
from onlyonce.session.worker import Work
from onlyonce.sources.files import line_reader
from onlyonce.sources.lines import LINE, Lines
from onlyonce.sources.parse import parse


def told(spark: SparkSession, lines: Lines, work: Work, gives: str) -> list[Row]:
    """What work tells of the lines of each task."""
    frames, chosen = (
        [],
        lines.chosen,
    )  # a task is sent what its function holds, and of `lines` the rows are the driver's
    schema = schemas.of(gives)
    if lines.ranges:
        frames.append(line_reader.read(spark, lines.ranges, lambda found: work(chosen.of_batches(found)), schema))
    if lines.rows is not None:
        frames.append(worker.mapped(chosen.of_rows(lines.rows), work, schema))
    return reduce(DataFrame.union, frames).collect() if frames else []


def left(spark: SparkSession, files: Sequence[str], lines: Lines) -> Lines:
    """The lines that were left in files, each with the last event time that is valid beside it."""
    of_line = schemas.of(LINE) if lines.rows is None else lines.rows.schema
    # Nulls anywhere, whatever the rows promise.
    fields = [StructField(field.name, field.dataType) for field in of_line]
    schema = StructType([*fields, StructField(parse.BOUND, TimestampType())])
    return Lines([], worker.each(spark, files, block_files.left_in, schema))
