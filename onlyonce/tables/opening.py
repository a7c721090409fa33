"""Delta tables without Spark: their features, how they are opened, and the entries of their logs.

The first part knows the features that a team may have switched on, and that can't be handled without Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from onlyonce.core import ownership
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.locations import Location
from onlyonce.tables import stores

KNOWN = frozenset(
    {"appendOnly", "invariants", "timestampNtz", "checkConstraints", "generatedColumns", "changeDataFeed"}
)
"""Under these features all operations here, without Spark, are right."""
BY_FILE = frozenset({"deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"})
"""Further features under which a data file is readable by itself, as long as it has no deletion vector."""
MANIFEST = "delta.compatibility.symlinkFormatManifest.enabled"
"""A property that counts as a feature here: with it Spark writes after each commit which files a table has, for readers
(Athena, Presto) that don't read its log. They would miss our files.
"""
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
"""Features that another one switches on, so messages leave them out."""


def features_of(table: DeltaTable) -> set[str]:
    """Return the features of a table by Delta's names. MANIFEST stands for what Spark does after each commit."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    after = {MANIFEST} if configuration.get(MANIFEST, "false").lower() == "true" else set()
    return {*(protocol.writer_features or ()), *(protocol.reader_features or ()), *after}


def only_for_spark(table: DeltaTable) -> list[str]:
    """Return the features under which only Spark may compact or vacuum a table, in words."""
    return named_features(features_of(table) - KNOWN)


def unreadable(table: DeltaTable) -> list[str]:
    """Return the features under which only Spark can count a table's rows, in words."""
    return named_features({*(table.protocol().reader_features or ())} - KNOWN)


def unreadable_by_file(table: DeltaTable) -> list[str]:
    """Return the features under which a data file can't be read by itself, in words.

    Deletion vectors are not among them: each file's entry says whether it has one.
    """
    mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    found = {*(table.protocol().reader_features or ())} - KNOWN - BY_FILE
    return named_features({*found, *(["columnMapping"] if mapped else [])})


def named_features(features: set[str]) -> list[str]:
    """Return features in words."""
    return [NAMES.get(feature, feature) for feature in sorted(features - BROUGHT)]


# Opens a Delta table at a location, a path or a URL.
#
# Every module opens tables here, so that each table gets its store's options. No JVM needed.


UNSUPPORTED = re.compile(r"Feature '(\w+)' is not supported")


def table(at: Location, version: int | None = None) -> DeltaTable:
    """Return the table as it is now, or as of a version.

    Raise TableNotFoundError, other errors of delta-rs, and Refused for a feature that delta-rs can't read.
    """
    try:
        return DeltaTable(str(at), version=version, storage_options=stores.options_of_delta(at))
    except DeltaError as error:
        if feature := _feature(str(error)):
            [name] = named_features({feature})
            raise Refused(
                f"{at} has {name}, which is not read here",
                data="nothing was read from it or written to it",
                hint="take that off the table, or name another path. docs/reference/delta-tables.md has what each "
                "table may have",
            ) from error
        raise


def _feature(message: str) -> str | None:
    """Return the feature for which delta-rs refuses to open a table; None if it refuses for another reason."""
    if "catalog-managed" in message:
        return "catalogManaged"
    found = UNSUPPORTED.search(message)
    return found[1] if found else None


class Form(NamedTuple):
    """The form of a table, which must not change between the check of a batch and its commit.

    table_id    the id of the table
    described   its schema, partition columns, properties and protocol, as one text to compare
    """

    table_id: str
    described: str


def form(table: DeltaTable) -> Form:
    """Return the form of a version of a table."""
    metadata = table.metadata()
    described = str(
        (table.schema().to_json(), metadata.partition_columns, sorted(metadata.configuration.items()), table.protocol())
    )
    return Form(str(metadata.id), described)


def refuse_changed(table: DeltaTable, at: Location, checked: Form) -> None:
    """Raise Retryable if a table no longer has the form in which it was checked: what was written for it may not fit.

    Raise Refused for another table.
    """
    found = form(table)
    ownership.refuse_replaced(str(at), checked.table_id, found.table_id)
    if found != checked:
        raise Retryable(
            f"{at}: the schema, the partition columns, the properties or the protocol of the table changed while a "
            "batch was written",
            data="nothing of this batch is in the table",
            hint="run the same command again: it checks the batch against the table as it is now",
        )


def make(at: Location, schema: str, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
    """Create an empty table if none exists. If several drivers try at once, one succeeds and the others use its table.

    `schema`: as stored in Delta's log, which is Spark's form.
    """
    try:
        DeltaTable.create(
            str(at),
            Schema.from_json(schema),
            mode="ignore",
            partition_by=list(partition_by),
            configuration=dict(properties),
            storage_options=stores.options_of_delta(at),
            raise_if_key_not_exists=False,
        )
    except DeltaError:
        table(at)  # another driver has made it meanwhile; if there is no table, this raises


def set_property(at: Location, key: str, value: str) -> None:
    """Set a property of a table that Delta itself does not know.

    Raise DeltaError for a table that deltalake can't change.
    """
    table(at).alter.set_table_properties({key: value}, raise_if_not_exists=False)


def add_columns(at: Location, schema: str) -> None:
    """Add columns at the end of a table. Raise DeltaError if it fails or another driver adds them at the same time."""
    table(at).alter.add_columns(list(Schema.from_json(schema).fields))


# Single entries of a Delta table's log: the files that a commit has added, and its note.
#
# No JVM, and the table is not opened.


LOG = "_delta_log"


@dataclass(frozen=True)
class Added:
    """One data file of a commit, with the values of its partition columns."""

    path: Location
    partition: dict[str, str]
    bytes: int


def any_in(path: Location) -> bool:
    """Return whether there is a Delta table. No JVM needed."""
    return any(name.endswith(".json") for name in stores.of(path).names(path / LOG))


def added(path: Location, version: int) -> list[Added]:
    """Return the data files with rows that a commit has added, by its entry in the table's log.

    A commit that only moves rows to other files has none. No JVM needed.
    """
    return added_by(path, actions(path, version))


def added_by(path: Location, said: list[dict[str, Any]]) -> list[Added]:
    """Return the data files that a commit's actions add. Pure."""
    files = [action["add"] for action in said if action.get("add", {}).get("dataChange")]
    return [Added(path / unquote(file["path"]), file["partitionValues"], int(file["size"])) for file in files]


def first(path: Location) -> int | None:
    """Return the version of the earliest entry that the log still has; None for a log without any. No JVM needed."""
    names = (name.removesuffix(".json") for name in stores.of(path).names(path / LOG) if name.endswith(".json"))
    return min((int(name) for name in names if name.isdecimal()), default=None)


def noted(path: Location, version: int) -> dict[str, Any]:
    """Return the note of a commit, by its entry in the table's log; empty if the commit is not ours. No JVM needed."""
    infos = [action["commitInfo"] for action in actions(path, version) if "commitInfo" in action]
    return note(infos[0].get("userMetadata") if infos else None)


def actions(path: Location, version: int) -> list[dict[str, Any]]:
    """Return all actions of a commit's entry. Raise FileNotFoundError if the entry is gone. No JVM needed."""
    at = path / LOG / f"{version:020}.json"
    return [json.loads(line) for line in stores.of(at).read(at).decode().splitlines()]


def text(value: Any) -> str:
    """Return a value as JSON for a table's log: the only encoder for what we write there.

    Characters stay as they are. An escape of a character outside the basic plane is a pair (`\\ud842\\udfb7`), and
    arrow-json, which delta-rs and DuckDB read statistics with, makes another string of it: they would skip a file that
    has the value.
    """
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def note(metadata: str | None) -> dict[str, Any]:
    """Return the note in a commit's userMetadata; empty if the commit is not ours."""
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return {}  # a commit of another program, such as OPTIMIZE with a note of its own
    return found if isinstance(found, dict) else {}
