"""The rows of `events` as of an earlier version, and those of some batches, whatever has become of the files that they
were written to.

Old commits are compacted (docs/specification/compaction.md): their rows are in other files, and Delta's log forgets
them. So nobody asks Delta for an old version. The table is read as it is now, less what has come later; a row says of
which batch it is, and the log of which version that is.

Who calls it: outputs, backfills, releases. Errors: those of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.commitlog.batches import Received
from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.context.run_context import RunContext
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import CONTROL, KEPT, OO_BATCH, OO_KIND, OO_LINEAGE
from onlyonce.receive import events
from onlyonce.session import data_files


def as_of(context: RunContext, version: int) -> DataFrame:
    """The rows of all kinds but control that batches of receive have put into `events` up to a version."""
    last = Compactions(context.database).last_in(context.instance, version)
    return upto(context.spark, context.events, last)


def upto(spark: SparkSession, path: Location, last: Mapping[str, int]) -> DataFrame:
    """The rows of all kinds but control of these lives of receive, each up to a batch."""
    return spark.read.format("delta").load(str(path)).filter((F.col(OO_KIND) != CONTROL) & in_batches(last))


def in_batches(last: Mapping[str, int], after: Mapping[str, int] | None = None) -> Column:
    """Whether a row is of one of these lives of receive, up to its batch; and of a later one than `after` has of that
    life."""
    return reduce(
        lambda found, one: found | _of_life(one[0], (after or {}).get(one[0], -1), one[1]),
        sorted(last.items()),
        F.lit(False),
    )


def _of_life(lineage: str, after: int, last: int) -> Column:
    found = (F.col(OO_LINEAGE) == lineage) & (F.col(OO_BATCH) <= last)
    return found & (F.col(OO_BATCH) > after) if after >= 0 else found


def kept(spark: SparkSession, path: Location, schema: StructType, received: list[Received]) -> DataFrame:
    """The kept rows of some receive batches, with the columns of a schema."""
    intact = [one for one in received if not one.compacted]
    files = events.kept_files(path, intact)
    rows = data_files.reader(spark).schema(schema).parquet(*map(str, files)) if files else _none(spark, schema)
    moved = [one for one in received if one.compacted]
    if not moved:
        return rows
    table = spark.read.format("delta").load(str(path)).filter(F.col(OO_KIND) == KEPT)
    ids = spark.createDataFrame([(one.lineage, one.batch_id) for one in moved], f"{OO_LINEAGE} string, {OO_BATCH} long")
    numbers = [one.batch_id for one in moved]
    between = F.col(OO_BATCH).between(min(numbers), max(numbers))  # what files are skipped by
    found = table.filter(between).join(F.broadcast(ids), [OO_LINEAGE, OO_BATCH], "left_semi")
    return rows.unionByName(found.select(*schema.names))


def _none(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, as a local relation: Spark's optimizer ends at it, and there is no job.

    (Of an empty list Spark makes an RDD.)
    """
    nothing = spark.createDataFrame(pa.table({"n": pa.array([], pa.int8())}))
    return nothing.select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields])
