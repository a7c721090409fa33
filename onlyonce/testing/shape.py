"""Asks Spark what an output is as a stream, without starting one.

Raises Refused if the function can't run as a stream, as a run would.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.errors import Refused
from onlyonce.model.run.isolation import first_line
from onlyonce.outputs import outputs, results, stateless
from onlyonce.outputs.windows import raw_windows, windowing
from onlyonce.receive import events


def as_they_come(
    spark: SparkSession, pipeline: Pipeline, root: Output, lookups: results.Frames = results.NO_LOOKUPS
) -> bool:
    """Whether the batch that reads a record writes its rows, and not the one with which their window closes."""
    if root.join:
        raise Refused(
            f"output {root.name}: a join can't be played by a test yet: which rows it has written is in the state "
            "of Spark's stream",
            data="only this test has read the rows",
            hint="test its two sides as functions, and the join itself by a run of the pipeline",
        )
    if root.stateful:
        raise Refused(
            f"output {root.name}: a processor with state can't be played by a test of a pipeline yet: its timers "
            "go by Spark's stream",
            data="only this test has read the rows",
            hint="test the processor by Spark's own TwsTester (pyspark.sql.streaming), and the output by a run of "
            "the pipeline",
        )
    if root.gets_whole_windows:  # its function gets whole windows, and no stream
        return False
    try:
        result = results.of_pipeline(pipeline, root, windowing.in_stream(_stream(spark, pipeline), root), lookups)
        _check(spark, result, "Update" if root.panes == "early" else "Append")
    except AnalysisException as error:
        raise _refusal(root, error) from error
    plain = stateless.is_stateless(result)
    raw_windows.are_of(pipeline, root, stateless=plain)
    return raw_windows.as_they_come(root, stateless=plain) or root.window is None


def _stream(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    fields = events.schema(pipeline).fields
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in fields]
    return spark.readStream.format("rate").load().select(*nothing)


def _check(spark: SparkSession, result: DataFrame, mode: str) -> None:
    jvm: Any = spark._jvm
    plan = result._jdf.queryExecution().analyzed()  # type: ignore[operator]
    of_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode)()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, of_mode)


def _refusal(root: Output, error: AnalysisException) -> Exception:
    known = outputs.refusal(root, error)
    if known is not error:
        return known
    return Refused(
        f"output {root.name}: Spark can't run {root.transform} as a stream: {first_line(error)}",
        data="only this test has read the rows",
        hint="put what only a batch can do (a sort, a rank, a second aggregation) into an output made from this "
        "one: from_output",
    )
