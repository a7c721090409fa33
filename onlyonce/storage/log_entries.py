"""What single entries of a Delta table's log say: the files that a commit has added, and its note.

No JVM, and the table is not opened.

Who calls it: `delta`, and what asks for the files of one commit. Errors: FileNotFoundError for an entry that is not
there, or not any more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from onlyonce.model.storage.location import Location
from onlyonce.storage import stores

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
