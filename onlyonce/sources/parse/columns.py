"""Adds columns to a Delta table that the declaration or the function has gained since the table was made.

A new column is added before anything is written. A changed type is refused: a table has one type for a column, and the old rows
would be lost or guessed. Called by `events` and the Delta sink.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from onlyonce.model.errors import Refused
from onlyonce.model.location import Location, Url
from onlyonce.session.names import quoted
from onlyonce.storage import opening


def fit(spark: SparkSession, path: Location, wanted: StructType, whose: str) -> None:
    """Add the columns that the table lacks, at its end. Raises Refused for one whose type has changed; then nothing is added."""
    there = _there(spark, path)
    for field in wanted.fields:
        known = there.get(field.name.lower())
        if known is not None and known.dataType != field.dataType:
            raise Refused(
                f"{whose}: column {field.name} is {field.dataType.simpleString()}, but in {path} it is "
                f"{known.dataType.simpleString()}",
                data="nothing was written",
                hint="give the column its old type or another name, or write to a new path",
            )
    missing = [field for field in wanted.fields if field.name.lower() not in there]
    if not missing:
        return
    if isinstance(path, Url):
        opening.add_columns(path, StructType(missing).json())
        return
    try:
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({', '.join(map(_definition, missing))})")
    except Exception:
        # Two drivers at once: one of them adds the columns, the other is told that they are there.
        if not {field.name.lower() for field in missing} <= _there(spark, path).keys():
            raise


def _there(spark: SparkSession, path: Location) -> dict[str, StructField]:
    # Spark takes capitals and small letters for the same column.
    return {f.name.lower(): f for f in spark.read.format("delta").load(str(path)).schema}


def _definition(field: StructField) -> str:
    name = field.name.replace("`", "``")
    return f"{quoted(name)} {field.dataType.simpleString()}"
