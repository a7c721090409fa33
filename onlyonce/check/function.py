"""Finds the columns that a query's functions return, by calling them on frames without rows: once as a backfill does,
once as a stream does.

Who calls it: `onlyonce.check.look`. Errors: Refused, at the line of the function. Not promised: to find errors that
only rows cause. A check really calls the function, as the start of each run does; side effects happen.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.declare import loading
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model import origin
from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import OO_WINDOW
from onlyonce.outputs import outputs, results
from onlyonce.outputs.function import rejecting, several_results
from onlyonce.outputs.windows import windowing
from onlyonce.receive import events

NOTHING = "nothing was read or written"


def schemas(
    spark: SparkSession, pipeline: Pipeline, root: Output, seen: results.Frames = results.NO_LOOKUPS
) -> dict[str, StructType]:
    """The columns of the rows that an output, and each made from it, sends to its sink. Raises Refused.

    `seen`: the tables of its lookups.
    """
    kept = spark.createDataFrame([], events.schema(pipeline))
    rejecting.check(pipeline, root, kept)
    result = results.of_pipeline(pipeline, root, windowing.in_batch(kept, root), seen)
    _check_repeats(pipeline, root, result)
    if not root.gets_whole_windows:  # else its function gets whole windows, and no stream
        _check_streams(spark, pipeline, root, seen)
    empty = spark.createDataFrame([], result.schema)
    found = {root.name: results.flat(results.rows_of(root, empty, seen)).schema}
    for output in pipeline.made_from(root):
        made = results.rows_of(output, empty, seen)
        _check_repeats(pipeline, output, made)
        found[output.name] = results.flat(made).schema
    return found


def _check_repeats(pipeline: Pipeline, output: Output, result: DataFrame) -> None:
    """Raise Refused for what would give other rows at a replay, as far as Spark knows it: not of Python functions."""
    if several_results.are_united(result):
        _check_apart(output, result)
    if (
        output.stable_input
        or pipeline.mode != "exactly_once"
        or (output.is_result and _root(pipeline, output).stable_input)
    ):
        return
    if not _deterministic(result):
        raise Refused(
            f"{_at(output)}output {output.name}: {output.made_by} is not deterministic: called again on the same "
            "rows it gives "
            "others (rand, uuid, monotonically_increasing_id, …)",
            data=f"{NOTHING}; a batch that is tried again after a crash would be stopped, half written",
            hint="take that out of the function; or stable_input=True, which stores its rows before they are written",
        )


def _check_apart(root: Output, result: DataFrame) -> None:
    """Raise Refused for several results that chance tells apart, stored or not: Spark computes each of them by
    itself."""
    if not _deterministic(result):
        raise Refused(
            f"{_at(root)}output {root.name}: the results of {root.made_by} are not deterministic (rand, uuid, …): "
            "Spark computes each by "
            "itself, so a record could be in two of them or in none",
            data=NOTHING,
            hint="choose by a column of the record: a hash of its id for a sample",
        )


def _deterministic(result: DataFrame) -> bool:
    return bool(result._jdf.queryExecution().analyzed().deterministic())  # type: ignore[operator]


def _root(pipeline: Pipeline, output: Output) -> Output:
    return pipeline.output(str(output.made_beside))


def _check_streams(spark: SparkSession, pipeline: Pipeline, root: Output, lookups: results.Frames) -> None:
    """Raise Refused for what Spark can't do on a stream, as it would at the start of the query: a missing window,
    mostly."""
    fields = [F.lit(None).cast(field.dataType).alias(field.name) for field in events.schema(pipeline).fields]
    stream = spark.readStream.format("rate").load().select(*fields)
    result = results.of_pipeline(pipeline, root, windowing.in_stream(stream, root), lookups)
    java = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    mode = java.streaming.OutputMode.Update() if root.panes == "early" else java.streaming.OutputMode.Append()
    try:
        java.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            result._jdf.queryExecution().analyzed(),  # type: ignore[operator]
            mode,
        )
    except AnalysisException as error:
        raise _unsupported(root, error) from error


def _unsupported(root: Output, error: AnalysisException) -> Refused:
    known = outputs.refusal(root, error)
    if isinstance(known, Refused):
        return Refused(f"{_at(root)}{known.what}", data=NOTHING, hint=known.hint)
    told = (str(error).strip().splitlines() or [""])[0][:400]
    return Refused(
        f"{_at(root)}output {root.name}: {root.made_by} can't run as a stream: {told}",
        data=NOTHING,
        hint=f"a function gets its rows as they come: let it aggregate by {OO_WINDOW}, or leave that step to whoever "
        "reads the table",
    )


def _at(output: Output) -> str:
    place = origin.of_function(loading.transform(output))
    return f"{place}: " if place else ""
