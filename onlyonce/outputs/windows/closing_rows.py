"""The records in time of the windows that close with a batch, read by the driver: of few records a job costs more than
they do, and so does a plan with bounds in it, which Spark compiles anew for each batch.

What is late is told by the model's rule (`placed`), as Spark's expressions tell it (`windowing.is_late`). So a batch
may be read either way.

Who calls it: `raw_windows`. Errors: OSError. Not promised: that few records are read here. Columns of nested types are
left to Spark, windows of a chain, and records that take more bytes than the driver holds: a file says how many its rows
take (`event_files`), so it is not opened in vain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, DateType, NumericType, StringType, StructType, TimestampType

from onlyonce.commitlog.batches import Received
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model.outputs.chained import Chained
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_FRONTIER, OO_SYSTEM_TIME, OO_WINDOW
from onlyonce.model.windows import Window, micros
from onlyonce.receive import event_files, events
from onlyonce.records import placed
from onlyonce.session import driver_rows, schemas
from onlyonce.storage.stores import arrow

SEEN = f"{OO_EVENT_TIME} timestamp, {OO_SYSTEM_TIME} timestamp"
"""The platform's columns that a function may see, beside the window."""
BOUNDS = "oo_start timestamp, oo_end timestamp"
FRONTIER = OO_FRONTIER
PLAIN = (BooleanType, DateType, NumericType, StringType, TimestampType)
"""Types of columns that Arrow reads as Spark does."""


def read(context: RunContext, root: Output, received: list[Received], closing: tuple[int, int]) -> DataFrame | None:
    """The records of these batches of receive that are in time in a window which ends in
    an interval, in microseconds, with their `oo_window`; None where that is for Spark."""
    assert root.window is not None
    shown = StructType(schemas.of(context.pipeline.schema).fields + schemas.of(SEEN).fields)
    if (
        not driver_rows.are_few(sum(one.kept for one in received))
        or any(one.compacted for one in received)
        or isinstance(root.window, Chained)
    ):
        return None
    if not all(isinstance(field.dataType, PLAIN) for field in shown.fields):
        return None
    with_bounds = StructType(shown.fields + schemas.of(BOUNDS).fields)
    wanted = to_arrow_schema(with_bounds, timezone="UTC")
    parts = _held(events.kept_files(context.events, received), wanted, root.window, micros(root.lateness), closing)
    if parts is None:
        return None
    frame = context.spark.createDataFrame(pa.Table.from_batches(parts, wanted), with_bounds)
    window = F.struct(F.col("oo_start").alias("start"), F.col("oo_end").alias("end"))
    return frame.withColumn(OO_WINDOW, window).drop("oo_start", "oo_end")


def _held(
    files: list[Location], wanted: pa.Schema, window: Window, lateness: int, closing: tuple[int, int]
) -> list[pa.RecordBatch] | None:
    """Return the records of some files, once for each closing window; None if the files' rows, or the records, take
    more bytes than the driver holds."""
    to_read, to_hold = driver_rows.room(), driver_rows.room()
    parts = []
    for file in files:
        with arrow.opened(file) as opened:
            if not to_read.take(event_files.bytes_of(opened.metadata)):
                return None
            for part in _of_file(opened, wanted, window, lateness, closing):
                if not to_hold.take(part.nbytes):
                    return None
                parts.append(part)
    return parts


def _of_file(
    opened: parquet.ParquetFile, wanted: pa.Schema, window: Window, lateness: int, closing: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    before, now = closing
    there = [name for name in opened.schema_arrow.names if name in wanted.names]
    for part in opened.iter_batches(columns=[*there, FRONTIER]):
        for starts, ends, late in placed.judged(part, window, lateness):
            mine = ~late & (ends > before) & (ends <= now)
            if mine.any():
                yield _shaped(part.filter(pa.array(mine)), wanted, starts[mine], ends[mine])


def _shaped(rows: pa.RecordBatch, wanted: pa.Schema, starts: placed.Times, ends: placed.Times) -> pa.RecordBatch:
    """With the columns as they are declared now: a file may be older than one of them."""
    bounds: dict[str, np.ndarray[Any, Any]] = {"oo_start": starts, "oo_end": ends}
    columns = []
    for field in wanted:
        if field.name in bounds:
            columns.append(pa.array(bounds[field.name]).cast(field.type))
        elif field.name in rows.schema.names:
            columns.append(rows.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
