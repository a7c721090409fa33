"""Features of a Delta table that a team has switched on, and that this platform can't handle without Spark.

Who calls it: `maintain`, `delta_append`, the audit of the data. Errors: none of its own.
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


def features_of(table: DeltaTable) -> set[str]:
    """The features of a table, by Delta's names; and what only Spark does after each commit, by its property."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    after = {MANIFEST} if configuration.get(MANIFEST, "false").lower() == "true" else set()
    return {*(protocol.writer_features or ()), *(protocol.reader_features or ()), *after}


def only_for_spark(table: DeltaTable) -> list[str]:
    """The features under which only Spark may compact or vacuum a table, in words."""
    return named_features(features_of(table) - KNOWN)


def unreadable(table: DeltaTable) -> list[str]:
    """Those under which only Spark can count its rows."""
    return named_features({*(table.protocol().reader_features or ())} - KNOWN)


def unreadable_by_file(table: DeltaTable) -> list[str]:
    """Those under which a data file can't be read by itself, in words.

    A file says by itself whether it has a deletion vector.
    """
    mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    found = {*(table.protocol().reader_features or ())} - KNOWN - BY_FILE
    return named_features({*found, *(["columnMapping"] if mapped else [])})


def named_features(features: set[str]) -> list[str]:
    """Features in words."""
    return [NAMES.get(feature, feature) for feature in sorted(features - BROUGHT)]


# Opens a Delta table at a location, a path or a URL.
#
# All of the product opens tables here, so that each gets its store's options. No JVM needed.
#
# Errors: those of delta-rs, TableNotFoundError among them; Refused for a table with a feature that delta-rs can't read.


UNSUPPORTED = re.compile(r"Feature '(\w+)' is not supported")


def table(at: Location, version: int | None = None) -> DeltaTable:
    """Return the table as it is now, or as of a version."""
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
    """Return the feature because of which delta-rs refuses to open a table. None if it refuses for another reason."""
    if "catalog-managed" in message:
        return "catalogManaged"
    found = UNSUPPORTED.search(message)
    return found[1] if found else None


class Form(NamedTuple):
    """What a writer must know of a version of a table: which table it is, and its schema, partition columns, properties
    and protocol."""

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
    """Make an empty table, unless somebody has: of those who do at once one does.

    `schema`: as Delta's log has it, which is as Spark has it.
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
        table(at)  # raises where there is none


def set_property(at: Location, key: str, value: str) -> None:
    """Set a property of a table that Delta itself does not know.

    Raises DeltaError for a table that deltalake can't change.
    """
    table(at).alter.set_table_properties({key: value}, raise_if_not_exists=False)


def add_columns(at: Location, schema: str) -> None:
    """Add columns at the end of a table. Raises DeltaError, also where another adds them just now."""
    table(at).alter.add_columns(list(Schema.from_json(schema).fields))


# What single entries of a Delta table's log say: the files that a commit has added, and its note.
#
# No JVM, and the table is not opened.
#
# Who calls it: `delta`, and what asks for the files of one commit. Errors: FileNotFoundError for an entry that is not
# there, or not any more.


LOG = "_delta_log"


@dataclass(frozen=True)
class Added:
    """One data file of a commit, with the values of its partition columns."""

    path: Location
    partition: dict[str, str]
    bytes: int


def any_in(path: Location) -> bool:
    """Whether there is a Delta table. No JVM needed."""
    return any(name.endswith(".json") for name in stores.of(path).names(path / LOG))


def added(path: Location, version: int) -> list[Added]:
    """The data files with rows that a commit has added, by its entry in the table's log; of one that puts rows into
    other files, none.

    No JVM needed.
    """
    return added_by(path, actions(path, version))


def added_by(path: Location, said: list[dict[str, Any]]) -> list[Added]:
    """The same by what the commit's entry says. Pure."""
    files = [action["add"] for action in said if action.get("add", {}).get("dataChange")]
    return [Added(path / unquote(file["path"]), file["partitionValues"], int(file["size"])) for file in files]


def first(path: Location) -> int | None:
    """The version of the earliest entry that the log still has; None for a log without any. No JVM needed."""
    names = (name.removesuffix(".json") for name in stores.of(path).names(path / LOG) if name.endswith(".json"))
    return min((int(name) for name in names if name.isdecimal()), default=None)


def noted(path: Location, version: int) -> dict[str, Any]:
    """The note of a commit, by its entry in the table's log; empty for one that is none of ours. No JVM needed."""
    infos = [action["commitInfo"] for action in actions(path, version) if "commitInfo" in action]
    return note(infos[0].get("userMetadata") if infos else None)


def actions(path: Location, version: int) -> list[dict[str, Any]]:
    """All that a commit's entry says, as it stands there. Raises FileNotFoundError. No JVM needed."""
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
    """The note in a commit's userMetadata; empty for one that is none of ours."""
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return {}  # a commit by somebody else, such as OPTIMIZE with a note of its own
    return found if isinstance(found, dict) else {}
