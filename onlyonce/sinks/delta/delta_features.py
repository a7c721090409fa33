"""What a team's Delta table asks of a writer: each feature, property and column's rule is honoured, or refused by its
name before anything is written.

Spark's own writer knows them all, but it has no conditional PUT. So what is not known here has no writer: a table that
says more than this is refused.

- NOT NULL (inside a column too), CHECK: each batch is looked at before its unit is committed (`delta_fit`).
- varchar(n): each batch is looked at before it is written (`held_values`).
- generated columns: computed where a row does not give them; else looked at as a constraint.
- append-only: honoured: rows are never replaced there, so an upsert is refused.
- change data feed, deletion vectors: appends only: what they add is what the log says.
- column mapping, row tracking, in-commit timestamps, identity columns, default values, clustering, type widening,
  char(n), UniForm, a symlink manifest: refused.

Who calls it: the Delta sink, before anything is written, and each try of a commit. Errors: Refused. Not promised:
anything of a feature that Delta will have one day: it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from deltalake import DeltaTable
from pyspark.sql.types import StructType

from onlyonce.model.errors import Refused
from onlyonce.model.sinks.column_types import Length, length
from onlyonce.model.storage.location import Location
from onlyonce.sinks.delta import delta_rows
from onlyonce.storage import table_features

TEXT = "__CHAR_VARCHAR_TYPE_STRING"
SAYS_NOTHING = {"comment", delta_rows.GENERATED, TEXT}
"""What the metadata of a column may have: all else may be a rule for its values."""
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
    table_features.MANIFEST,
    "delta.randomizeFilePrefixes",
    "delta.parquet.compression.codec",
    "delta.enableTypeWidening",
    "delta.enableRowTracking",
    "delta.enableInCommitTimestamps",
)
"""Properties that are hints, or that are judged by their features."""
ADDS = table_features.KNOWN | {"deletionVectors", "v2Checkpoint"}
"""Features under which files can be added."""
CHANGES = table_features.KNOWN | {"v2Checkpoint"}
"""Those under which files can go as well."""


def refuse(table: DeltaTable, path: Location, *, changes: bool) -> None:
    """Raise Refused for a table whose features, properties or columns ask what is not done here.

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


def refuse_change(table: DeltaTable, path: Location) -> None:
    """The same for a try of a commit that replaces rows."""
    refuse(table, path, changes=True)


def lengths(there: StructType) -> dict[str, Length]:
    """Return the columns that are varchar(n)."""
    found = {field.name: length(str(field.metadata.get(TEXT, "")), mysql=False) for field in there}
    return {name: one for name, one in found.items() if one}


def _wrong(table: DeltaTable, known: frozenset[str]) -> list[str]:
    configuration, there = table.metadata().configuration, delta_rows.schema(table)
    mapped = configuration.get("delta.columnMapping.mode", "none") != "none"
    found = table_features.named(
        {*(table_features.of(table) - known - {"columnMapping"}), *(["columnMapping"] if mapped else [])}
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
        ("delta.enableChangeDataFeed", "a change data feed"),
    ):
        if configuration.get(key, "false").lower() == "true":
            yield name
