"""Entries of a registry that stand for data files of a Delta table: how far they know the table, how they are cut into
batches, and whether their files are still there.

`identity` is version and file, `mark` the table's id and what all rows of the file share, `ends` the version behind the
page that it was found on.

Who calls it: `discovery`, `source_files`, `table_log`. Errors: Refused for a file that is gone. No Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location, is_url, location
from onlyonce.model.stored_names import BATCH_NO, SEEN_AT
from onlyonce.sources import registry
from onlyonce.sources.files.listing import InputFile
from onlyonce.storage import log_entries, opening, stores


@dataclass(frozen=True)
class Read:
    """How far the registry knows the table: up to version `until`, of the table with that id, which was at `at`; and
    what it says of its batches."""

    table_id: str | None = None
    until: int | None = None
    at: str | None = None
    batches: int = 0
    last_seen: datetime | None = None


def read_until(table: Location) -> Read:
    """What the last append to the registry says."""
    entries = registry.last(table, [BATCH_NO, "ends", "mark", SEEN_AT])
    if entries is None:
        return Read()
    last: Any = (pc.max(entries[name]).as_py() for name in (BATCH_NO, "ends", SEEN_AT))
    number, until, seen_at = last
    mark = json.loads(entries["mark"][0].as_py())
    return Read(mark["table"], until, mark["at"], number + 1, seen_at)


def batched(files: Iterable[InputFile], most: int) -> Iterator[list[InputFile]]:
    """Groups of at most `most` files, in order.

    None has a file twice, as that may come back (RESTORE) or go again (changes): what can't be read of a batch is known
    by its path."""
    group: list[InputFile] = []
    paths = set[str]()
    for file in files:
        if len(group) == most or file.path in paths:
            yield group
            group, paths = [], set()
        group.append(file)
        paths.add(file.path)
    if group:
        yield group


def versions(files: Iterable[InputFile]) -> dict[str, int]:
    """The last version that a batch has, and the newest of its table now, for people; nothing where there is none."""
    found = list(files)
    if not found:
        return {}
    said = {"version": max(int(file.identity.partition("/")[0]) for file in found)}
    at = Path(json.loads(found[0].mark)["at"])
    return said | {"newest": opening.table(at).version()} if log_entries.any_in(at) else said


def check_there(pipeline: Pipeline, file: InputFile) -> None:
    """See that a registered data file is there as it was. Raises Refused: rows that are not read would be lost."""
    if not file.size:
        return  # it stands for versions without rows
    at = location(file.path) if is_url(file.path) else Path(file.path)
    there = stores.of(at).look(at)
    if there is None:
        raise vanished(pipeline, file.path, file.identity.partition("/")[0])
    if there.bytes != file.size:
        raise Refused(
            f"{pipeline.name}: the data file {file.path} had {file.size} bytes and has {there.bytes}; Delta never "
            "changes a file",
            data="nothing of its batch is committed",
            hint="somebody wrote into the table's folder: put the file back as it was",
        )


def vanished(pipeline: Pipeline, path: str, version: str) -> Refused:
    """The refusal of a data file that is gone with rows that were not read."""
    return Refused(
        f"{pipeline.name}: {path}, which version {version} of the table has added, is not there any more: VACUUM "
        "takes away what a compaction or a delete has replaced",
        data=f"the rows of version {version} that were in it are not read; nothing of its batch is committed",
        hint="bring the file back from a backup, then run again. Without it: a pipeline of another name, with a "
        "later start. Vacuum less eagerly than this pipeline runs",
    )
