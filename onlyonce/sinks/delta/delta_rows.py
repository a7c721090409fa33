"""Read rows of data files of a user's Delta table by Spark's tasks, and refuse tables with unsupported features.

The driver names the files: Spark does not read the table's log. If a VACUUM has removed a file meanwhile, the job
fails.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from urllib.parse import unquote

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from onlyonce.core import table_versions
from onlyonce.core.column_types import Length, length
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.engine import session as engine_session
from onlyonce.engine.session import quoted
from onlyonce.tables import opening
from onlyonce.tables.table_files import Held

FILE = "oo_file"
"""The column with the file of a row."""
GENERATED = "delta.generationExpression"


def schema(table: DeltaTable) -> StructType:
    """Return the table's columns as Spark types."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def read(session: SparkSession, path: Location, table: DeltaTable, files: Sequence[Held]) -> DataFrame:
    """Return the rows of files, with all columns that the table has now, and FILE."""
    whole = _nullable(schema(table))
    by = [whole[name] for name in table.metadata().partition_columns]
    stored = StructType([field for field in whole if field not in by])
    groups = defaultdict(list)
    for held in files:
        groups[held.partition].append(str(path / held.path))
    if not groups:
        return session.createDataFrame([], whole).withColumn(FILE, F.lit(""))
    reader = engine_session.file_reader(session).schema(stored)
    parts = []
    for partition, places in groups.items():
        values = dict(partition)
        rows = reader.parquet(*places).withColumn(FILE, F.col("_metadata.file_path"))
        parts.append(
            rows.select(*[_value(field, values) if field in by else F.col(quoted(field.name)) for field in whole], FILE)
        )
    return reduce(DataFrame.union, parts)


def _value(field: StructField, values: dict[str, str | None]) -> Column:
    # As a string: Python's dates use another calendar than Spark before 1582.
    return F.lit(values[field.name]).cast(field.dataType).alias(field.name)


def _nullable(there: StructType) -> StructType:
    return StructType([StructField(field.name, field.dataType) for field in there])


def of_names(path: Location, files: Sequence[Held], names: Sequence[str]) -> list[Held]:
    """Return the files with these names in FILE."""
    known = {str(path / held.path): held for held in files}
    plain = (re.sub(r"^file:/+", "/", unquote(name)) for name in names)
    return sorted((known[name] for name in plain), key=lambda held: held.path)


def spelled(rows: DataFrame, there: StructType) -> DataFrame:
    """Return rows with the table's own names for their columns."""
    names = {field.name.lower(): field.name for field in there}
    others = {name: names[name.lower()] for name in rows.columns if names.get(name.lower(), name) != name}
    return rows.withColumnsRenamed(others) if others else rows


def as_stored(rows: DataFrame, there: StructType) -> DataFrame:
    """Return new rows with all columns of the table. A missing column is null, or what the table generates."""
    given = spelled(rows, there)
    lacking = {field.name: F.lit(None).cast(field.dataType) for field in there if field.name not in given.columns}
    return generated(given.withColumns(lacking) if lacking else given, there, given.columns)


def generated(rows: DataFrame, there: StructType, given: Collection[str], new: Column | None = None) -> DataFrame:
    """Return rows with the values that the table generates for columns that are not `given`.

    `new`: whether a row is new; other rows keep their values.
    """
    made = {
        field.name: F.expr(field.metadata[GENERATED]).cast(field.dataType)
        for field in there
        if GENERATED in field.metadata and field.name not in given
    }
    if new is not None:
        made = {name: F.when(new, value).otherwise(F.col(quoted(name))) for name, value in made.items()}
    return rows.withColumns(made) if made else rows


# What a team's Delta table demands of a writer: each feature, property and column rule is supported, or refused by name
# before anything is written.
#
# Spark's own writer knows all of them, but it has no conditional PUT. So a table with anything not listed here is
# refused, including one with features that Delta will have one day.
#
# - NOT NULL (inside a column too), CHECK: each batch is checked before its unit is committed (`delta_files.check_fit`).
# - varchar(n): each batch is checked before it is written (`held_values`).
# - generated columns: computed if a row does not have them; else checked like a constraint.
# - append-only: supported: rows are never replaced there, so an upsert is refused.
# - change data feed, deletion vectors: appends only, since an append needs no more than its entry in the log.
# - column mapping, row tracking, in-commit timestamps, identity columns, default values, clustering, type widening,
#   char(n), UniForm, a symlink manifest: refused.


TEXT = "__CHAR_VARCHAR_TYPE_STRING"
SAYS_NOTHING = {"comment", GENERATED, TEXT}
"""The metadata that a column may have: anything else may be a rule for its values."""
HARMLESS = (
    "delta.appendOnly",
    "delta.constraints.",
    "delta.dataSkipping",
    "delta.logRetentionDuration",
    "delta.deletedFileRetentionDuration",
    "delta.checkpoint",
    "delta.enableChangeDataFeed",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.feature.",
    "delta.autoOptimize.",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
    "delta.enableDeletionVectors",
    "delta.columnMapping.",
    "delta.isolationLevel",
    "delta.enableExpiredLogCleanup",
    "delta.setTransactionRetentionDuration",
    "delta.sampleRetentionDuration",
    opening.MANIFEST,
    "delta.randomizeFilePrefixes",
    "delta.parquet.compression.codec",
    "delta.enableTypeWidening",
    "delta.enableRowTracking",
    "delta.enableInCommitTimestamps",
)
"""Properties that are hints, or that are judged by their features."""
ADDS = opening.KNOWN | {"deletionVectors", "v2Checkpoint"}
"""Features under which files can be added."""
CHANGES = opening.KNOWN | {"v2Checkpoint"}
"""Features under which files can be removed as well."""


def refuse_features(table: DeltaTable, path: Location, *, changes: bool) -> None:
    """Raise Refused for a table with unsupported features, properties or columns.

    `changes`: rows will be replaced, and not only added.
    """
    if wrong := [*_wrong(table, CHANGES if changes else ADDS), *(_of_changes(table) if changes else [])]:
        raise Refused(
            f"{path} has {wrong[0]}, and the platform can't {'replace' if changes else 'add'} rows there",
            data="nothing was written",
            hint="take that off the table, or write to another path"
            + (" (append still works)" if changes and not _wrong(table, ADDS) else "")
            + ". docs/reference/delta-tables.md has what each table may have",
        )


def refuse_feature_change(table: DeltaTable, path: Location) -> None:
    """Raise Refused if the table supports no commit that replaces rows."""
    refuse_features(table, path, changes=True)


def lengths(there: StructType) -> dict[str, Length]:
    """Return the columns that are varchar(n)."""
    found = {field.name: length(str(field.metadata.get(TEXT, "")), mysql=False) for field in there}
    return {name: one for name, one in found.items() if one}


def _wrong(table: DeltaTable, known: frozenset[str]) -> list[str]:
    configuration, there = table.metadata().configuration, schema(table)
    mapped = configuration.get("delta.columnMapping.mode", "none") != "none"
    found = opening.named_features(
        {*(opening.features_of(table) - known - {"columnMapping"}), *(["columnMapping"] if mapped else [])}
    )
    found += [
        f"the property {key}" for key in configuration if key.startswith("delta.") and not key.startswith(HARMLESS)
    ]
    for field in there:
        if TEXT in field.metadata and field.name not in lengths(there):
            found.append(f"a column {field.name} of {field.metadata[TEXT]}")
        found += [f"{key} for its column {field.name}" for key in field.metadata if key not in SAYS_NOTHING]
    return found


def _of_changes(table: DeltaTable) -> Iterator[str]:
    configuration = table.metadata().configuration
    for key, name in (
        ("delta.appendOnly", "the property delta.appendOnly"),
        (table_versions.FEED, "a change data feed"),
    ):
        if table_versions.is_on(configuration, key):
            yield name
