"""Rows of data files of a user's Delta table, read and written by Spark's tasks. Which files there are, the driver says: Spark does not look at the table's log.

Who calls it: `delta_append`, `delta_upsert`, `delta_replace`, `delta_deletes`. Errors: those of Spark; a file that a VACUUM has taken meanwhile is one of them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DateType, NumericType, StringType, StructField, StructType, TimestampType

from onlyonce.model.storage.location import Location
from onlyonce.session.names import quoted
from onlyonce.storage import own_tables, stores
from onlyonce.storage.stores import arrow
from onlyonce.storage.table_files import Held, partition_text

FILE = "oo_file"
"""The column that says in which file a row is."""
GENERATED = "delta.generationExpression"
PLAIN = (BooleanType, DateType, NumericType, StringType, TimestampType)
"""Kinds of columns that Arrow writes as Spark does."""


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
    # Where a file lies says nothing of its rows, and its name is no pattern.
    reader = session.read.schema(stored).option("recursiveFileLookup", "true").option("__globPaths__", "false")
    parts = []
    for partition, places in groups.items():
        values = dict(partition)
        rows = reader.parquet(*places).withColumn(FILE, F.col("_metadata.file_path"))
        parts.append(rows.select(*[_value(field, values) if field in by else F.col(quoted(field.name)) for field in whole], FILE))
    return reduce(DataFrame.union, parts)


def _value(field: StructField, values: dict[str, Any]) -> Any:
    return F.lit(values[field.name]).cast(field.dataType).alias(field.name)


def _nullable(there: StructType) -> StructType:
    return StructType([StructField(field.name, field.dataType) for field in there])


def of_names(path: Location, files: Sequence[Held], names: Sequence[str]) -> list[Held]:
    """The files that Spark calls so in FILE."""
    known = {str(path / held.path): held for held in files}
    plain = (re.sub(r"^file:/+", "/", unquote(name)) for name in names)
    return sorted((known[name] for name in plain), key=lambda held: held.path)


def as_stored(rows: DataFrame, there: StructType) -> DataFrame:
    """The rows with the table's own names for their columns, and with what it makes of them (generated columns)."""
    names = {field.name.lower(): field.name for field in there}
    others = {name: names[name.lower()] for name in rows.columns if names.get(name.lower(), name) != name}
    spelled = rows.withColumnsRenamed(others) if others else rows
    given = {*spelled.columns}
    made = [field for field in there if GENERATED in field.metadata and field.name not in given]
    return spelled.withColumns({field.name: F.expr(field.metadata[GENERATED]).cast(field.dataType) for field in made}) if made else spelled


def write(rows: DataFrame, folder: Location, by: Sequence[str]) -> list[Location]:
    """Write rows into files below a folder, those with the same values of some columns together; gives the files that have rows."""
    writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    (writer.partitionBy(*by) if by else writer).parquet(str(folder))
    files = [entry.at for entry in stores.of(folder).entries(folder) if entry.at.name.endswith(".parquet")]
    return sorted((file for file in files if arrow.footer(file).num_rows), key=str)


def write_few(rows: pa.Table, folder: Location, by: Sequence[str]) -> list[Location]:
    """The same of rows that the driver has: one file for each combination of values."""
    places = rows.select(list(by)).group_by(list(by)).aggregate([]).to_pylist() if by else [{}]
    return [_write_place(rows, folder, values) for values in places]


def _write_place(rows: pa.Table, folder: Location, values: dict[str, Any]) -> Location:
    for name, value in values.items():
        column = rows.column(name)
        rows = rows.filter(pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))).drop_columns([name])
    texts = {name: partition_text(value) for name, value in values.items()}
    file = folder.joinpath(*(f"{name}={own_tables.NULL if text is None else quote(text, safe='')}" for name, text in texts.items()), "part-few.parquet")
    arrow.write(file, rows, compression="zstd", store_schema=False)
    return file
