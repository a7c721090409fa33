"""Rows of data files of a user's Delta table, read by Spark's tasks.

Which files there are, the driver says: Spark does not look at the table's log.

Who calls it: `delta_append`, `delta_upsert`, `delta_replace`, `delta_deletes`. Errors: those of Spark; a file that a
VACUUM has taken meanwhile is one of them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import reduce
from urllib.parse import unquote

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from onlyonce.model.storage.location import Location
from onlyonce.session import data_files
from onlyonce.session.names import quoted
from onlyonce.storage.table_files import Held

FILE = "oo_file"
"""The column that says in which file a row is."""
GENERATED = "delta.generationExpression"


def schema(table: DeltaTable) -> StructType:
    """The table's columns as Spark has them."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def read(session: SparkSession, path: Location, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
    """The rows of files, with all columns that the table has now, and FILE."""
    whole = _nullable(schema(table))
    by = [whole[name] for name in table.metadata().partition_columns]
    stored = StructType([field for field in whole if field not in by])
    groups = defaultdict(list)
    for held in files:
        groups[held.partition].append(str(path / held.path))
    if not groups:
        return session.createDataFrame([], whole).withColumn(FILE, F.lit(""))
    reader = data_files.reader(session).schema(stored)
    parts = []
    for partition, places in groups.items():
        values = dict(partition)
        rows = reader.parquet(*places).withColumn(FILE, F.col("_metadata.file_path"))
        parts.append(
            rows.select(*[_value(field, values) if field in by else F.col(quoted(field.name)) for field in whole], FILE)
        )
    return reduce(DataFrame.union, parts)


def _value(field: StructField, values: dict[str, str | None]) -> Column:
    # As a string: a date of Python passes through a calendar in which those before 1582 are others.
    return F.lit(values[field.name]).cast(field.dataType).alias(field.name)


def _nullable(there: StructType) -> StructType:
    return StructType([StructField(field.name, field.dataType) for field in there])


def of_names(path: Location, files: Sequence[Held], names: Sequence[str]) -> list[Held]:
    """The files that Spark calls so in FILE."""
    known = {str(path / held.path): held for held in files}
    plain = (re.sub(r"^file:/+", "/", unquote(name)) for name in names)
    return sorted((known[name] for name in plain), key=lambda held: held.path)


def spelled(rows: DataFrame, there: StructType) -> DataFrame:
    """Return rows with the table's own names for their columns."""
    names = {field.name.lower(): field.name for field in there}
    others = {name: names[name.lower()] for name in rows.columns if names.get(name.lower(), name) != name}
    return rows.withColumnsRenamed(others) if others else rows


def as_stored(rows: DataFrame, there: StructType) -> DataFrame:
    """Return new rows with all columns of the table: null if the rows do not give one, or what the table generates."""
    given = spelled(rows, there)
    lacking = {field.name: F.lit(None).cast(field.dataType) for field in there if field.name not in given.columns}
    return generated(given.withColumns(lacking) if lacking else given, there, given.columns)


def generated(rows: DataFrame, there: StructType, given: Collection[str], new: Column | None = None) -> DataFrame:
    """Return rows with what the table generates in its columns that are not `given`.

    `new`: which rows are written anew; the others stay.
    """
    made = {
        field.name: F.expr(field.metadata[GENERATED]).cast(field.dataType)
        for field in there
        if GENERATED in field.metadata and field.name not in given
    }
    if new is not None:
        made = {name: F.when(new, value).otherwise(F.col(quoted(name))) for name, value in made.items()}
    return rows.withColumns(made) if made else rows
