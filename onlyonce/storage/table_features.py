"""Features of a Delta table that a team has switched on, and that this platform can't handle without Spark.

Who calls it: `maintain`, `delta_append`, the audit of the data. Errors: none of its own.
"""

from __future__ import annotations

from deltalake import DeltaTable

KNOWN = frozenset(
    {"appendOnly", "invariants", "timestampNtz", "checkConstraints", "generatedColumns", "changeDataFeed"}
)
"""The features of a table under which all that is done here, without Spark, is right."""
BY_FILE = frozenset({"deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"})
"""Those beside them that leave a data file readable by itself, as long as it has no deletion vector."""
MANIFEST = "delta.compatibility.symlinkFormatManifest.enabled"
"""With this property Spark writes after each commit which files a table has, for readers (Athena, Presto) that do not
read its log. They would miss our files."""
NAMES = {
    MANIFEST: "a symlink manifest",
    "catalogManaged": "commits that its catalog makes (catalogManaged)",
    "deletionVectors": "deletion vectors",
    "columnMapping": "column mapping",
    "rowTracking": "row tracking",
    "inCommitTimestamp": "in-commit timestamps",
    "identityColumns": "identity columns",
    "allowColumnDefaults": "default values of columns",
    "clustering": "clustering",
    "typeWidening": "type widening",
    "icebergCompatV1": "UniForm for Iceberg",
    "icebergCompatV2": "UniForm for Iceberg",
}
BROUGHT = {"domainMetadata"}
"""Comes with another one and has no switch of its own."""


def of(table: DeltaTable) -> set[str]:
    """The features of a table, by Delta's names; and what only Spark does after each commit, by its property."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    after = {MANIFEST} if configuration.get(MANIFEST, "false").lower() == "true" else set()
    return {*(protocol.writer_features or ()), *(protocol.reader_features or ()), *after}


def only_for_spark(table: DeltaTable) -> list[str]:
    """The features under which only Spark may compact or vacuum a table, in words."""
    return named(of(table) - KNOWN)


def unreadable(table: DeltaTable) -> list[str]:
    """Those under which only Spark can count its rows."""
    return named({*(table.protocol().reader_features or ())} - KNOWN)


def unreadable_by_file(table: DeltaTable) -> list[str]:
    """Those under which a data file can't be read by itself, in words.

    A file says by itself whether it has a deletion vector.
    """
    mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    found = {*(table.protocol().reader_features or ())} - KNOWN - BY_FILE
    return named({*found, *(["columnMapping"] if mapped else [])})


def named(features: set[str]) -> list[str]:
    """Features in words."""
    return [NAMES.get(feature, feature) for feature in sorted(features - BROUGHT)]
