"""Gives the records of one of several sources the columns of the pipeline, as its `Input` says.

Who calls it: `parse`, with records that have the source's own columns; a check before a run, with none. Errors: Refused where Spark does not understand what is
declared, or where that is of another type than the column.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources.inputs import Part
from onlyonce.model.errors import Refused
from onlyonce.model.run.isolation import first_line
from onlyonce.session import schemas
from onlyonce.session.names import quoted


def applied(records: DataFrame, part: Part) -> DataFrame:
    """Records with the pipeline's columns in place of the source's. One that is invalid has none of them."""
    if not part.columns:
        return records
    own = [name for name in records.columns if name.startswith("oo_")]
    valid = F.col("oo_reason").isNull()
    return records.select(*[F.when(valid, _made(*one)).alias(one[0]) for one in part.columns], *own)


def check(spark: SparkSession, view: Pipeline) -> None:
    """See that Spark understands what makes each column, and that it is of the column's type. Raises Refused."""
    assert view.part is not None
    nothing = spark.createDataFrame([], schemas.of(view.schema))
    for column, kind, made in view.part.columns:
        where = f"pipeline {view.name}, source {view.part.name}: column {column} is made by {made!r}"
        try:
            found = nothing.select(F.expr(made).alias("made")).schema["made"].dataType.simpleString()
        except (AnalysisException, ParseException) as error:
            raise Refused(f"{where}, and Spark says: {first_line(error)}", data="nothing was read or written", hint=f"the source has: {view.schema}") from error
        wanted = schemas.of(f"{quoted(column)} {kind}").fields[0].dataType.simpleString()
        if found not in (wanted, "void"):
            raise Refused(
                f"{where}, which is of type {found}, and the column of type {wanted}", data="nothing was read or written",
                hint=f"columns={{{column!r}: 'cast({made} as {wanted})'}}",
            )  # fmt: skip


def _made(column: str, kind: str, made: str) -> Column:
    # What is of the column's type already stays as it is; a null has no type.
    return F.expr(made).cast(kind)
