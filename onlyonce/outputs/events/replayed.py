"""Runs the functions of an output over the rows of receive batches and writes nothing, to show their result or the row
at which they fail.

Who calls it: `culprit`, and the command `onlyonce replay`. Errors: FunctionFails, as in a run. Not promised: the rows
of a run. A run's window has records of other batches too, and leaves late records out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from onlyonce.commitlog.batches import Received
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.storage.location import Location
from onlyonce.outputs import results
from onlyonce.outputs.windows import windowing
from onlyonce.receive import events, past_rows


@dataclass(frozen=True)
class Versions:
    """The versions of `events` that a batch reads: (after, upto]."""

    after: int
    upto: int


def kept(spark: SparkSession, pipeline: Pipeline, path: Location, received: Sequence[Received]) -> DataFrame:
    """The kept records of some receive batches."""
    return past_rows.kept(spark, path, events.schema(pipeline), list(received))


def results_of(
    pipeline: Pipeline, root: Output, rows: DataFrame, lookups: results.Frames = results.NO_LOOKUPS
) -> dict[str, DataFrame]:
    """What an output, and each made from it, gives of these records."""
    windowed = rows if root.window is None else windowing.assign(rows, root.window)
    result = results.of_pipeline(pipeline, root, windowed, lookups)
    chain = [root, *pipeline.made_from(root)]
    return {output.name: results.flat(results.rows_of(output, result, lookups)) for output in chain}
