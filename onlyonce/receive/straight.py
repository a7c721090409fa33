"""The files of a batch in which each record is kept or invalid by itself: the task that reads plain lines writes them.

Nothing brings records together, so they need not wait for another task. Lines that are not plain are left in files of
the attempt's own (`block_files`), and a second job has the table's reader read them. A task that is tried again writes
under other names; the driver is told the names of one attempt of each task, and commits those.

Who calls it: `batch_files`. Errors: those of the source and of the task.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from onlyonce.declare.pipeline import Pipeline
from onlyonce.failpoints import passing
from onlyonce.receive import line_tasks
from onlyonce.receive.blocks import exchange
from onlyonce.receive.blocks.block_files import Left
from onlyonce.receive.blocks.exchange import Parts, Task
from onlyonce.session import schemas
from onlyonce.session.worker import Batches
from onlyonce.sources.lines import Lines
from onlyonce.sources.parse.plain_records import Reader

GIVES = "path string, left string"
"""What a task of the first job tells: a file that it has written, or the file of the lines that it has left."""


def written(
    spark: SparkSession,
    lines: Lines,
    pipeline: Pipeline,
    system_time: datetime,
    reader: Reader,
    folder: Path,
    task: Task,
    gives: str,
) -> list[str]:
    """The paths that a task tells of all records; `folder` is for lines that are left."""
    schema = exchange.record_schema(reader)

    def of_lines(batches: Batches) -> Batches:
        with Left(folder) as left:
            for paths in task(_records(batches, reader, schema, left)):
                yield paths.append_column("left", pa.nulls(paths.num_rows, pa.string()))
        if left.any:
            yield pa.RecordBatch.from_pydict({"path": pa.nulls(1, pa.string()), "left": [str(left.name)]})

    told = line_tasks.told(spark, lines, of_lines, GIVES)
    passing("receive-lines-read")
    paths = [row.path for row in told if row.left is None]
    files = [row.left for row in told if row.left is not None]
    if files:
        rows = exchange.records(spark, line_tasks.left(spark, files, lines), pipeline, system_time)
        paths += [row.path for row in exchange.mapped(rows, task, schemas.of(gives)).collect()]
    return paths


def _records(batches: Batches, reader: Reader, schema: pa.Schema, left: Left) -> Parts:
    for lines in batches:
        others, records = reader.apart(lines)
        if others.num_rows:
            left.add(reader.bounded(others))
        if records.num_rows:
            yield exchange.plain(records, schema)
