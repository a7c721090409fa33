"""A Delta table as a source: where it is, which of its versions are registered, and which data files are new. No Spark.

Only the location of a table that is named in a Spark catalog needs Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from onlyonce import settings
from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import Pipeline
from onlyonce.api.sources import EARLIEST, DeltaSource
from onlyonce.core import backlog, stored_names, table_versions
from onlyonce.core.backlog import Backlog
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, is_url, location, stored_location
from onlyonce.core.records import Damaged
from onlyonce.core.stored_names import BATCH_NO, SEEN_AT
from onlyonce.core.table_versions import DataFile
from onlyonce.engine import session
from onlyonce.sources import manifest, typed_files
from onlyonce.sources.listing import FileAt, InputFile
from onlyonce.tables import opening, stores


def catalog_location(spark: SparkSession, source: DeltaSource) -> Location:
    """Return the folder or prefix of the table that a Spark catalog names. Raise Refused."""
    try:
        kind, where = session.described_table(spark, str(source.table))
    except AnalysisException as error:
        raise Refused(
            f"{declared_at(source)}DeltaSource: Spark finds no Delta table {source.table!r} "
            f"({str(error).splitlines()[0][:200]})",
            data="nothing was read or written",
            hint="spark.sql.catalog.… in spark-defaults.conf, or the conf of the task, configures a catalog; SHOW "
            "TABLES lists what it has",
        ) from error
    if kind != "delta":
        raise Refused(
            f"{declared_at(source)}DeltaSource: {source.table!r} is a table of {kind}, and no Delta table",
            data="nothing was read or written",
            hint="read it with a source of your own (docs/how-to/own-source.md)",
        )
    return session.place_of_table(where, f"{declared_at(source)}DeltaSource: the table {source.table!r}")


# The entries of a manifest that stand for data files of a Delta table.
#
# `identity` is version and file, `mark` the table's id and the values that all rows of the file share. `ends` is the
# version after the page on which the file was found.


@dataclass(frozen=True)
class Read:
    """How far the manifest has read the table, and what it has of its batches.

    The manifest has versions before `until`, of the table with that id, which was at `at`. Only for a table that is
    declared by its name in a catalog is `at` compared: a table that is declared by its path may move."""

    table_id: str | None = None
    until: int | None = None
    at: str | None = None
    batches: int = 0
    last_seen: datetime | None = None


def read_until(table: Location) -> Read:
    """Return what the last append to the manifest says."""
    entries = manifest.last(table, [BATCH_NO, "ends", "mark", SEEN_AT])
    if entries is None:
        return Read()
    last: Any = (pc.max(entries[name]).as_py() for name in (BATCH_NO, "ends", SEEN_AT))
    number, until, seen_at = last
    mark = json.loads(entries["mark"][0].as_py())
    return Read(mark[stored_names.MARK_TABLE], until, mark[stored_names.MARK_AT], number + 1, seen_at)


def batched_versions(files: Iterable[InputFile], most: int) -> Iterator[list[InputFile]]:
    """Yield groups of at most `most` files, in order.

    No group has a file twice, since unreadable files of a batch are identified by path. A file may come back (RESTORE)
    or be removed (changes)."""
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


def read_versions(files: Iterable[InputFile]) -> dict[str, int]:
    """Return the last version in a batch, and the newest of its table now, for people; empty for an empty batch."""
    found = list(files)
    if not found:
        return {}
    said = {"version": max(int(file.identity.partition("/")[0]) for file in found)}
    at = stored_location(json.loads(found[0].mark)[stored_names.MARK_AT])
    return said | {"newest": opening.table(at).version()} if opening.any_in(at) else said


def check_table_there(pipeline: Pipeline, file: InputFile) -> None:
    """Raise Refused if a registered data file is missing or changed: its unread rows would be lost."""
    if not file.size:
        return  # it stands for versions without rows
    at = stored_location(file.path)
    there = stores.of(at).look(at)
    if there is None:
        raise vanished_versions(pipeline, file.path, file.identity.partition("/")[0])
    if there.bytes != file.size:
        raise Refused(
            f"{pipeline.name}: the data file {file.path} had {file.size} bytes and has {there.bytes}; Delta never "
            "changes a file",
            data="nothing of its batch is committed",
            hint="a program wrote into the table's folder: put the file back as it was",
        )


def vanished_versions(pipeline: Pipeline, path: str, version: str) -> Refused:
    """Return the refusal for a missing data file whose rows were not read."""
    return Refused(
        f"{pipeline.name}: {path}, which version {version} of the table has added, does not exist any more: VACUUM "
        "takes away what a compaction or a delete has replaced",
        data=f"the rows of version {version} that were in it are not read; nothing of its batch is committed",
        hint="bring the file back from a backup, then run again. Without it: a pipeline of another name, with a "
        "later start. Vacuum less eagerly than this pipeline runs",
    )


# The versions of a Delta table that are not registered yet, a page of versions at a time. Nothing is written.
#
# Reading begins after the page of the last append to the manifest, so only the manifest entries of that append are
# read. A version that can't be read without losing rows raises Refused.


PAGE = 100
"""How many versions are read before their files are registered."""
IDLE_MS = 86_400_000
"""Versions without rows that span this long are registered as an empty batch: their entries may be removed from the log
one day."""
AT_ONCE = 4
MOST_UNREAD = 1000
"""For more unread versions only their number is reported, and when the first was committed."""


def log_location(source: DeltaSource) -> Location:
    """Return where the table of a declared path is."""
    return location(source.where) if is_url(source.where) else settings.table_location(source.where)


def log_pages(pipeline: Pipeline, at: Location, there: Read) -> Iterator[list[InputFile]]:
    """Yield the data files of the unread versions, page by page; no page is empty.

    `at`: where the table is now.
    """
    table = _Table.opened(pipeline, at, there)
    for found, until in table.pages():
        yield table.entries(found, until)


def any_page(pipeline: Pipeline, at: Location, there: Read) -> bool:
    """Return whether there is a page of unread versions. No data file is opened."""
    return next(_Table.opened(pipeline, at, there).pages(), None) is not None


def unread_versions(pipeline: Pipeline, at: Location, there: Read) -> Backlog:
    """Return how much input the unread versions have, by their entries in the log. No data file is opened.

    Raise Refused if one of them can't be read.
    """
    table = _Table.opened(pipeline, at, there)
    files, versions = list[tuple[int, int, int | None]](), table.end - table.begin
    for version in range(table.begin, min(table.end, table.begin + MOST_UNREAD)):
        actions = table.actions(version)
        committed_ms = table_versions.committed_ms(actions)
        found = table_versions.sizes(actions, {file.path for file in table.files(version, actions)})
        files += [(size, committed_ms * 1_000_000, records) for size, records in found]
    whole = backlog.of_files(files)
    if versions > MOST_UNREAD:  # even if the first of them have no rows
        return Backlog(None, None, whole.oldest, {"versions": versions}, f"more than {MOST_UNREAD:,} versions wait")
    if not files:
        return Backlog()
    return replace(whole, detail={"versions": versions, **whole.detail})


@dataclass(frozen=True)
class _Table:
    """The table as it is now: versions from `begin` up to `end` remain to read."""

    pipeline: Pipeline
    at: Location
    table_id: str
    types: Mapping[str, str]
    begin: int
    end: int

    @classmethod
    def opened(cls, pipeline: Pipeline, at: Location, there: Read) -> _Table:
        source = pipeline.source
        assert isinstance(source, DeltaSource)
        try:
            now = opening.table(at)
        except TableNotFoundError:
            raise Refused(
                f"{declared_at(source)}the table of {pipeline.name}, {at}, does not exist",
                data="nothing was read or written",
                hint="run what writes it first, or correct the path",
            ) from None
        table_id, end = str(now.metadata().id), now.version() + 1
        _check_same(pipeline, at, there, table_id, end)
        if unreadable := opening.unreadable_by_file(now):
            raise Refused(
                f"{at} has {', '.join(unreadable)}, under which its data files can't be read one by one",
                data="nothing was read or written",
                hint="read it with a source of your own (docs/how-to/own-source.md), or copy it into a table without",
            )
        begin = there.until if there.until is not None else 0 if source.start == EARLIEST else int(source.start)
        if begin > end:
            raise Refused(
                f"{declared_at(source)}DeltaSource: start={begin}, and {at} is at version {end - 1}",
                data="nothing was read or written",
                hint=f"start={end} begins with the next one",
            )
        return cls(pipeline, at, table_id, _types(now), begin, end)

    def pages(self) -> Iterator[tuple[list[tuple[DataFile, int]], int]]:
        """Yield the files of the unread versions, page by page, each with the version after it; no page is empty."""
        begin = self.begin
        while begin < self.end:
            found, until = self.page(begin)
            if found:
                yield found, until
            begin = until

    def page(self, begin: int) -> tuple[list[tuple[DataFile, int]], int]:
        """Return the files (with their commit's time) of a page of versions, and the version after it.

        A page ends before a version that is refused, so that earlier versions are read."""
        found: list[tuple[DataFile, int]] = []
        first_ms = last_ms = 0
        for version in range(begin, min(begin + PAGE, self.end)):
            try:
                actions = self.actions(version)
                files = self.files(version, actions)
            except Refused:
                if found:
                    return found, version
                raise
            last_ms = table_versions.committed_ms(actions)
            first_ms = first_ms or last_ms
            found += [(file, last_ms) for file in files]
        until = min(begin + PAGE, self.end)
        # A short page without rows is not registered: its versions are read again with the next ones.
        if not found and (until - begin == PAGE or last_ms - first_ms >= IDLE_MS):
            without_rows = DataFile(until - 1, path="", partition=())
            found = [(without_rows, last_ms)]
        return found, until

    def entries(self, found: list[tuple[DataFile, int]], until: int) -> list[InputFile]:
        """Return entries for the files, with their numbers of rows; each file is read to its end."""
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            return list(pool.map(lambda one: self._entry(one[0], one[1], until), found))

    def files(self, version: int, actions: list[dict[str, Any]]) -> list[DataFile]:
        """Return the files of a version that are read. Raise Refused if it can't be read without losing rows."""
        source, name = self.pipeline.source, str(self.at)
        assert isinstance(source, DeltaSource)
        set_to = table_versions.table_id(actions)
        if set_to not in (None, self.table_id):
            raise Refused(
                f"{self.at}: with version {version} it was another table than it is now (id {set_to}, now "
                f"{self.table_id})",
                data=f"versions before {version} are read; nothing of {version} or later is",
                hint="read the table with a pipeline of another name, and a start at the version that made it "
                "what it is now, or later: DESCRIBE HISTORY shows which",
            )
        if source.changes:
            return table_versions.changed(name, version, actions, lambda: self._has_feed(version))
        return table_versions.appended(name, version, actions, ignore_deletes=source.ignore_deletes)

    def _has_feed(self, version: int) -> bool:
        return table_versions.is_on(opening.table(self.at, version).metadata().configuration, table_versions.FEED)

    def actions(self, version: int) -> list[dict[str, Any]]:
        """Return the actions of a version. Raise Refused if the log has lost its entry."""
        try:
            return opening.actions(self.at, version)
        except FileNotFoundError:
            first = opening.first(self.at)
            raise Refused(
                f"{self.at}: version {version} is not read, and its log now begins at version {first}",
                data=f"what versions {version} to {(first or version + 1) - 1} have appended can't be told from "
                "older rows: it would be lost",
                hint="bring the log's entries back from a backup; or read on with a pipeline of another name and "
                f"start={first}, without those rows. "
                "delta.logRetentionDuration of the table says how long entries stay",
            ) from None

    def _entry(self, file: DataFile, committed_ms: int, until: int) -> InputFile:
        source = self.pipeline.source
        assert isinstance(source, DeltaSource)
        shared = table_versions.beside(file, self.types, committed_ms if source.changes else None)
        # Of the columns of the change data feed only those that are declared. Partition columns all the same.
        shared = [one for one in shared if one[0] in self.types or one[0] in self.pipeline.columns()]
        mark = json.dumps(
            {
                stored_names.MARK_TABLE: self.table_id,
                stored_names.MARK_AT: str(self.at),
                stored_names.MARK_SHARED: shared,
            }
        )
        at = self.at / file.path
        path = str(at)
        if not file.path:
            return InputFile(
                path, size=0, modified_ns=0, lines=0, refusal=None, identity=file.identity, begins=until, ends=until,
                mark=mark,
            )  # fmt: skip
        there = stores.of(at).look(at)
        if there is None:
            raise vanished_versions(self.pipeline, path, str(file.version))
        try:
            typed_files.check_shared(path, [one for one in shared if one[0] in self.pipeline.columns()])
            lines, refusal = typed_files.counter(self.pipeline, typed_files.shared_columns_of(mark))(FileAt(path)), None
        except FileNotFoundError:
            raise vanished_versions(self.pipeline, path, str(file.version)) from None
        except Damaged as error:
            lines, refusal = 0, str(error)
        return InputFile(
            path, size=there.bytes, modified_ns=round(there.modified * 1_000_000_000), lines=lines, refusal=refusal,
            identity=file.identity, begins=until, ends=until, mark=mark,
        )  # fmt: skip


def _types(table: DeltaTable) -> dict[str, str]:
    fields = json.loads(table.schema().to_json())["fields"]
    return {field["name"]: field["type"] for field in fields if field["name"] in table.metadata().partition_columns}


def _check_same(pipeline: Pipeline, at: Location, there: Read, table_id: str, end: int) -> None:
    source = pipeline.source
    if isinstance(source, DeltaSource) and source.table and there.at not in (None, str(at)):
        raise Refused(
            f"the table {source.table} of {pipeline.name} is at {at} now, and was at {there.at}",
            data="nothing of it was read; what was read of it stays",
            hint="point the catalog's table at its old place; or read the new one with a pipeline of another name",
        )
    if there.table_id not in (None, table_id):
        raise Refused(
            f"{at} is another table than the one that {pipeline.name} reads (id {table_id}, not {there.table_id})",
            data="nothing of it was read; what was read of the old one stays",
            hint="put the old table back, or read the new one with a pipeline of another name",
        )
    if there.until is not None and there.until > end:
        raise Refused(
            f"{at} is at version {end - 1}, and {pipeline.name} has read up to version {there.until - 1}: it was "
            "put back to an older state",
            data="nothing was read; a version with a number that was read may have different rows now",
            hint="put the newer state back, or read the table with a pipeline of another name",
        )
