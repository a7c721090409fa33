"""Stable input: the rows of an output's batch are stored once, before they are written to any sink.

Each batch is one Delta commit. A replay reads the rows that the first attempt has stored, and does not call the user's
function again (Beam: @RequiresStableInput; Dataflow stores a step's output before it is sent on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.batch import Batch
from onlyonce.model.stored_names import OO_BATCH, OO_LINEAGE
from onlyonce.outputs import results
from onlyonce.outputs.results import Step
from onlyonce.sinks.delta import delta_append
from onlyonce.sources.parse import columns
from onlyonce.storage import delta

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

    `rows`: what the root's function gave. `made`: makes an output's rows of the root's.

    The rows of an output with `stable_input` are stored ones, those of a root before anything is made of them.
    """

    def stable(output: Output, some: DataFrame) -> DataFrame:
        return results.hold(held, staged(context, query, output, batch, some)) if output.stable_input else some

    rows = results.hold(held, rows)
    if steps[0].output.stable_input:
        rows.count()
    rows = stable(steps[0].output, rows)
    for step in steps:
        mine = made(step.output, rows)
        yield step, stable(step.output, mine) if step is not steps[0] else mine


def staged(context: RunContext, query: Query, output: Output, batch: Batch, frame: DataFrame) -> DataFrame:
    """Return the stored rows of a batch.

    Store them if no attempt under the same declaration has: a changed function gives others, and is another
    declaration, which a batch can only have if it has no unit (`model.batch.check_declaration`). The rows of an output
    that is made from another's are stored below that one, whose query writes and removes them."""
    plan = batch.plan
    name = f"{plan.declaration_hash}-{output.name}" if output.made_beside else plan.declaration_hash
    path = context.folder / stored_names.STAGED_FOLDER / (output.made_beside or output.name) / name
    app_id = stored_names.transaction(plan.lineage, stored_names.STAGED_BY)
    commit = delta.Commit(
        app_id, plan.batch_id, stored_names.numbered(app_id, plan.batch_id), query.driver.epoch, "staged"
    )
    marked = frame.withColumn(LINEAGE, F.lit(plan.lineage)).withColumn(BATCH, F.lit(plan.batch_id))
    schema = StructType(
        [StructField(field.name, field.dataType) for field in marked.schema]
    )  # without Spark's notes, such as of a watermark
    delta.make(path, schema, context.spark, [LINEAGE, BATCH], {})
    columns.fit(path, schema, f"output {output.name}, staged")
    passing("staging-before-write")
    delta_append.append(marked, path, commit)
    passing("staging-after-write")
    stored = frame.sparkSession.read.format("delta").load(str(path))
    return stored.filter((F.col(BATCH) == plan.batch_id) & (F.col(LINEAGE) == plan.lineage)).drop(BATCH, LINEAGE)
