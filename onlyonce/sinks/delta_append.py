"""Appends to a user's Delta table: Spark's tasks write the data files, then the driver names them in one commit by delta-rs.

Spark's own writer looks at the state of the whole table before each commit, and computes statistics that the files' footers have:
for a small batch that is most of the time. It still writes to a table with a feature that asks something of each writer
(generated columns, column mapping, row tracking, …): what is not known here to be harmless is left to it.

Who calls it: `sink_delta`. Errors: those of `delta.once`. Not promised: which of the two has written a commit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from onlyonce.model.location import Location, Url
from onlyonce.storage import delta, opening, own_tables, stores, table_features
from onlyonce.storage.stores import arrow

FEATURES = table_features.KNOWN - {"generatedColumns"}
"""What asks nothing of a writer that only adds files, beyond what `delta_fit` has looked at."""
SETTINGS = (
    "delta.appendOnly", "delta.constraints.", "delta.dataSkipping", "delta.logRetentionDuration", "delta.deletedFileRetentionDuration",
    "delta.checkpointInterval", "delta.enableChangeDataFeed", "delta.minReaderVersion", "delta.minWriterVersion",
)  # fmt: skip
SAYS_NOTHING = {"comment"}
"""What the metadata of a column may have: all else may be a rule for its values."""


def append(rows: DataFrame, path: Location, commit: delta.Commit, by: list[str], *, replayed: bool = False) -> int:
    """Append rows once; gives the table's version that holds them."""
    if not plain(opening.table(path), rows.schema, by):
        return delta.append(rows, path, commit, by, replayed=replayed)

    def write(folder: Location) -> Sequence[Location]:
        writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        (writer.partitionBy(*by) if by else writer).parquet(str(folder))
        files = [entry.at for entry in stores.of(folder).entries(folder) if entry.at.name.endswith(".parquet")]
        return [file for file in files if arrow.footer(file).num_rows]

    return own_tables.append(write, path, commit, replayed=replayed)


def refuse_by_spark(path: Location, schema: StructType, by: list[str]) -> None:
    """Raise Refused for a table in an object store to which files alone can't be added: Spark's writer would have to commit."""
    if isinstance(path, Url) and not plain(opening.table(path), schema, by):
        delta.refuse_by_spark(path)


def plain(table: DeltaTable, schema: StructType, by: list[str]) -> bool:
    """Whether rows of a schema can be added to a table by files alone."""
    metadata = table.metadata()
    there = StructType.fromJson(json.loads(table.schema().to_json()))
    types = {field.name: field.dataType.simpleString() for field in there}
    return (
        table_features.of(table) <= FEATURES
        and all(key.startswith(SETTINGS) or not key.startswith("delta.") for key in metadata.configuration)
        and metadata.partition_columns == by
        and all({*field.metadata} <= SAYS_NOTHING for field in there)
        and all(types.get(field.name) == field.dataType.simpleString() for field in schema)
    )
