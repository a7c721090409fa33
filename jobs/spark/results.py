"""What an output's rows become: the user's function applied, its outputs in a chain, and their panes.

Used by the stream of an output (`outputs`), its bounded run, and its backfill (`backfill`), so that all three
are one code.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs import declarations
from jobs.model.batch import to_time
from jobs.model.declare import Output
from jobs.model.errors import Refused
from jobs.model.units import Content
from jobs.spark import content
from jobs.spark.names import quoted
from jobs.spark.query import Query
from jobs.spark.run_context import RunContext
from jobs.spark.sinks import SinkWriter, writer_for

WINDOW = ["window_start", "window_end"]


@dataclass(frozen=True)
class Step:
    """One output of a query's chain: the root, or one made from it."""

    output: Output
    writer: SinkWriter


def applied(context: RunContext, output: Output, rows: DataFrame) -> DataFrame:
    """The user's function over the columns that it may see."""
    names = [*context.pipeline.columns(), "oo_event_time", "oo_system_time"]
    if "oo_window" in rows.columns:
        names.append("oo_window")
    result: DataFrame = declarations.transform(output)(rows.select(*[quoted(name) for name in names]))
    _check_result(output, result, output.window is not None)
    return result


def _check_result(output: Output, result: Any, windowed: bool) -> None:
    if not isinstance(result, DataFrame):
        raise Refused(f"output {output.name}: {output.transform} gave {type(result).__name__}, not a DataFrame")
    if windowed and "oo_window" not in result.columns:
        raise Refused(
            f"output {output.name}: the result of {output.transform} has no column oo_window",
            data="nothing was written",
            hint="group by oo_window (and your keys), and keep it; it gives window_start and window_end",
        )


def steps_of(context: RunContext, query: Query, root: Output, result: DataFrame) -> list[Step]:
    """The root and the outputs made from it, each with its sink made ready. Raises Refused."""
    steps, schema = [], flat(result).schema
    for output in [root, *context.pipeline.made_from(root)]:
        if output is not root:
            schema = flat(made(output, context.spark.createDataFrame([], result.schema))).schema
        step = Step(output, writer_for(context, query, output))
        step.writer.prepare(_nullable(schema))
        steps.append(step)
    return steps


def hold(held: ExitStack, frame: DataFrame) -> DataFrame:
    """Keep a frame's rows until the stack ends, so that each reading gives the same ones."""
    kept = frame.persist()
    held.callback(kept.unpersist)
    return kept


def made(output: Output, rows: DataFrame) -> DataFrame:
    """The rows of an output that is made from another one's."""
    result: DataFrame = declarations.transform(output)(rows)
    _check_result(output, result, windowed=True)
    return result


@dataclass(frozen=True)
class Measured:
    """The rows of one output as its sink gets them, what they hold, and how many of them are in each window."""

    rows: DataFrame
    content: Content
    windows: list[dict[str, Any]]


def measured(rows: DataFrame) -> Measured:
    """Look once at an output's rows before they are written. The frame must be held: it is read again."""
    plain = flat(rows)
    # Times leave Spark as numbers: collected as datetimes they would be in the driver's own time zone.
    by = [F.unix_micros(name).alias(name) for name in WINDOW if name in plain.columns]
    groups = [row.asDict() for row in plain.groupBy(*by).agg(*content.aggregates(plain.schema)).collect()]
    windows = [{name: to_time(g[name]) for name in WINDOW} | {"rows": g["rows"]} for g in groups if by]
    return Measured(plain, content.of_groups(plain.schema, groups), windows)


def flat(rows: DataFrame) -> DataFrame:
    """The rows with their window as two columns."""
    if "oo_window" not in rows.columns:
        return rows
    rest = [F.col(quoted(name)) for name in rows.columns if name != "oo_window"]
    window = [F.col("oo_window.start").alias("window_start"), F.col("oo_window.end").alias("window_end")]
    return rows.select(*window, *rest)


def _nullable(schema: StructType) -> StructType:
    for field in schema.fields:
        field.nullable = True
    return schema


STATELESS = {
    "Project", "Filter", "Union", "Expand", "Generate", "EventTimeWatermark", "SubqueryAlias", "StreamingRelation",
    "StreamingRelationV2", "LocalRelation",
}  # fmt: skip
"""The logical operators of Spark that keep no state in a stream."""


def is_stateless(result: DataFrame) -> bool:
    """Whether a stream writes each row in the batch that reads it. An operator that is not known counts as one with state."""
    plan = result._jdf.queryExecution().analyzed().toString()  # type: ignore[operator]
    nodes = [re.match(r"[\s:+\-]*~?(\w+)", line) for line in plan.splitlines()]
    return all(node is None or node.group(1) in STATELESS for node in nodes)
