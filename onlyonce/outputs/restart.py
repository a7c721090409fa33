"""What a new life of an output reads again and does not write again: windows and sessions that are final by the log.

Who calls it: `outputs`. No errors of its own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog import batches
from onlyonce.commitlog.outputs import backfills
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.database.connect import run
from onlyonce.declare.pipeline import Output
from onlyonce.declare.windows import Session, micros
from onlyonce.model.frontier import closed_until
from onlyonce.outputs import windowing
from onlyonce.receive import events


def read_from(context: RunContext, start: int) -> DataFrame:
    """The stream of `events` from a version on, which may be the next one that is written. Delta's begins at one that is
    there: at the one before, whose rows are left out."""
    stream = events.stream(context.spark, context.events, max(start - 1, 0))
    known = run(context.database, lambda conn: batches.received(conn, context.instance, start - 2, start - 1))
    for one in known:
        known_row = (F.col("oo_lineage") == one.lineage) & (F.col("oo_batch") == one.batch_id)
        stream = stream.filter((F.col("oo_kind") == "control") | ~known_row)
    return stream


def without_final(context: RunContext, query: Query, root: Output, rows: DataFrame) -> DataFrame:
    """A new life reads again what its oldest open window needs; windows that are final by the log stay out."""
    return without(context, query, root, rows, query.lineage)


def without(context: RunContext, query: Query, root: Output, rows: DataFrame, but: str) -> DataFrame:
    """The rows of windows that no life but this lineage has closed."""
    if root.window is None or isinstance(root.window, Session):
        return rows
    final = run(context.database, lambda conn: batches.final_windows(conn, context.instance, root.name, but))
    if query.first_window is not None:
        rows = rows.filter(F.col("oo_window.start") >= F.timestamp_micros(F.lit(query.first_window)))
    schema = "oo_window struct<start: timestamp, end: timestamp>"
    known = context.spark.createDataFrame([((w.window_start, w.window_end),) for w in final], schema)
    return rows.join(F.broadcast(known), "oo_window", "left_anti")


def not_written(context: RunContext, query: Query, root: Output, result: DataFrame) -> DataFrame:
    """A new life makes all sessions again, since a record alone has no window; those that were written stay out."""
    if "closed_by" not in query.start_from or not isinstance(root.window, Session):
        return result
    version = int(query.start_from["closed_by"])
    known = run(context.database, lambda conn: backfills.frontier_at(conn, context.instance, version))
    closed = closed_until(known, root.window, micros(root.lateness))
    if closed is None:
        return result
    return result.filter(windowing.after_merge(F.col("oo_window.end") > F.timestamp_micros(F.lit(closed))))
