"""Blocks of records as rows among other rows, where executors share no disk: Spark's exchange brings them to the task
of their partition.

Lines are read once: what a task makes of them are rows with a block and the partition that it is for, and the lines
that are left, which the table's reader reads as they pass. Spark keeps what is exchanged on the disks of the executors.
If one is lost, the tasks that wrote there read their lines again.

Who calls it: `exchange`. Errors: those of the source. Not promised: where a block is cut; a task that is done again may
cut it elsewhere.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from onlyonce.session import schemas, worker
from onlyonce.session.worker import Batches, Work
from onlyonce.sources.files import line_reader
from onlyonce.sources.lines import LINE, Lines
from onlyonce.sources.parse.parse import BOUND, CARRIED

BLOCK, TARGET = CARRIED
GIVES = f"block binary, target int, {BOUND} timestamp"
"""What a reader gives beside what it was given (`plain_records.Reader`)."""


def read(spark: SparkSession, lines: Lines, reader: Work) -> DataFrame:
    """The lines that are left as rows like `lines.LINE`, with BOUND, and blocks as rows of their own, with CARRIED."""
    frames, chosen = (
        [],
        lines.chosen,
    )  # a task is sent what its function holds, and of `lines` the rows are the driver's

    def of_lines(found: Batches) -> Batches:
        return reader(chosen.of_batches(found))

    if lines.ranges:
        frames.append(line_reader.read(spark, lines.ranges, of_lines, _with_blocks(schemas.of(LINE))))
    if lines.rows is not None:
        rows = chosen.of_rows(lines.rows)
        frames.append(worker.mapped(rows, reader, _with_blocks(rows.schema)))
    found = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    return found.withColumnsRenamed({"block": BLOCK, "target": TARGET})


def among(rows: DataFrame) -> bool:
    """Whether there may be blocks."""
    return BLOCK in rows.columns


def target(by_id: Column) -> Column:
    """The partition of a row: of a block the one that it is for, of a record by its id."""
    return F.coalesce(F.col(TARGET), by_id)


def apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[pa.Scalar]]:
    """The rows of a batch that are records, and its blocks."""
    blocks = batch.column(BLOCK)
    return batch.drop_columns([*CARRIED]).filter(blocks.is_null()), [*blocks.drop_null()]


def _with_blocks(schema: StructType) -> StructType:
    # Nulls anywhere, whatever the rows promise.
    return StructType(
        [StructField(field.name, field.dataType) for field in [*schema.fields, *schemas.of(GIVES).fields]]
    )
