"""Gives the records of one of several sources the columns of the pipeline, as its `Input` says.

Who calls it: `parse`, with records that have the source's own columns; a check before a run, with none. Errors: Refused
where Spark does not understand what is declared, or where that is of another type than the column.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources.inputs import Part
from onlyonce.model.errors import Refused
from onlyonce.model.run.isolation import first_line
from onlyonce.model.stored_names import OO_REASON
from onlyonce.session import schemas
from onlyonce.session.names import quoted

CLOCKS = {"CurrentTimestamp", "CurrentDate", "CurrentTime", "Now", "LocalTimestamp", "CurrentTimeZone"}
PARSERS = {"JsonToStructs", "CsvToStructs", "XmlToStructs", "ParseJson"}
TIMES = ('"timestamp', '"date"')
"""How the types of times begin where Spark writes them as JSON."""


def applied(records: DataFrame, part: Part) -> DataFrame:
    """Records with the pipeline's columns in place of the source's. One that is invalid has none of them."""
    if not part.columns:
        return records
    own = [name for name in records.columns if name.startswith("oo_")]
    valid = F.col(OO_REASON).isNull()
    return records.select(*[F.when(valid, _made(*one)).alias(one[0]) for one in part.columns], *own)


def check(spark: SparkSession, view: Pipeline) -> None:
    """See that Spark understands what makes each column, and that it is of the column's type. Raises Refused."""
    assert view.part is not None
    nothing = spark.createDataFrame([], schemas.of(view.schema))
    for column, kind, made in view.part.columns:
        where = f"pipeline {view.name}, source {view.part.name}: column {column} is made by {made!r}"
        try:
            result = nothing.select(F.expr(made).alias("made"))
            found = result.schema["made"].dataType.simpleString()
        except (AnalysisException, ParseException) as error:
            raise Refused(
                f"{where}, and Spark says: {first_line(error)}",
                data="nothing was read or written",
                hint=f"the source has: {view.schema}",
            ) from error
        if why := _not_of_the_record(spark, result):
            raise Refused(
                f"{where}, which {why}",
                data="nothing was read or written; a batch that is tried again would give the record another value",
                hint="declare it as a timestamp or date in the schema of the Input, with formats={…} if it is not "
                "ISO 8601; or give to_timestamp its pattern",
            )
        wanted = schemas.of(f"{quoted(column)} {kind}").fields[0].dataType.simpleString()
        if found not in (wanted, "void"):
            raise Refused(
                f"{where}, which is of type {found}, and the column of type {wanted}",
                data="nothing was read or written",
                hint=f"columns={{{column!r}: 'cast({made} as {wanted})'}}",
            )


def _not_of_the_record(spark: SparkSession, result: DataFrame) -> str | None:
    """Return what in a plan takes a value from the clock or from chance; None if nothing does."""
    plan: Any = result._jdf.queryExecution().analyzed()  # type: ignore[operator]
    whole = spark._jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions.apply(plan)  # type: ignore[union-attr]
    if not whole.deterministic():
        return "is not deterministic"
    roots = whole.expressions()
    return next(filter(None, (_clock(roots.apply(n)) for n in range(roots.size()))), None)


def _clock(node: Any) -> str | None:
    name = node.getClass().getSimpleName()
    if name in CLOCKS:
        return "asks the clock"
    children = [node.children().apply(n) for n in range(node.children().size())]
    reads = name in PARSERS or (name == "Cast" and children[0].dataType().typeName() == "string")
    if reads and any(kind in node.dataType().json() for kind in TIMES):
        return "reads a string as a time by Spark's cast, for which a time of day is one of today"
    return next(filter(None, map(_clock, children)), None)


def _made(column: str, kind: str, made: str) -> Column:
    # What is of the column's type already stays as it is; a null has no type.
    return F.expr(made).cast(kind)
