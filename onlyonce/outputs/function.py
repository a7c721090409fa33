"""Call a user's functions: report errors in their code at their own line, reject records, and split several results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, utils
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from onlyonce.api import load
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.commitlog.removals import REJECTED
from onlyonce.core import errors, failures
from onlyonce.core.backfill import Span
from onlyonce.core.errors import Refused
from onlyonce.core.near_names import did_you_mean, near
from onlyonce.core.stored_names import (
    OO_BATCH,
    OO_EVENT_TIME,
    OO_FRONTIER,
    OO_HIGH,
    OO_INCARNATION,
    OO_INGESTION_TIME,
    OO_LOW,
    OO_WINDOW,
    WINDOW_END,
    WINDOW_START,
)
from onlyonce.core.windows import Session, micros
from onlyonce.engine.session import quoted
from onlyonce.outputs import windows
from onlyonce.outputs.unrepeatable import found_in

CODE_ERRORS = (
    AnalysisException,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
)
"""The errors that a function with wrong code raises while it builds its plan. Calling it again raises the same."""


# PySpark can note the user's line for each expression of a session (`dataFrameDebugging`). This would cost calls into
# the JVM for each of our own expressions in each batch. Here it is on only while a user's function builds its plan. If
# a later PySpark has no such switch, errors name the function only.
_SWITCH = "_enable_debugging_cache"
_turn = Lock()
_inside = 0


@contextmanager
def lines_known(spark: SparkSession) -> Iterator[None]:
    """Make PySpark note the user's line for each expression while the block runs.

    Queries build their plans on threads of their own, so the last block that ends switches it off. PySpark notes
    nothing on a thread without an active session, so such a thread gets this one.
    """
    sessions = _jvm_sessions(spark)
    has_none = not sessions.getActiveSession().isDefined()
    if has_none:
        sessions.setActiveSession(spark._jsparkSession)
    _switched(+1)
    try:
        yield
    finally:
        _switched(-1)
        if has_none:
            sessions.clearActiveSession()


def _jvm_sessions(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.classic.SparkSession


def _switched(by: int) -> None:
    global _inside
    with _turn:
        _inside += by
        # None: PySpark asks the session's setting again.
        setattr(utils, _SWITCH, True if _inside else None)


@contextmanager
def calling(whose: str, function: Callable[..., Any], rows: DataFrame) -> Iterator[None]:
    """Run the block, and raise an error in the function's code as the user's error.

    `rows`: what the function gets.
    """
    try:
        with lines_known(rows.sparkSession):
            yield
    except CODE_ERRORS as error:
        raise failures.error_of_code(whose, error, rows.columns, errors.origin_of_function(function)) from error


# Rejected records: the output's function `reject` returns a reason for each record, or null. A rejected record does not
# reach the output's own function.
#
# Rejection depends on the record's own columns only, so a replay, a new incarnation and a backfill reject the same
# records. The stream leaves them out (`accepted_rows`). The query that counts a batch's records, by the commits of
# receive, finds them a second time (`rejections_met`). The end of the batch stores them in the log. A late record
# counts as late, whatever the function returns for it; a backfill that includes the record calls the function.


NOTHING = "nothing was written"
REASON = "oo_rejected"
PLACED = (OO_EVENT_TIME, OO_FRONTIER, OO_HIGH, OO_LOW, OO_INCARNATION, OO_BATCH)
LONGEST = 500
"""The number of characters of a reason that are stored."""


def accepted_rows(pipeline: Pipeline, output: Output, rows: DataFrame) -> DataFrame:
    """Return the rows that an output's function gets."""
    return rows.filter(rejection_reason(pipeline, output, rows).isNull()) if output.reject else rows


def rejection_reason(pipeline: Pipeline, output: Output, rows: DataFrame) -> Column:
    """Return why each row is rejected, null if it is not. Raise Refused."""
    if not output.reject:
        return F.lit(None).cast("string")
    function = load.reject(output)
    seen = rows.select(*map(quoted, [*pipeline.columns(), OO_EVENT_TIME, OO_INGESTION_TIME]))
    with calling(f"output {output.name}: {output.reject}", function, seen):
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


def check_reject(pipeline: Pipeline, output: Output, rows: DataFrame) -> None:
    """Raise Refused if Spark's plan shows that a function may decide differently about the same record."""
    if not output.reject:
        return
    found = found_in(rows.select(rejection_reason(pipeline, output, rows).alias(REASON)))
    if found:
        raise _refused(
            output,
            f"is not deterministic: {found[0]}, so a record could be neither rejected nor used",
            f"decide by the record's own columns; {OO_INGESTION_TIME} is when it came",
        )


def rejections_met(pipeline: Pipeline, root: Output, kept: DataFrame) -> pa.Table:
    """Return what an output has met with these records: the (record, window) pairs in time and late, by window.

    Each rejected pair is a row of its own, with 1 in `rejected`. Times are microseconds.
    """
    rows = _told(pipeline, root, kept)
    if root.window is None:
        judged = rows.withColumns(
            {"late": F.lit(False), WINDOW_START: F.lit(None).cast("long"), WINDOW_END: F.lit(None).cast("long")}
        )
    else:
        judged = windows.judged(rows, root.window, root.watermark_delay).withColumns(windows.bounds())
    session = F.lit(isinstance(root.window, Session))
    late, rejected = F.col("late"), ~F.col("late") & F.col(REASON).isNotNull()
    time = F.unix_micros(OO_EVENT_TIME)
    groups = judged.groupBy(WINDOW_START, WINDOW_END, *_whose(rejected)).agg(
        F.count_if(~late & ~rejected).alias("in_time"),
        F.count_if(late).alias("late"),
        F.count_if(rejected).alias("rejected"),
        F.min(F.when(late & session, time)).alias("late_from"),
        F.max(F.when(late & session, time)).alias("late_to"),
    )
    return groups.toArrow()


def rejected_of_span(pipeline: Pipeline, root: Output, kept: DataFrame, span: Span) -> pa.Table:
    """Return the rejected pairs of the windows that start in a span, late ones too, like `rejections_met`."""
    assert root.window is not None
    rows = _told(pipeline, root, kept).filter(F.col(REASON).isNotNull())
    if isinstance(root.window, Session):
        begins = F.unix_micros(OO_EVENT_TIME)
        placed = rows.withColumns({WINDOW_START: begins, WINDOW_END: begins})
    else:
        placed = windows.assign(rows, root.window).withColumns(windows.bounds())
    inside = placed.filter((F.col(WINDOW_START) >= span.start) & (F.col(WINDOW_START) < span.stop))
    groups = inside.groupBy(WINDOW_START, WINDOW_END, *_whose(F.lit(True))).agg(F.count("*").alias("rejected"))
    return groups.toArrow()


def rejected_rows_of(root: Output, found: pa.Table) -> pa.Table:
    """Return rejected pairs as the log stores them (`REJECTED`).

    A session has no end yet, so its window is the window that the record alone would have.
    """
    told = {name: found.column(name) for name in found.column_names} | {"rows": found.column("rejected")}
    if isinstance(root.window, Session):
        told |= {WINDOW_START: told["event_time"], WINDOW_END: pc.add(told["event_time"], micros(root.window.gap))}
    told["reason"] = pc.replace_substring(told["reason"], "\0", "\ufffd")
    return pa.table([told[name] for name in REJECTED.names], REJECTED.names).cast(REJECTED)


def _told(pipeline: Pipeline, root: Output, kept: DataFrame) -> DataFrame:
    """Return the platform's columns of the records, and why each is rejected."""
    return kept.select(*PLACED, rejection_reason(pipeline, root, kept).alias(REASON))


def _whose(rejected: Column) -> list[Column]:
    """Return the columns that describe a rejected record. They are null for other records, which are only counted."""
    told = {
        "event_time": F.unix_micros(OO_EVENT_TIME),
        OO_HIGH: F.coalesce(OO_HIGH, F.lit(0)),
        OO_LOW: F.coalesce(OO_LOW, F.lit(0)),
        "received_as": F.col(OO_INCARNATION),
        "received_in": F.col(OO_BATCH),
        "reason": F.left(F.col(REASON), F.lit(LONGEST)),
    }
    return [F.when(rejected, column).alias(name) for name, column in told.items()]


def _refused(output: Output, what: str, hint: str) -> Refused:
    at = errors.origin_of_function(load.reject(output))
    return Refused(f"{f'{at}: ' if at else ''}output {output.name}: {output.reject} {what}", data=NOTHING, hint=hint)


# Several results of one function: `def f(rows): return {"good": …, "odd": …}`.
#
# An output without a transform is a result of the function of the output that it is `from_output`. The results are
# united into one frame until they are written. So one query, one batch and one reading of the function's rows make them
# all. Each row names its result (`oo_result`). Its columns have the result's name before theirs (`odd:cents`), except
# the window, which all results share. There is no struct, so staged rows take a new column as other tables do.


RESULT, WINDOW = "oo_result", OO_WINDOW


def names_of_results(pipeline: Pipeline, root: Output) -> list[str]:
    """Return the outputs whose rows the function of `root` returns; only `root` itself if it returns a DataFrame.

    They are sorted, whatever the order of declaration: Spark finds the state of a result by its place in the plan.
    """
    return sorted([root.name, *(made.name for made in pipeline.made_from(root) if made.is_result)])


def check_results(root: Output, wanted: list[str], given: dict[Any, Any], at: str) -> None:
    """Raise Refused unless the function has returned exactly the results that have an output.

    `at` is the function's line, or empty.
    """
    for name in given:
        if name not in wanted:
            raise Refused(
                f"{at}output {root.name}: {root.transform} gives a result {name!r}, and no output takes it",
                data=NOTHING,
                hint=did_you_mean(near(str(name), wanted))
                + f"declare Output(name={name!r}, from_output={root.name!r}, sink=…), without a transform; the "
                f"output's own rows are the result {root.name!r}",
            )
    if missing := [name for name in wanted if name not in given]:
        raise Refused(
            f"{at}output {missing[0]}: {root.transform} gives no result of this name; it gives "
            f"{', '.join(map(repr, given))}",
            data=NOTHING,
            hint="let the function return a DataFrame for each output, by its name",
        )


def united_results(
    root: Output, given: dict[str, DataFrame], at: str, stateless: Callable[[DataFrame], bool]
) -> DataFrame:
    """Unite all results into one frame. Raise Refused for a stream if some results keep a state and others do not."""
    if any(frame.isStreaming for frame in given.values()):
        kinds = {name: stateless(frame) for name, frame in given.items()}
        if len(set(kinds.values())) > 1:
            first, other = (next(name for name, kind in kinds.items() if kind is wanted) for wanted in (True, False))
            raise Refused(
                f"{at}output {root.name}: {root.transform} gives {first!r} record by record and {other!r} by "
                "aggregation: rows of the one come "
                "at once, those of the other when their window closes, so no batch has both",
                data=NOTHING,
                hint=f"give {first!r} an Output of its own with a transform, or aggregate it by {OO_WINDOW} as well",
            )
    shared = [WINDOW] if root.window else []
    tagged = [_tagged(name, given[name], shared) for name in sorted(given)]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), tagged)


def results_are_united(rows: DataFrame) -> bool:
    """Return whether a frame has several results."""
    return RESULT in rows.columns


def result_of(name: str, rows: DataFrame) -> DataFrame:
    """Return the rows of one result, with its own columns."""
    mark = f"{name}:"  # no name of an output has a colon
    own = [F.col(quoted(column)).alias(column.removeprefix(mark)) for column in rows.columns if column.startswith(mark)]
    return rows.filter(F.col(RESULT) == name).select(*[column for column in rows.columns if column == WINDOW], *own)


def _tagged(name: str, frame: DataFrame, shared: list[str]) -> DataFrame:
    own = [F.col(quoted(column)).alias(f"{name}:{column}") for column in frame.columns if column not in shared]
    return frame.select(*shared, F.lit(name).alias(RESULT), *own)
