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
from onlyonce.model.location import Url
from onlyonce.sinks import delta_append
from onlyonce.sources.parse import columns
from onlyonce.storage import delta

BATCH, LINEAGE = "oo_batch", "oo_lineage"


def staged(context: RunContext, query: Query, output: Output, batch: Batch, frame: DataFrame) -> DataFrame:
    """The stored rows of a batch; stores them if no attempt has."""
    path = context.folder / "staged" / output.name
    plan = batch.plan
    app_id = f"{plan.lineage}/staged"
    commit = delta.Commit(app_id, plan.batch_id, f"{app_id}/{plan.batch_id}", query.driver.epoch, "staged")
    marked = frame.withColumn(LINEAGE, F.lit(plan.lineage)).withColumn(BATCH, F.lit(plan.batch_id))
    if isinstance(path, Url):
        delta.make(path, marked.schema, context.spark, [LINEAGE, BATCH], {})
    if delta.exists(path):
        columns.fit(context.spark, path, marked.schema, f"output {output.name}, staged")
    passing("staging-before-write")
    if isinstance(path, Url):
        delta_append.append(marked, path, commit, [LINEAGE, BATCH])
    else:
        delta.append(marked, path, commit, [LINEAGE, BATCH])
    passing("staging-after-write")
    # By the session of the rows: a MERGE of them sets its transaction there, and a query's is nobody else's.
    stored = frame.sparkSession.read.format("delta").load(str(path))
    return stored.filter((F.col(BATCH) == plan.batch_id) & (F.col(LINEAGE) == plan.lineage)).drop(BATCH, LINEAGE)
