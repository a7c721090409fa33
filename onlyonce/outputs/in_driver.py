"""Writes a small batch of an output in the driver: one Spark job gives its rows, and the driver writes them as a task
would.

Otherwise a batch is two jobs: one that looks at its rows, and one that writes them. Each takes a part of a second,
however few rows it has, and a task in Python has a session in the database of its own.

Only of few records, and of an output alone, whose sink can take rows so. A function that gives a row for a record at
most has few rows then. Of any other, of windows that close for example, the driver asks for no more than MOST rows: if
there are more, tasks write them. So they do if a row takes more bytes than its share of what the driver holds
(`driver_rows`). What comes of a state is held, since it is read only once. The unit and its content are those of the
tasks, so a replay may go the other way.

Who calls it: `outputs`. Errors: those of the sink. What is away or in doubt is left to Spark's tasks after a warning,
since they try again. Not promised: that a small batch is written here.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from onlyonce.commitlog.batches import WRITTEN, Batches
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.batch import Batch
from onlyonce.model.errors import Retryable
from onlyonce.model.units import Content
from onlyonce.outputs import results
from onlyonce.outputs.events.replayed import Versions
from onlyonce.session import adaptive, driver_rows
from onlyonce.sinks import content_hash, held_values
from onlyonce.sinks.sinks import WritesInDriver

MOST = 10_000
"""So many rows the driver takes of a function that may give more rows than it has records."""


@dataclass(frozen=True)
class Written:
    """How many rows were written, and how many of them are in each window (`WRITTEN`)."""

    rows: int
    windows: pa.Table


def written(
    context: RunContext,
    query: Query,
    steps: list[results.Step],
    batch: Batch,
    versions: Versions,
    frame: DataFrame,
    held: ExitStack,
) -> Written | None:
    """Write a batch's rows; None where that is for Spark's tasks. `frame` is read once, or is held from then on."""
    step = steps[0]
    if len(steps) > 1 or not isinstance(step.writer, WritesInDriver):
        return None
    records = _records(context, query, step, batch, versions)
    if records is None or not driver_rows.are_few(records):
        return None
    bounded = not step.adds_no_rows
    if bounded and not batch.plan.facts.get(stored_names.STATELESS):
        frame = results.hold(held, frame)
    plain = results.flat(results.rows_of(step.output, frame, context.seen.frames))
    wanted = None if results.newer(step.output.sink, plain.columns) else step.writer.exported(batch, plain)
    if wanted is None or {*results.WINDOW} & {*plain.columns} - {*wanted.columns}:
        return None
    most = MOST + 1 if bounded else records
    rows = driver_rows.fetched(adaptive.of_local_rows(wanted.limit(most)) if bounded else wanted, most)
    if rows is None or (bounded and rows.num_rows > MOST):
        return None
    passing("output-consumed")
    content = _content(plain, rows)
    try:
        lengths = step.writer.lengths()
        with held_values.named(step.output, plain, lengths, outside=held_values.any_outside(rows, lengths)):
            step.writer.write(batch, rows, content)
    except (OSError, Retryable) as error:
        query.log.warning("a small batch could not be written by the driver; Spark's tasks try", problem=str(error))
        return None
    return Written(content.rows, _windows(rows))


def _content(plain: DataFrame, rows: pa.Table) -> Content:
    tally = content_hash.tally_of(rows.column_names, [*content_hash.floats(plain.schema)])
    for part in rows.to_batches():
        tally.add(part)
    return tally.content()


def _records(context: RunContext, query: Query, step: results.Step, batch: Batch, versions: Versions) -> int | None:
    """Return how many records a batch has; None if the log does not count them by batch, or if its rows are not for the
    driver."""
    root = step.output
    if context.bounded or root.stable_input:
        return None
    if batch.plan.source_from is None and query.start_from:
        return None  # a new life reads again what an earlier one has counted
    received = Batches(query.database).received(context.instance, versions.after, versions.upto)
    return sum(one.kept for one in received)


def _windows(rows: pa.Table) -> pa.Table:
    if results.WINDOW[0] not in rows.column_names:
        return WRITTEN.empty_table()
    groups = rows.select(results.WINDOW).group_by(results.WINDOW).aggregate([([], "count_all")])
    return groups.rename_columns({"count_all": "rows"}).select(WRITTEN.names).cast(WRITTEN)
