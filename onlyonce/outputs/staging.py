"""Stable input: the rows of an output's batch are stored once, before they are written to any sink.

Each batch is one Delta commit. A replay reads the rows that the first attempt has stored, and does not call the user's function
again (Beam: @RequiresStableInput; Dataflow stores a step's output before it is sent on).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.failpoints import passing
from onlyonce.model.batch import Batch
from onlyonce.sinks.delta import delta_append
from onlyonce.sources.parse import columns
from onlyonce.storage import delta

BATCH, LINEAGE = "oo_batch", "oo_lineage"


def staged(context: RunContext, query: Query, output: Output, batch: Batch, frame: DataFrame) -> DataFrame:
    """Return the stored rows of a batch. Store them if no attempt under the same declaration has: a changed function gives others, and is another
    declaration, which a batch can only have if it has no unit (`model.batch.check_declaration`)."""
    plan = batch.plan
    path = context.folder / "staged" / output.name / plan.declaration_hash
    app_id = f"{plan.lineage}/staged"
    commit = delta.Commit(app_id, plan.batch_id, f"{app_id}/{plan.batch_id}", query.driver.epoch, "staged")
    marked = frame.withColumn(LINEAGE, F.lit(plan.lineage)).withColumn(BATCH, F.lit(plan.batch_id))
    delta.make(path, marked.schema, context.spark, [LINEAGE, BATCH], {})
    columns.fit(path, marked.schema, f"output {output.name}, staged")
    passing("staging-before-write")
    delta_append.append(marked, path, commit)
    passing("staging-after-write")
    stored = frame.sparkSession.read.format("delta").load(str(path))
    return stored.filter((F.col(BATCH) == plan.batch_id) & (F.col(LINEAGE) == plan.lineage)).drop(BATCH, LINEAGE)
