"""Records that an output rejects: its function for that (`reject`) gives each one a reason, or null.

They do not reach the output's own function.

A record is rejected by its own columns, so a replay, a new life and a backfill reject the same ones. The stream leaves
them out (`accepted`). The look that counts a batch's records, by the commits of receive, finds them a second time
(`met`), and the end of the batch notes them in the log. A late record is late, whatever the function would say of it; a
backfill that takes it in asks the function.

Who calls it: `results`, `window_log`, `recompute`, and `check`. Errors: Refused for a function that gives no column of
texts, at its line.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from onlyonce.commitlog.outputs.rejections import REJECTED
from onlyonce.declare import loading
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model import origin
from onlyonce.model.errors import Refused
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.stored_names import (
    OO_BATCH,
    OO_EVENT_TIME,
    OO_FRONTIER,
    OO_HIGH,
    OO_LINEAGE,
    OO_LOW,
    OO_SYSTEM_TIME,
)
from onlyonce.model.windows import Session, micros
from onlyonce.outputs.function.calling import calling
from onlyonce.outputs.windows import windowing
from onlyonce.session.names import quoted

NOTHING = "nothing was written"
REASON = "oo_rejected"
PLACED = (OO_EVENT_TIME, OO_FRONTIER, OO_HIGH, OO_LOW, OO_LINEAGE, OO_BATCH)
LONGEST = 500
"""Signs of a reason that are kept."""
MOVING = ("current_timestamp(", "current_date(", "current_time(", "localtimestamp(", "now(")
"""Spark's expressions that give another value in each query, and count as deterministic."""


def accepted(pipeline: Pipeline, output: Output, rows: DataFrame) -> DataFrame:
    """The rows that an output's function is to get."""
    return rows.filter(reason(pipeline, output, rows).isNull()) if output.reject else rows


def reason(pipeline: Pipeline, output: Output, rows: DataFrame) -> Column:
    """Why each row is rejected; null where it is not. Raises Refused."""
    if not output.reject:
        return F.lit(None).cast("string")
    function = loading.reject(output)
    seen = rows.select(*map(quoted, [*pipeline.columns(), OO_EVENT_TIME, OO_SYSTEM_TIME]))
    with calling(f"output {output.name}: {output.reject}", function, seen.columns):
        given = function(seen)
        if not isinstance(given, Column):
            raise _refused(
                output,
                f"gave {type(given).__name__}, not a Column",
                "return F.when(condition, 'the reason'): null where a record is not rejected",
            )
        kind = seen.select(given.alias(REASON)).schema[0].dataType
    if not isinstance(kind, StringType):
        raise _refused(
            output,
            f"gave a column of the type {kind.simpleString()}, and a reason is a text",
            "return F.when(condition, 'the reason')",
        )
    return given


def check(pipeline: Pipeline, output: Output, rows: DataFrame) -> None:
    """Raise Refused for a function that may say of a record now one thing and now another, as far as Spark knows it."""
    if not output.reject:
        return
    plan: Any = rows.select(reason(pipeline, output, rows).alias(REASON))._jdf.queryExecution().analyzed()  # type: ignore[operator]
    told = plan.expressions().toString()
    if not plan.deterministic() or any(name in told for name in MOVING):
        raise _refused(
            output,
            "is not deterministic (rand, uuid, the time now, …): a record could be neither rejected nor used",
            f"decide by the record's own columns; {OO_SYSTEM_TIME} is when it came",
        )


def met(pipeline: Pipeline, root: Output, kept: DataFrame) -> pa.Table:
    """What an output has met with these records: by window the (record, window) pairs in time and late, and one row for
    each that is rejected.

    Rows of one look: in each the times are microseconds, `rejected` counts the row's own record.
    """
    rows = _told(pipeline, root, kept)
    if root.window is None:
        judged = rows.withColumns(
            {"late": F.lit(False), "window_start": F.lit(None).cast("long"), "window_end": F.lit(None).cast("long")}
        )
    else:
        judged = windowing.judged(rows, root.window, root.lateness).withColumns(windowing.bounds())
    session = F.lit(isinstance(root.window, Session))
    late, rejected = F.col("late"), ~F.col("late") & F.col(REASON).isNotNull()
    time = F.unix_micros(OO_EVENT_TIME)
    groups = judged.groupBy("window_start", "window_end", *_whose(rejected)).agg(
        F.count_if(~late & ~rejected).alias("in_time"),
        F.count_if(late).alias("late"),
        F.count_if(rejected).alias("rejected"),
        F.min(F.when(late & session, time)).alias("late_from"),
        F.max(F.when(late & session, time)).alias("late_to"),
    )
    return groups.toArrow()


def of_span(pipeline: Pipeline, root: Output, kept: DataFrame, span: Span) -> pa.Table:
    """The rejected pairs of the windows that start in a span, late ones too: as `met` has them."""
    assert root.window is not None
    rows = _told(pipeline, root, kept).filter(F.col(REASON).isNotNull())
    if isinstance(root.window, Session):
        begins = F.unix_micros(OO_EVENT_TIME)
        placed = rows.withColumns({"window_start": begins, "window_end": begins})
    else:
        placed = windowing.assign(rows, root.window).withColumns(windowing.bounds())
    inside = placed.filter((F.col("window_start") >= span.start) & (F.col("window_start") < span.stop))
    groups = inside.groupBy("window_start", "window_end", *_whose(F.lit(True))).agg(F.count("*").alias("rejected"))
    return groups.toArrow()


def rows_of(root: Output, found: pa.Table) -> pa.Table:
    """Rejected pairs as the log has them (`REJECTED`).

    A session has no end yet: the window is the one that the record alone would have.
    """
    told = {name: found.column(name) for name in found.column_names} | {"rows": found.column("rejected")}
    if isinstance(root.window, Session):
        told |= {"window_start": told["event_time"], "window_end": pc.add(told["event_time"], micros(root.window.gap))}
    told["reason"] = pc.replace_substring(told["reason"], "\0", "\ufffd")
    return pa.table([told[name] for name in REJECTED.names], REJECTED.names).cast(REJECTED)


def _told(pipeline: Pipeline, root: Output, kept: DataFrame) -> DataFrame:
    """The platform's columns of the records, and why each is rejected."""
    return kept.select(*PLACED, reason(pipeline, root, kept).alias(REASON))


def _whose(rejected: Column) -> list[Column]:
    """What is told of a rejected record; null of all others, which are only counted."""
    told = {
        "event_time": F.unix_micros(OO_EVENT_TIME),
        OO_HIGH: F.coalesce(OO_HIGH, F.lit(0)),
        OO_LOW: F.coalesce(OO_LOW, F.lit(0)),
        "received_as": F.col(OO_LINEAGE),
        "received_in": F.col(OO_BATCH),
        "reason": F.left(F.col(REASON), F.lit(LONGEST)),
    }
    return [F.when(rejected, column).alias(name) for name, column in told.items()]


def _refused(output: Output, what: str, hint: str) -> Refused:
    at = origin.of_function(loading.reject(output))
    return Refused(f"{f'{at}: ' if at else ''}output {output.name}: {output.reject} {what}", data=NOTHING, hint=hint)
