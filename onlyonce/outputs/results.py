"""Compute the results of an output: call its function, then the functions of the outputs made from it.

The stream of an output (`query`), its bounded run and its backfill (`recompute`) share this code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.api.sinks import Sink, later_window_wins, newest_by
from onlyonce.commitlog.batches import WRITTEN, Received
from onlyonce.context import Query, RunContext
from onlyonce.core import errors, stored_names
from onlyonce.core.batch import Batch
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import (
    OO_BATCH,
    OO_EVENT_TIME,
    OO_LINEAGE,
    OO_PLACE,
    OO_SYSTEM_TIME,
    OO_WINDOW,
    WINDOW_END,
    WINDOW_START,
)
from onlyonce.core.units import Content
from onlyonce.core.windows import Chained
from onlyonce.engine.session import quoted
from onlyonce.failpoints import passing
from onlyonce.outputs import function, state, stateless, windows
from onlyonce.outputs.function import calling
from onlyonce.receive import events
from onlyonce.sinks import registry
from onlyonce.sinks.base import content, held_values
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.delta import sink_delta
from onlyonce.sinks.registry import SinkWriter, writer_for
from onlyonce.sources.values import parse
from onlyonce.tables import commit as tables_commit

Frames = Mapping[str, DataFrame]
NO_LOOKUPS: Frames = {}
NO_LENGTHS: Lengths = {}
WINDOW = [WINDOW_START, WINDOW_END]


@dataclass(frozen=True)
class Step:
    """One output of a query's chain: the root, or an output made from it.

    If `adds_no_rows`, the output's function returns at most one row for each record.
    """

    output: Output
    writer: SinkWriter
    adds_no_rows: bool


def applied(context: RunContext, output: Output, rows: DataFrame) -> DataFrame:
    """Apply the user's function to the columns that it may see."""
    return of_pipeline(context.pipeline, output, rows, context.seen.frames)


def of_pipeline(pipeline: Pipeline, output: Output, rows: DataFrame, lookups: Frames = NO_LOOKUPS) -> DataFrame:
    """Apply the function without a run: for a check before a run, and for `onlyonce.testing`.

    `lookups`: their tables by name.
    """
    names = [*pipeline.columns(), OO_EVENT_TIME, OO_SYSTEM_TIME]
    if OO_WINDOW in rows.columns:
        names.append(OO_WINDOW)
    if output.stateful:
        return state.applied_processor(pipeline, output, rows)
    if output.join:
        return _joined(output, rows.select(*[quoted(name) for name in names if name != OO_WINDOW]))
    if isinstance(output.window, Chained):
        given = _closed(pipeline, output, output.window, rows)
    else:
        given = function.accepted_rows(pipeline, output, rows).select(*[quoted(name) for name in names])
    result = _of_function(output, given, lookups)
    wanted = function.names_of_results(pipeline, output)
    if len(wanted) == 1 and not isinstance(result, dict):
        _check_result(output, result, output.window is not None)
        return result
    return _several(output, wanted, result)


def _closed(pipeline: Pipeline, output: Output, window: Chained, rows: DataFrame) -> DataFrame:
    """Return the rows of the closed windows of the output before in the chain, with this output's own window."""
    before = pipeline.upstream(output)[-1]
    closed = flat(rows_of(before, of_pipeline(pipeline, before, windows.chained_before(rows, window))))
    timed = closed.withColumn(OO_EVENT_TIME, F.col(WINDOW_END) - F.expr("interval 1 microsecond"))
    return windows.of_closed(timed, window.own, WINDOW_END)


def _joined(output: Output, rows: DataFrame) -> DataFrame:
    sides = []
    for name in output.functions:
        function = declarations.function(output, name)
        sides.append(side := _called(output, name, function, rows))
        plain = not isinstance(side, DataFrame) or stateless.is_stateless(side)
        windows.check_join_side(output, name, side, _place(function), stateless=plain)
    return windows.joined_sides(output, *sides)


def _several(root: Output, wanted: list[str], result: Any) -> DataFrame:
    at = _at(root)
    if not isinstance(result, dict):
        raise Refused(
            f"{at}output {root.name}: {root.transform} gave {type(result).__name__}, and not a dict of the results "
            f"{', '.join(wanted)}",
            data="nothing was written",
            hint="return {name: DataFrame} with each of these names; or give the other outputs a transform",
        )
    function.check_results(root, wanted, result, at)
    for frame in result.values():
        _check_result(root, frame, root.window is not None)
    return function.united_results(root, result, at, stateless.is_stateless)


def _of_function(output: Output, rows: DataFrame, lookups: Frames) -> DataFrame:
    given = {lookup.name: lookups[lookup.name] for lookup in output.lookups}
    return _called(output, output.transform, declarations.transform(output), rows, **given)


def _called(output: Output, name: str, function: Callable[..., Any], rows: DataFrame, **given: DataFrame) -> DataFrame:
    with calling(f"output {output.name}: {name}", function, rows.columns):
        result: DataFrame = function(rows, **given)
    return result


def _check_result(output: Output, result: Any, windowed: bool) -> None:
    at = _at(output)
    if not isinstance(result, DataFrame):
        raise Refused(
            f"{at}output {output.name}: {output.transform} gave {type(result).__name__}, not a DataFrame",
            data="nothing was written",
            hint="let it return the DataFrame that it makes",
        )
    if windowed and OO_WINDOW not in result.columns:
        raise Refused(
            f"{at}output {output.name}: the result of {output.transform} has no column {OO_WINDOW}",
            data="nothing was written",
            hint=f"group by {OO_WINDOW} (and your keys), and keep it; it gives window_start and window_end",
        )


def _at(output: Output) -> str:
    return _place(declarations.transform(output))


def _place(function: Callable[..., Any]) -> str:
    return f"{errors.origin_of_function(function) or ''}: ".removeprefix(": ")


def steps_of(context: RunContext, query: Query, root: Output, result: DataFrame) -> list[Step]:
    """Return the root and the outputs made from it, each with its prepared sink. Raise Refused."""
    steps, empty = [], context.spark.createDataFrame([], result.schema)
    for output in [root, *context.pipeline.made_from(root)]:
        schema = flat(rows_of(output, empty, context.seen.frames)).schema
        step = Step(output, writer_for(context, query, output), output is root and stateless.adds_no_rows(result))
        with registry.claimed(context, output):
            step.writer.prepare(_nullable(schema))
        steps.append(step)
    return steps


def hold(held: ExitStack, frame: DataFrame) -> DataFrame:
    """Cache a frame's rows until the stack ends, so that each reading returns the same rows.

    A frame that is already cached stays cached.
    """
    if frame.is_cached:
        return frame
    kept = frame.persist()
    held.callback(kept.unpersist)
    return kept


def rows_of(output: Output, rows: DataFrame, lookups: Frames = NO_LOOKUPS) -> DataFrame:
    """Return the rows of one output: the root, a result of its function, or an output made from the root's rows.

    `rows` are what the root's function returned; `lookups` are the tables that the output's own function gets.
    """
    if function.results_are_united(rows):
        rows = function.result_of(output.name if output.is_result else output.made_beside or output.name, rows)
    return rows if output.is_result or output.made_beside is None else _made(output, rows, lookups)


def rows_held(held: ExitStack, output: Output, rows: DataFrame, lookups: Frames = NO_LOOKUPS) -> DataFrame:
    """Return the rows of one output of a chain, where `rows` are held.

    What a function makes of `rows` is held as well; a result is a part of `rows`.
    """
    mine = rows_of(output, rows, lookups)
    return hold(held, mine) if output.made_beside and not output.is_result else mine


def _made(output: Output, rows: DataFrame, lookups: Frames) -> DataFrame:
    result = _of_function(output, rows, lookups)
    _check_result(output, result, windowed=True)
    return result


@dataclass(frozen=True)
class Measured:
    """The rows of one output as its sink gets them.

    content   what the rows hold
    windows   how many rows are in each window (`WRITTEN`)
    outside   whether a row has a value that is refused before any row is written
    """

    rows: DataFrame
    content: Content
    windows: pa.Table
    outside: bool


def measured(rows: DataFrame, sink: Sink | None = None, lengths: Lengths = NO_LENGTHS) -> Measured:
    """Measure an output's rows before they are written. The frame must be held, because it is read again.

    If several rows share one row in the sink, measure twice: first all rows, to count each window's, then only the
    newest rows, which the sink gets.
    """
    plain = flat(rows)
    # Times leave Spark as numbers: collected as datetimes they would be in the driver's own time zone.
    by = [F.unix_micros(name) for name in WINDOW if name in plain.columns]
    outside = held_values.outside(plain.schema, lengths)
    groups = content.tallied(plain, plain.schema, by if outside is None else [*by, outside])
    windows = _windows(groups) if by else WRITTEN.empty_table()
    any_outside = outside is not None and any(key[-1] for key in groups)
    if sink is not None and (order := newer(sink, plain.columns)):
        plain = _newest(plain, sink.keys, order)
        groups = content.tallied(plain, plain.schema)
    return Measured(plain, content.total(plain.schema, groups.values()), windows, any_outside)


def _windows(groups: Mapping[content.Key, content.Tally]) -> pa.Table:
    """Return how many rows each window has."""
    rows: Counter[content.Key] = Counter()
    for key, tally in groups.items():
        rows[key[:2]] += tally.content().rows
    starts, ends = ([key[at] for key in rows] for at in range(2))
    return pa.table([pa.array(starts, pa.int64()), pa.array(ends, pa.int64()), [*rows.values()]], WRITTEN.names).cast(
        WRITTEN
    )


def newer(sink: Sink, columns: list[str]) -> list[Column]:
    """Return the order of rows with the same keys, newest first; empty if each row is a row of the sink.

    An upsert gets the newest row of each key in a batch, and no older row. The sink refuses two that are equally new,
    and compares the newest one with the stored row.
    """
    if later_window_wins(sink.write, sink.keys, columns):
        return [F.col(name).desc() for name in reversed(WINDOW)]
    # A null has no place in the order: it is passed to the sink, which refuses it, and is not skipped here. In a
    # history each row is a version.
    return [F.col(quoted(name)).desc_nulls_first() for name in newest_by(sink) if sink.write == "upsert"]


def _newest(plain: DataFrame, keys: tuple[str, ...], newer: list[Column]) -> DataFrame:
    """Return the newest of the rows with the same keys.

    If two rows are equally new, both stay, and the sink refuses them.
    """
    place = F.rank().over(SparkWindow.partitionBy(*map(quoted, keys)).orderBy(*newer))
    return plain.withColumn(OO_PLACE, place).filter(f"{OO_PLACE} = 1").drop(OO_PLACE)


def flat(rows: DataFrame) -> DataFrame:
    """Return the rows with their window as two columns."""
    if OO_WINDOW not in rows.columns:
        return rows
    rest = [F.col(quoted(name)) for name in rows.columns if name != OO_WINDOW]
    window = [F.col(f"{OO_WINDOW}.start").alias(WINDOW_START), F.col(f"{OO_WINDOW}.end").alias(WINDOW_END)]
    return rows.select(*window, *rest)


def _nullable(schema: StructType) -> StructType:
    for field in schema.fields:
        field.nullable = True
    return schema


# Stable input: the rows of an output's batch are stored once, before they are written to any sink.
#
# Each batch is one Delta commit. A replay reads the rows that the first attempt has stored, and does not call the
# user's function again (Beam: @RequiresStableInput; Dataflow stores a step's output before it is sent on).


BATCH, LINEAGE = OO_BATCH, OO_LINEAGE


def rows_of_steps(
    context: RunContext,
    query: Query,
    batch: Batch,
    steps: Sequence[Step],
    rows: DataFrame,
    held: ExitStack,
    made: Callable[[Output, DataFrame], DataFrame],
) -> Iterator[tuple[Step, DataFrame]]:
    """Yield each output of a batch with its rows, the root first.

    `rows`: what the root's function returned. `made`: makes an output's rows from the root's.

    The rows of an output with `stable_input` are read from storage; a root's rows are stored before any output uses
    them.
    """

    def stable(output: Output, some: DataFrame) -> DataFrame:
        return hold(held, staged(context, query, output, batch, some)) if output.stable_input else some

    rows = hold(held, rows)
    if steps[0].output.stable_input:
        rows.count()
    rows = stable(steps[0].output, rows)
    for step in steps:
        mine = made(step.output, rows)
        yield step, stable(step.output, mine) if step is not steps[0] else mine


def staged(context: RunContext, query: Query, output: Output, batch: Batch, frame: DataFrame) -> DataFrame:
    """Return the stored rows of a batch, and store them first if no attempt under the same declaration has.

    A changed function returns other rows and has another declaration, which a batch can only have if it has no unit.
    The rows of an output made from another's are stored below that output, whose query writes and removes them.
    """
    plan = batch.plan
    name = f"{plan.declaration_hash}-{output.name}" if output.made_beside else plan.declaration_hash
    path = context.folder / stored_names.STAGED_FOLDER / (output.made_beside or output.name) / name
    app_id = stored_names.transaction(plan.lineage, stored_names.STAGED_BY)
    commit = tables_commit.Commit(
        app_id, plan.batch_id, stored_names.numbered(app_id, plan.batch_id), query.driver.epoch, "staged"
    )
    marked = frame.withColumn(LINEAGE, F.lit(plan.lineage)).withColumn(BATCH, F.lit(plan.batch_id))
    schema = StructType(
        [StructField(field.name, field.dataType) for field in marked.schema]
    )  # without Spark's notes, such as of a watermark
    tables_commit.make(path, schema, context.spark, [LINEAGE, BATCH], {})
    parse.fit_columns(path, schema, f"output {output.name}, staged")
    passing("staging-before-write")
    sink_delta.append_rows(marked, path, commit)
    passing("staging-after-write")
    stored = frame.sparkSession.read.format("delta").load(str(path))
    return stored.filter((F.col(BATCH) == plan.batch_id) & (F.col(LINEAGE) == plan.lineage)).drop(BATCH, LINEAGE)


@dataclass(frozen=True)
class Versions:
    """The versions of `events` that a batch reads: (after, upto]."""

    after: int
    upto: int


def kept_rows(spark: SparkSession, pipeline: Pipeline, path: Location, received: Sequence[Received]) -> DataFrame:
    """Return the kept records of some receive batches."""
    return events.rows_kept(spark, path, events.schema(pipeline), list(received))


def results_of(pipeline: Pipeline, root: Output, rows: DataFrame, lookups: Frames = NO_LOOKUPS) -> dict[str, DataFrame]:
    """Run the functions of an output, and of each output made from it, over these records, and write nothing.

    This shows the functions' result, or the record at which they fail. The rows may differ from those of a run, whose
    windows have records of other batches too, and which leaves late records out.
    """
    windowed = rows if root.window is None else windows.assign(rows, root.window)
    result = of_pipeline(pipeline, root, windowed, lookups)
    chain = [root, *pipeline.made_from(root)]
    return {output.name: flat(rows_of(output, result, lookups)) for output in chain}
