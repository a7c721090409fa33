"""Writes the version checksum beside a commit to one of the platform's own tables, as Delta's protocol describes it
(Version Checksum File).

It has the table's schema and protocol, and how many files and bytes it has. Where a version has none, Spark runs a job
over the log to learn the schema: a tenth of a second for each query in each batch. Nothing is decided by this file, and
a version without one is read as before: so nobody waits for it, and a killed driver leaves none.

Who calls it: `appended.Own`, once a commit is acknowledged. Errors: none; what can't be written is told. Only on a
disk: in a store it would be two requests for each commit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from onlyonce.model.storage.location import Location
from onlyonce.storage import log_entries, stores
from onlyonce.storage.log_entries import LOG

KEPT = 20
"""So many of the last versions have one. Readers ask for the last."""
GOES_ON = ("metadata", "protocol", "numMetadata", "numProtocol")
"""What an append leaves as it was."""
log = structlog.get_logger()


def write(at: Location, before: DeltaTable, added: Sequence[AddAction]) -> None:
    """That of the version after `before`, whose commit has just added these files to the table at a location, and
    nothing else."""
    if not isinstance(at, Path):
        return
    version = before.version() + 1
    try:
        new = _after(_told(at, version - 1) or _counted(before), added)
        stores.of(at).put(_place(at, version), log_entries.text(new).encode())
        for old in range(max(version - 2 * KEPT, 0), version - KEPT):
            stores.of(at).delete(_place(at, old))
    except OSError as error:
        log.warning(
            "a version checksum could not be written; Spark reads the log instead", table=str(at), problem=str(error)
        )


def _place(table: Path, version: int) -> Path:
    return table / LOG / f"{version:020}.crc"


def _told(table: Path, version: int) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(stores.of(table).read(_place(table, version)))
    except (FileNotFoundError, ValueError):
        return None
    return found if {*GOES_ON, "numFiles", "tableSizeBytes"} <= found.keys() else None


def _after(there: dict[str, Any], added: Sequence[AddAction]) -> dict[str, Any]:
    size = there["tableSizeBytes"] + sum(file.size for file in added)
    return {name: there[name] for name in GOES_ON} | {
        "numFiles": there["numFiles"] + len(added),
        "tableSizeBytes": size,
    }


def _counted(table: DeltaTable) -> dict[str, Any]:
    """By all files of the table."""
    files = table.get_add_actions()
    told, protocol = table.metadata(), table.protocol()
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    metadata = {
        "id": str(told.id),
        "name": told.name,
        "description": told.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": told.partition_columns,
        "configuration": told.configuration,
        "createdTime": told.created_time,
    }
    numbers = {"minReaderVersion": protocol.min_reader_version, "minWriterVersion": protocol.min_writer_version}
    return {
        "numFiles": files.num_rows,
        "tableSizeBytes": sum(files["size_bytes"].to_pylist()),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {name: value for name, value in metadata.items() if value is not None},
        "protocol": numbers | {name: list(value) for name, value in features.items() if value},
    }
