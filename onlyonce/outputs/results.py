"""Compute the rows of an output: call its function, then the functions of the outputs made from its rows.

The stream of an output (`query`), its bounded run and its backfill (`backfill_windows`) share this code. One query
computes the rows of several outputs: the *root*, which reads `events`, and the outputs made from the root's rows
(`Pipeline.made_from`). Such an output may be a *result*: one of several frames that the root's function returns.
Otherwise it has a function of its own, which gets the root's rows. The module has these parts, in the order of their
use:

1. `applied` calls the root's function over the rows of a batch. If it returns several results, they become one frame.
2. `steps_of` prepares the sinks of all these outputs.
3. `rows_of` returns the rows of one of the outputs. `hold` caches rows that are read more than once.
4. `measured` counts and hashes an output's rows before they are written.
5. `rows_of_steps` yields each output with its rows. It stores them first if the batch has begun so (`is_staged`).
6. `results_of` computes all outputs over given records and writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.api.sinks import Sink, later_window_wins
from onlyonce.commitlog.batches import WRITTEN, Received
from onlyonce.context import Query, RunContext
from onlyonce.core import errors, stored_names, unrepeatable
from onlyonce.core.batch import EXACTLY_ONCE, Batch
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import (
    OO_BATCH,
    OO_EVENT_TIME,
    OO_INCARNATION,
    OO_INGESTION_TIME,
    OO_PLACE,
    OO_WINDOW,
    WINDOW_END,
    WINDOW_START,
)
from onlyonce.core.units import Content
from onlyonce.core.windows import Bounds, Chained
from onlyonce.engine.session import quoted
from onlyonce.failpoints import passing
from onlyonce.outputs import function, pane_numbers, state, stateless, windows
from onlyonce.outputs.function import calling
from onlyonce.outputs.unrepeatable import found_in
from onlyonce.receive import events
from onlyonce.sinks import targets
from onlyonce.sinks.base import content, held_values
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.delta import sink_delta
from onlyonce.sinks.targets import SinkWriter, writer_for
from onlyonce.sources.values import parse
from onlyonce.tables import commit as tables_commit

Frames = Mapping[str, DataFrame]
NO_LOOKUPS: Frames = {}
NO_LENGTHS: Lengths = {}
WINDOW = [WINDOW_START, WINDOW_END]


@dataclass(frozen=True)
class Step:
    """One output of a query: the root, or an output made from its rows.

    writer         writes its rows to its sink
    adds_no_rows   whether its function is known to return at most one row for each record
    staged         whether a batch that begins now stores its rows before they are written
    """

    output: Output
    writer: SinkWriter
    adds_no_rows: bool
    staged: bool


def applied(context: RunContext, output: Output, rows: DataFrame) -> DataFrame:
    """Return the result of a root's function over rows of `events`. It gets only the columns that it may see."""
    return of_pipeline(context.pipeline, output, rows, context.seen.frames)


def of_pipeline(pipeline: Pipeline, output: Output, rows: DataFrame, lookups: Frames = NO_LOOKUPS) -> DataFrame:
    """Return the result of a root's function, without a run: for a check before a run, and for `onlyonce.testing`.

    rows      rows of `events`, with their `oo_window` if the output has windows
    lookups   the tables that the function gets, by the names of the lookups
    """
    names = [*pipeline.columns(), OO_EVENT_TIME, OO_INGESTION_TIME]
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
        return pane_numbers.with_first(output, result)
    return _several(output, wanted, result)


def _closed(pipeline: Pipeline, output: Output, window: Chained, rows: DataFrame) -> DataFrame:
    """Return the input of an output that is made from another output's closed windows: its rows with its own window.

    The rows of its upstream output are computed from `events` too, by calling that output's function.
    """
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
    with calling(f"output {output.name}: {name}", function, rows):
        result: DataFrame = function(rows, **given)
    return result


def _check_result(output: Output, result: Any, windowed: bool) -> None:
    at = _at(output)
    if not isinstance(result, DataFrame):
        raise Refused(
            f"{at}output {output.name}: {output.transform} gave "
            f"{'None' if result is None else type(result).__name__}, not a DataFrame",
            data="nothing was written",
            hint="add .agg(…) to it, which makes a DataFrame"
            if isinstance(result, GroupedData)
            else "let it return the DataFrame that it makes (return …)",
        )
    if windowed and OO_WINDOW not in result.columns:
        made_at = errors.origin_of_result(declarations.transform(output))
        has_own = any(field.dataType.simpleString() == _OF_WINDOW for field in result.schema.fields)
        raise Refused(
            f"{f'{made_at}: ' if made_at else ''}output {output.name}: the result of {output.transform} has no column "
            f"{OO_WINDOW}; it has: {', '.join(result.columns)}",
            data="nothing was written",
            hint=(f"{OO_WINDOW} takes the place of F.window(…): " if has_own else "")
            + f"group by {OO_WINDOW} (and your keys), and keep it; it gives window_start and window_end",
        )
    if output.pane_column and output.pane_column.lower() in map(str.lower, result.columns):
        raise Refused(
            f"{at}output {output.name}: the result of {output.transform} has a column {output.pane_column}, and the "
            "platform adds the number of the pane under that name (pane_column)",
            data="nothing was written",
            hint="give the column another name, or pane_column",
        )


_OF_WINDOW = "struct<start:timestamp,end:timestamp>"
"""The type of a column that Spark's function `window` makes."""


def _at(output: Output) -> str:
    return _place(declarations.transform(output))


def _place(function: Callable[..., Any]) -> str:
    return f"{errors.origin_of_function(function) or ''}: ".removeprefix(": ")


def steps_of(context: RunContext, query: Query, root: Output, result: DataFrame) -> list[Step]:
    """Return the root and the outputs made from it, each with its prepared sink. Raise Refused."""
    steps, empty = [], context.spark.createDataFrame([], result.schema)
    for output in [root, *context.pipeline.made_from(root)]:
        of_function = result if output is root else rows_of(output, empty, context.seen.frames)
        schema = flat(rows_of(output, empty, context.seen.frames)).schema
        step = Step(
            output,
            writer_for(context, query, output),
            # A batch that writes whole windows has rows of records of earlier batches too.
            adds_no_rows=output is root and not root.gets_whole_windows and stateless.adds_no_rows(result),
            staged=bool(why_staged(context.pipeline, output, of_function, exactly_once=context.mode == EXACTLY_ONCE)),
        )
        with targets.claimed(context, output):
            step.writer.prepare(_as_declared(schema))
        steps.append(step)
    return steps


def why_staged(pipeline: Pipeline, output: Output, result: DataFrame, *, exactly_once: bool) -> str | None:
    """Return why an output's rows are staged, by the result of its function; None if they are not.

    Several results of one function are staged together, as the root's rows.
    """
    if output.is_result:
        return None
    results = [output, *(made for made in pipeline.made_from(output) if made.is_result)]
    declared = unrepeatable.declared_of(one.stable_input for one in results)
    found = [] if declared is not None else found_in(result)
    return unrepeatable.because(declared, found, exactly_once=exactly_once)


def facts_of(steps: Sequence[Step]) -> dict[str, Any]:
    """Return the outputs that a batch stages, for its row in the log. So each attempt at the batch stages the same."""
    return {stored_names.STAGED: [step.output.name for step in steps if step.staged]}


def is_staged(batch: Batch, output: Output) -> bool:
    """Return whether a batch has begun with an output's rows staged, whatever is declared now."""
    return output.name in batch.plan.facts.get(stored_names.STAGED, ())


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
    """Return the rows of one output of a query.

    rows      the result of the root's function; with several results their union (`function.united_results`)
    lookups   the tables that the output's own function gets

    If the function has several results, first choose one: the output's own result, else the root's. An output with a
    function of its own then calls it over these rows.
    """
    if function.results_are_united(rows):
        rows = function.result_of(output.name if output.is_result else output.made_beside or output.name, rows)
    return rows if output.is_result or output.made_beside is None else _made(output, rows, lookups)


def rows_held(held: ExitStack, output: Output, rows: DataFrame, lookups: Frames = NO_LOOKUPS) -> DataFrame:
    """Return the rows of one output of a query, as `rows_of`. The caller has cached `rows` by `hold`.

    Rows that an own function makes are cached too. A result is a part of `rows`, so it is cached already.
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

    content   their number, the hash of their values, and the sums of their floats
    windows   how many rows are in each window (`WRITTEN`)
    outside   whether a row has a value that is refused before any row is written (`held_values`)
    """

    rows: DataFrame
    content: Content
    windows: pa.Table
    outside: bool

    def without_rows_of(self, emptied: Collection[Bounds]) -> Measured:
        """Return the same with windows added that were written without rows."""
        starts, ends = ([window[at] for window in emptied] for at in range(2))
        none = pa.table([pa.array(starts, pa.int64()), pa.array(ends, pa.int64()), [0] * len(starts)], WRITTEN.names)
        return replace(self, windows=pa.concat_tables([self.windows, none.cast(WRITTEN)]))


def measured(rows: DataFrame, sink: Sink | None = None, lengths: Lengths = NO_LENGTHS) -> Measured:
    """Measure an output's rows before they are written. The frame must be cached (`hold`), because it is read again.

    If several rows become one row of the sink (`newer`), measure twice. The first time measure all rows, to count the
    rows of each window. The second time measure only the newest rows, which the sink gets.
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


def refuse_without_window(output: Output, windows: pa.Table) -> None:
    """Raise Refused if rows of an output have no window. No batch could end after it has written such rows.

    windows   how many rows each window has (`WRITTEN`)
    """
    nulls = pc.or_(*(pc.is_null(windows.column(name)) for name in WINDOW))
    rows = pc.sum(windows.filter(nulls).column("rows")).as_py()
    if rows is not None:
        raise Refused(
            f"output {output.name}: {output.made_by} gave {rows} {'row' if rows == 1 else 'rows'} without a window: "
            f"{OO_WINDOW} is null",
            data="nothing of this output's unit was written",
            hint=f"give each row the {OO_WINDOW} of its records: group by it, use an inner or left join, and no rollup "
            "or cube over it",
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
    return [F.col(quoted(name)).desc_nulls_first() for name in sink.sequence_by if sink.write == "upsert"]


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


def _as_declared(schema: StructType) -> StructType:
    """Return the columns with which a sink makes its table: any may be null, and of their metadata only comments stay.

    Spark notes the watermark there, and a function that returns the columns of its records passes it on.
    """
    return StructType(
        [
            StructField(
                field.name,
                field.dataType,
                metadata={key: field.metadata[key] for key in {"comment"} & {*field.metadata}},
            )
            for field in schema.fields
        ]
    )


# The outputs of a batch with their rows; and stable input: the rows are stored once, before any sink gets them.
#
# With stable input each batch is one Delta commit to a staged table. A replay reads the rows that the first attempt
# has stored, and does not use the result of the user's function again (Beam: @RequiresStableInput; Dataflow stores a
# step's output before it sends it on). `why_staged` decides when a batch begins, and the batch's row keeps it.


BATCH, INCARNATION = OO_BATCH, OO_INCARNATION


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

    rows   the result of the root's function
    made   returns an output's rows, given the output and the root's rows (`rows_held`)

    The rows of a staged output are stored, and then read from storage. If the root is staged, its rows are stored
    first, and all other outputs are made from the stored rows.
    """

    def stable(output: Output, some: DataFrame) -> DataFrame:
        return hold(held, staged(context, query, output, batch, some)) if is_staged(batch, output) else some

    rows = hold(held, rows)
    if is_staged(batch, steps[0].output):
        rows.count()
    rows = stable(steps[0].output, rows)
    for step in steps:
        mine = made(step.output, rows)
        yield step, stable(step.output, mine) if step is not steps[0] else mine


def staged(context: RunContext, query: Query, output: Output, batch: Batch, frame: DataFrame) -> DataFrame:
    """Return the stored rows of a batch. Store `frame` first if no attempt under the same declaration has stored any.

    Each declaration has a staged table of its own, since a changed function returns different rows. A batch can change
    its declaration only while it has no unit. The table of an output made from a root's rows is in the root's folder,
    because the root's query writes and removes it.
    """
    plan = batch.plan
    name = f"{plan.declaration_hash}-{output.name}" if output.made_beside else plan.declaration_hash
    path = context.folder / stored_names.STAGED_FOLDER / (output.made_beside or output.name) / name
    app_id = stored_names.transaction(plan.incarnation, stored_names.STAGED_BY)
    commit = tables_commit.Commit(
        app_id, plan.batch_id, stored_names.numbered(app_id, plan.batch_id), query.driver.epoch, "staged"
    )
    marked = frame.withColumn(INCARNATION, F.lit(plan.incarnation)).withColumn(BATCH, F.lit(plan.batch_id))
    schema = StructType(
        [StructField(field.name, field.dataType) for field in marked.schema]
    )  # without Spark's notes, such as of a watermark
    tables_commit.make(path, schema, context.spark, [INCARNATION, BATCH], {})
    parse.fit_columns(path, schema, f"output {output.name}, staged")
    passing("staging-before-write")
    sink_delta.append_rows(marked, path, commit)
    passing("staging-after-write")
    stored = frame.sparkSession.read.format("delta").load(str(path))
    return stored.filter((F.col(BATCH) == plan.batch_id) & (F.col(INCARNATION) == plan.incarnation)).drop(
        BATCH, INCARNATION
    )


@dataclass(frozen=True)
class Versions:
    """The versions of `events` that a batch reads: later than `after`, and not later than `upto`."""

    after: int
    upto: int


def kept_rows(spark: SparkSession, pipeline: Pipeline, path: Location, received: Sequence[Received]) -> DataFrame:
    """Return the kept records of some receive batches."""
    return events.rows_kept(spark, path, events.schema(pipeline), list(received))


def results_of(pipeline: Pipeline, root: Output, rows: DataFrame, lookups: Frames = NO_LOOKUPS) -> dict[str, DataFrame]:
    """Return the rows of a root, and of each output made from its rows, over given records. Write nothing.

    `check` shows these rows, and `culprit` searches the record at which a function fails. A run may return different
    rows: its windows also have records of other batches, and it leaves late records out.
    """
    windowed = rows if root.window is None else windows.assign(rows, root.window)
    result = of_pipeline(pipeline, root, windowed, lookups)
    chain = [root, *pipeline.made_from(root)]
    return {output.name: flat(rows_of(output, result, lookups)) for output in chain}
