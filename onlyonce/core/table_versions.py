"""The data files that a version of a Delta table has for a reader, or the reason why it can't be read. Pure.

The version is given by the actions of its entry in the log. The format is
https://github.com/delta-io/delta/blob/master/PROTOCOL.md. `dataChange` false means that the rows existed before, in
other files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from onlyonce.core.errors import Refused

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
CHANGE_COLUMNS = {CHANGE_TYPE: "string", COMMIT_VERSION: "bigint", COMMIT_TIMESTAMP: "timestamp"}
"""The columns of the change data feed, with their types in Spark's DDL."""
INSERT, DELETE, BY_ROW = "insert", "delete", ""
"""The change that happened to all rows of a file; BY_ROW: the file has it for each row."""
FEED = "delta.enableChangeDataFeed"
Actions = Sequence[Mapping[str, Any]]


def is_on(configuration: Mapping[str, str], name: str) -> bool:
    """Return whether a table's property is true, as Delta reads it: in capitals too."""
    return configuration.get(name, "false").lower() == "true"


@dataclass(frozen=True)
class DataFile:
    """A data file that a version names, with the log's values of its partition columns.

    `change`: what happened to its rows.
    """

    version: int
    path: str
    partition: tuple[tuple[str, str | None], ...]
    change: str = INSERT

    @property
    def identity(self) -> str:
        """Return what identifies the file in the places of its rows.

        A file may come back in a later version (RESTORE), and its rows are then other records.
        """
        return f"{self.version}/{'-/' if self.change == DELETE else ''}{self.path}"


def committed_ms(actions: Actions) -> int:
    """Return when the version was committed, in ms since 1970 by its writer's clock; 0 if the entry has no time."""
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return int(infos[0].get("inCommitTimestamp") or infos[0].get("timestamp") or 0) if infos else 0


def table_id(actions: Actions) -> str | None:
    """Return the table's id, if the version sets it."""
    found = [action["metaData"] for action in actions if "metaData" in action]
    return str(found[-1]["id"]) if found else None


def appended(table: str, version: int, actions: Actions, *, ignore_deletes: bool) -> list[DataFile]:
    """Return the files whose rows are new in a version. Raise Refused if it deletes or rewrites rows."""
    adds, removes = _changing(actions, "add"), _changing(actions, "remove")
    if removes and (adds or not ignore_deletes):
        what = "rewrites" if adds else "deletes"
        raise Refused(
            f"{table}: version {version} {what} rows ({len(removes)} file(s) removed, {len(adds)} added), and "
            "DeltaSource reads what is appended",
            data=f"versions before {version} are read; nothing of {version} or later is",
            hint="a pipeline of another name with DeltaSource(changes=True) has deletes and updates as records, "
            "if the table has a change data feed; "
            + (
                "ignore_deletes does not help, as new and old rows lie in one file"
                if adds
                else "ignore_deletes=True passes over versions that only delete"
            ),
        )
    _refuse_vectors(table, version, adds)
    return [_file(version, add) for add in adds]


def changed(table: str, version: int, actions: Actions, has_feed: Callable[[], bool]) -> list[DataFile]:
    """Return the files with the changes of a version.

    `has_feed` returns whether the table has a change data feed as of the version. Raise Refused if rows were deleted
    or rewritten and there is no feed."""
    cdc = [action["cdc"] for action in actions if "cdc" in action]
    if cdc:
        _refuse_vectors(table, version, cdc)
        return [_file(version, one, BY_ROW) for one in cdc]
    adds, removes = _changing(actions, "add"), _changing(actions, "remove")
    if removes and not has_feed():
        raise Refused(
            f"{table}: version {version} deletes or rewrites rows, and the table has no change data feed that says "
            "which",
            data=f"versions before {version} are read; nothing of {version} or later is",
            hint=f"ALTER TABLE … SET TBLPROPERTIES ({FEED} = true) is for later versions; read on with a pipeline "
            f"of another name and start={version + 1}",
        )
    _refuse_vectors(table, version, [*adds, *removes])
    return [*(_file(version, one, DELETE) for one in removes), *(_file(version, one) for one in adds)]


def beside(file: DataFile, types: Mapping[str, str], committed: int | None) -> list[tuple[str, str | None, str]]:
    """Return the (column, value as a string, type) that all rows of a file share.

    types      the types of the partition columns
    committed  the commit's time in ms if changes are read
    """
    shared = [(name, value, types[name]) for name, value in file.partition]
    if committed is None:
        return shared
    time = datetime.fromtimestamp(committed / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    kind = [(CHANGE_TYPE, file.change, CHANGE_COLUMNS[CHANGE_TYPE])] if file.change != BY_ROW else []
    return [*shared, *kind, (COMMIT_VERSION, str(file.version), "bigint"), (COMMIT_TIMESTAMP, time, "timestamp")]


def sizes(actions: Actions, paths: Container[str]) -> list[tuple[int, int | None]]:
    """Return (bytes, rows) of each file of a version that is among these paths; the number of rows is None if the entry
    does not have it.

    A file of changes has no statistics, and an older writer has written none.
    """
    entries = [action[kind] for action in actions for kind in ("add", "cdc", "remove") if kind in action]
    return [
        (int(entry.get("size") or 0), json.loads(entry.get("stats") or "{}").get("numRecords"))
        for entry in entries
        if unquote(entry["path"]) in paths
    ]


def _changing(actions: Actions, kind: str) -> list[Mapping[str, Any]]:
    return [action[kind] for action in actions if kind in action and action[kind].get("dataChange", True)]


def _file(version: int, action: Mapping[str, Any], change: str = INSERT) -> DataFile:
    partition = action.get("partitionValues") or {}
    return DataFile(version, unquote(action["path"]), tuple(sorted(partition.items())), change)


def _refuse_vectors(table: str, version: int, files: Iterable[Mapping[str, Any]]) -> None:
    if any(file.get("deletionVector") for file in files):
        raise Refused(
            f"{table}: version {version} has files with deletion vectors, which say which of their rows are no "
            "more, and those are not read here",
            data=f"versions before {version} are read; nothing of {version} or later is",
            hint="ALTER TABLE … SET TBLPROPERTIES (delta.enableDeletionVectors = false) before the next change; "
            f"then a pipeline of another name, start={version + 1}",
        )
