"""Find input that a source has and its manifest does not, in groups of one batch each, and input before the start.

No Spark, and nothing is written except a person's answer about an inbox; `source_files` appends what is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa

from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import Custom, Files, Growing, Pipeline, PubSub
from onlyonce.api.sources import before_start
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, Url, on_disk
from onlyonce.core.runs import Report
from onlyonce.core.stored_names import BATCH_NO, SEEN_AT
from onlyonce.sources import custom, delta_log, growing, listing, manifest, record_id, typed_files
from onlyonce.sources.delta_log import Read
from onlyonce.sources.folders import Folders
from onlyonce.sources.growing import Known
from onlyonce.sources.listing import Csv, InputFile, Layout, new_files
from onlyonce.sources.manifest import Reading
from onlyonce.sources.record_id import Moved, first_line, identity
from onlyonce.tables import arrow_files, opening

TYPED = ("parquet", "avro")
NO_BATCH = -1
"""In place of a batch number: nothing was registered yet. Entries with it are before the source's start."""
AT_A_LOOK = 10_000
"""About how many objects are counted before they are registered."""
DECIDED = InputFile("", 0, 0, 0, None)
"""The manifest entry which says that the start is decided, even if no input is before it."""


@dataclass(frozen=True)
class Inbox:
    """Where an instance's input comes in, and the table `files` that remembers it.

    `moved`: which of its folders have moved since. `folders`: how folders below it are treated."""

    instance: str
    folder: Location
    table: Location
    max_files_a_batch: int
    pipeline: Pipeline
    moved: Moved = field(default_factory=dict)
    folders: Folders = field(default_factory=Folders)


@dataclass(frozen=True)
class Registered:
    """The state that a run derives from the manifest.

    It has the last (size, mtime) by path, what was read by identity, the number of batches, and the last ingestion
    time. For a table it has how far it was read; for objects it has the fields of `listing.Known`. `roots`: the inboxes
    from which files were registered, the last one last."""

    marks: dict[str, tuple[int, int]]
    known: dict[str, Known]
    batches: int = 0
    last_seen: datetime | None = None
    empty: bool = True
    of_table: Read = field(default_factory=Read)
    objects: listing.Known = field(default_factory=listing.Known)
    roots: tuple[str, ...] = ()


def registered(table: Location, pipeline: Pipeline) -> Registered:
    """Return the state of the manifest of a pipeline's source."""
    if pipeline.source.is_table:
        read = delta_log.read_until(table)
        return Registered({}, {}, read.batches, read.last_seen, read.until is None, read)
    if pipeline.source.in_store:
        return _objects(table)
    entries = pa.table(opening.table(table).to_pyarrow_table(columns=_columns(pipeline)))
    return _more(Registered({}, {}), entries)


def reading(table: Location, pipeline: Pipeline) -> Reading[Registered]:
    """Return the reading by which a run follows the manifest of a pipeline's source."""
    if pipeline.source.is_table:  # its last entries suffice
        return Reading(table, lambda at: registered(at, pipeline))
    if pipeline.source.in_store:
        return Reading(table, _objects, [BATCH_NO, "path", "mark", "root", SEEN_AT], _more_objects)
    return Reading(table, lambda at: registered(at, pipeline), _columns(pipeline), _more)


def _columns(pipeline: Pipeline) -> list[str]:
    return [
        BATCH_NO,
        "path",
        "size",
        "modified_ns",
        "root",
        SEEN_AT,
        *(("refusal", "identity", "ends", "mark") if in_ranges(pipeline) else ()),
    ]


def _more(there: Registered, entries: pa.Table) -> Registered:
    """Return what the manifest has after these entries, which were added later."""
    entries = entries.sort_by(BATCH_NO)
    rows = {name: entries[name].to_pylist() for name in entries.column_names if name not in (SEEN_AT, BATCH_NO, "root")}
    marks = dict(zip(rows["path"], zip(rows["size"], rows["modified_ns"], strict=True), strict=True))
    last, seen = manifest.last_entry(entries)
    return Registered(
        there.marks | marks,
        _known(rows, there.known) if "identity" in rows else {},
        there.batches if last is None else last + 1,
        seen or there.last_seen,
        there.empty and not entries.num_rows,
        roots=_roots(there.roots, entries),
    )


def _roots(before: tuple[str, ...], entries: pa.Table) -> tuple[str, ...]:
    """Return the inboxes known before and the entries' inboxes, ordered by the last batch of each, then by name."""
    last = entries.select(["root", BATCH_NO]).group_by("root").aggregate([(BATCH_NO, "max")])
    last = last.sort_by([("batch_no_max", "ascending"), ("root", "ascending")])
    now = [root for root in last["root"].to_pylist() if root]
    return (*(root for root in before if root not in now), *now)


def in_ranges(pipeline: Pipeline) -> bool:
    """Return whether an entry has more than a file's size and time: a range of it, or the ETag of an object."""
    return pipeline.source.in_ranges or pipeline.source.in_store


def undecided(inbox: Inbox, there: Registered) -> bool:
    """Return whether this is the first run of a source whose start must still be resolved."""
    return there.empty and inbox.pipeline.source.start_to_resolve


def look_for_folder(inbox: Inbox, there: Registered) -> None:
    """Create a missing inbox in the home if nothing was ever read from it. Raise Refused if any other is missing."""
    source = inbox.pipeline.source
    if not source.has_inbox or not isinstance(inbox.folder, Path) or inbox.folder.is_dir():
        return
    if there.empty and source.makes_inbox and not inbox.folder.exists():
        inbox.folder.mkdir(parents=True, exist_ok=True)
        return
    raise Refused(
        f"{declared_at(source)}the inbox of {inbox.pipeline.name}, {inbox.folder}, is not a folder",
        data="nothing was read or written",
        hint="mount it, or put it back; if it is to be made by its producer and nothing has come yet: mkdir -p "
        f"{inbox.folder}",
    )


def looks(inbox: Inbox, there: Registered) -> Iterator[list[list[InputFile]]]:
    """Yield new input, cut into batches: a few thousand objects at a time, or all files at once. Never empty."""
    if inbox.pipeline.source.in_store:
        for some in _new_objects(inbox, there):
            yield list(batched_files(some, inbox.max_files_a_batch))
    elif found := groups(inbox, there):
        yield found


def any_new(inbox: Inbox, there: Registered) -> bool:
    """Return whether a run would register anything. No new file or object is opened, except of an inbox that grows."""
    look_for_folder(inbox, there)
    return undecided(inbox, there) or _finder(inbox).any_new(inbox, there)


def groups(inbox: Inbox, there: Registered) -> list[list[InputFile]]:
    """Return a folder's new input, cut into batches.

    For a table return the input of the next versions which have any.
    """
    return _finder(inbox).groups(inbox, there)


def before(inbox: Inbox) -> list[InputFile]:
    """Return the input before the start.

    For a stream this is decided by the existing input, for a bounded run by what its stream has decided."""
    if inbox.instance != inbox.pipeline.name:
        return _as_the_stream(inbox)
    return [DECIDED, *_finder(inbox).before(inbox)]


# How each kind of source finds its input.


class Finder(Protocol):
    """How one kind of source finds its input."""

    def any_new(self, inbox: Inbox, there: Registered) -> bool:
        """Return whether there is new input. Raise what the source's store raises, or Refused."""

    def groups(self, inbox: Inbox, there: Registered) -> list[list[InputFile]]:
        """Return new input, cut into batches."""

    def before(self, inbox: Inbox) -> Iterable[InputFile]:
        """Return the existing input that is before the source's declared start."""


class _OfFiles:
    def any_new(self, inbox: Inbox, there: Registered) -> bool:
        # Raises Refused if only a person knows whether the inbox was moved.
        named = record_id.named_inbox(inbox.pipeline.name, str(inbox.folder), there.roots, inbox.moved)
        if isinstance(inbox.folder, Url):
            return next(listing.unlisted_objects(inbox.folder, named, there.objects, inbox.folders), None) is not None
        links = inbox.pipeline.source.links
        return bool(listing.unlisted(on_disk(inbox.folder), known_marks(inbox, there), links, inbox.folders))

    def groups(self, inbox: Inbox, there: Registered) -> list[list[InputFile]]:
        return list(batched_files(_new_files(inbox, there), inbox.max_files_a_batch))

    def before(self, inbox: Inbox) -> Iterable[InputFile]:
        nothing = Registered({}, {})
        found: Iterable[InputFile] = (
            chain.from_iterable(_new_objects(inbox, nothing))
            if inbox.pipeline.source.in_store
            else _new_files(inbox, nothing)
        )
        source = inbox.pipeline.source
        assert isinstance(source, Files | PubSub)
        return [file for file in found if before_start(source.start, file.modified_ns)]


class _OfGrowingFiles:
    def any_new(self, inbox: Inbox, there: Registered) -> bool:
        return bool(self.groups(inbox, there))

    def groups(self, inbox: Inbox, there: Registered) -> list[list[InputFile]]:
        source = self._source(inbox)
        ranges = growing.new_ranges(
            on_disk(inbox.folder),
            there.known,
            source.max_bytes_a_batch,
            with_compressed=source.compressed,
            links=source.links,
            folders=inbox.folders,
            csv=csv_layout(inbox.pipeline),
        )
        found = _as_named(inbox, there, ranges)
        return list(growing.batched(found, source.max_bytes_a_batch, inbox.max_files_a_batch))

    def before(self, inbox: Inbox) -> Iterable[InputFile]:
        source = self._source(inbox)
        ranges = growing.at_start(
            on_disk(inbox.folder),
            source.start,
            with_compressed=source.compressed,
            links=source.links,
            csv=csv_layout(inbox.pipeline),
        )
        return _as_named(inbox, Registered({}, {}), ranges)

    @staticmethod
    def _source(inbox: Inbox) -> Growing:
        assert isinstance(inbox.pipeline.source, Growing)
        return inbox.pipeline.source


class _OfReader:
    def any_new(self, inbox: Inbox, there: Registered) -> bool:
        return bool(self.groups(inbox, there))

    def groups(self, inbox: Inbox, there: Registered) -> list[list[InputFile]]:
        source = self._source(inbox)
        return list(custom.batched(custom.new_ranges(source, there.known), source))

    def before(self, inbox: Inbox) -> Iterable[InputFile]:
        ends = custom.ends(self._source(inbox)).items()
        return [InputFile(part, 0, 0, end, None, part, 0, end) for part, end in ends]

    @staticmethod
    def _source(inbox: Inbox) -> Custom:
        assert isinstance(inbox.pipeline.source, Custom)
        return inbox.pipeline.source


class _OfVersions:
    def any_new(self, inbox: Inbox, there: Registered) -> bool:
        return delta_log.any_page(inbox.pipeline, inbox.folder, there.of_table)

    def groups(self, inbox: Inbox, there: Registered) -> list[list[InputFile]]:
        page = next(delta_log.log_pages(inbox.pipeline, inbox.folder, there.of_table), [])
        return list(delta_log.batched_versions(page, inbox.max_files_a_batch))

    def before(self, inbox: Inbox) -> Iterable[InputFile]:
        return ()  # its start is the number of a version


FINDERS: Mapping[str, Finder] = {
    "files": _OfFiles(), "ranges of files": _OfGrowingFiles(), "numbers": _OfReader(), "versions": _OfVersions(),
}  # fmt: skip
"""The finders by `found_by` of the declared sources."""


def _finder(inbox: Inbox) -> Finder:
    return FINDERS[inbox.pipeline.source.found_by]


def decided(inbox: Inbox) -> Registered:
    """Return what the manifest would have if the start were decided now."""
    left_out = before(inbox)
    roots = tuple({file.root: None for file in left_out if file.root})
    if inbox.pipeline.source.in_store:
        rows = pa.RecordBatch.from_pylist(
            [{BATCH_NO: NO_BATCH, "path": file.path, "mark": file.mark} for file in left_out]
        )
        return Registered({}, {}, objects=listing.known_objects([rows]), roots=roots)
    marks = {file.path: (file.size, file.modified_ns) for file in left_out}
    return Registered(marks, {file.identity: Known(file.ends, file.mark) for file in left_out}, roots=roots)


def batched_files(files: list[InputFile], size: int) -> Iterator[list[InputFile]]:
    """Yield groups of at most `size` files, in order."""
    for start in range(0, len(files), size):
        yield files[start : start + size]


def known_marks(inbox: Inbox, there: Registered) -> dict[str, tuple[int, int]]:
    """Return the last (size, mtime) of each registered file, by where the file is now."""
    if not inbox.moved:
        return there.marks
    return {record_id.place_in_inbox(path, inbox.moved): mark for path, mark in there.marks.items()}


def _new_files(inbox: Inbox, there: Registered) -> list[InputFile]:
    pipeline, known = inbox.pipeline, known_marks(inbox, there)
    return _as_named(
        inbox,
        there,
        new_files(on_disk(inbox.folder), known, layout(pipeline), links=pipeline.source.links, folders=inbox.folders),
    )


def layout(pipeline: Pipeline) -> Layout:
    """Return how the records of a pipeline's files are found and counted."""
    if pipeline.source.format in TYPED:
        return typed_files.counter(pipeline)
    return csv_layout(pipeline)


def csv_layout(pipeline: Pipeline) -> Csv | None:
    """Return how records of CSV are found; None if a record is a line."""
    within = quoted_within(pipeline)
    if within is None:
        return None
    named = pipeline.named() if pipeline.source.header else None
    header, columns = (list(named.values()), list(named)) if named else (None, None)
    return Csv(within, header, pipeline.source.delimiter, pipeline.source.encoding, columns)


def quoted_within(pipeline: Pipeline) -> int | None:
    """Return how many bytes of a CSV record its quotes may span; None if a record is a line."""
    return pipeline.source.max_record_bytes if pipeline.source.format == "csv" else None


def _new_objects(inbox: Inbox, there: Registered) -> Iterator[list[InputFile]]:
    assert isinstance(inbox.folder, Url)
    named = record_id.named_inbox(inbox.pipeline.name, str(inbox.folder), there.roots, inbox.moved)
    most = max(AT_A_LOOK // inbox.max_files_a_batch, 1) * inbox.max_files_a_batch
    return listing.new_objects(inbox.folder, named, there.objects, layout(inbox.pipeline), most, inbox.folders)


def _objects(table: Location) -> Registered:
    entries = opening.table(table).to_pyarrow_dataset(filesystem=arrow_files.folder(table))
    last, seen = manifest.last_entry(entries.to_table(columns=[BATCH_NO, SEEN_AT]))
    found = listing.known_objects(entries.to_batches(columns=[BATCH_NO, "path", "mark"]))
    roots = _roots((), entries.to_table(columns=["root", BATCH_NO]))
    return Registered(
        {}, {}, NO_BATCH + 1 if last is None else last + 1, seen, last is None, objects=found, roots=roots
    )


def _more_objects(there: Registered, entries: pa.Table) -> Registered:
    last, seen = manifest.last_entry(entries)
    found, roots = listing.known_objects(entries.to_batches(), there.objects), _roots(there.roots, entries)
    return Registered(
        {},
        {},
        there.batches if last is None else last + 1,
        seen or there.last_seen,
        there.empty and last is None,
        objects=found,
        roots=roots,
    )


def _as_named(inbox: Inbox, there: Registered, files: Iterable[InputFile]) -> list[InputFile]:
    """Return files with the paths by which the manifest knows the inbox.

    Raise Refused if only a person knows whether the inbox was moved.
    """
    folder = str(inbox.folder)
    name = record_id.named_inbox(inbox.pipeline.name, folder, there.roots, inbox.moved)
    return [replace(one, path=name + one.path.removeprefix(folder), root=name) for one in files]


def _as_the_stream(inbox: Inbox) -> list[InputFile]:
    name = inbox.pipeline.name
    table = manifest.folder(inbox.pipeline, name) / inbox.table.name
    fields = [
        field
        for field in InputFile.__dataclass_fields__
        if field != "moved_to" and (in_ranges(inbox.pipeline) or field in FILE)
    ]
    rows = []
    if opening.any_in(table):
        rows = opening.table(table).to_pyarrow_table(columns=fields, filters=[(BATCH_NO, "=", NO_BATCH)]).to_pylist()
    if not rows:
        raise Refused(
            f"pipeline {name} starts at {inbox.pipeline.source.start}, and no run of its stream has decided where "
            "that is",
            data="nothing was read or written",
            hint=f"onlyonce run {name} first; a bounded run then starts where the stream did",
        )
    return [InputFile(**row) for row in rows]


FILE = ("path", "size", "modified_ns", "lines", "refusal", "root", "cuts", "quoted_within")


def _known(rows: dict[str, list[Any]], before: dict[str, Known]) -> dict[str, Known]:
    known = dict(before)
    for who, ends, mark, refusal in zip(rows["identity"], rows["ends"], rows["mark"], rows["refusal"], strict=True):
        last = known.get(who, Known(0, ""))
        if ends >= last.ends or refusal:
            known[who] = Known(max(ends, last.ends), mark, last.refused or bool(refusal))
    return known


# Entry point: show where a pipeline's inbox was and where it is now, and take a person's answer whether its files were
# moved there. Only that answer is written.


Said = Literal["moved", "another"]


def look_at_inbox(pipeline: Pipeline, said: Said | None) -> Report:
    """Report how the manifest names the inbox and where it is.

    With `said`, store whether a new folder has the moved files or other ones."""
    from onlyonce.sources import manifest
    from onlyonce.tables import commit

    name, source = pipeline.name, pipeline.source
    if not source.has_inbox:
        raise Refused(f"{name} reads no folder", hint="nothing of it depends on where a folder is")
    folder, table = str(api_pipeline.folder(pipeline)), manifest.folder(pipeline, name) / stored_names.FILES_MANIFEST
    there = registered(table, pipeline) if commit.exists(table) else Registered({}, {})
    roots, moved = there.roots, record_id.moved_inboxes_of(name)
    if said is not None:
        _refuse_settled(name, folder, roots, moved)
        if said == "moved" and isinstance(source, Growing):
            _refuse_copies(folder, set(there.known))
        if said == "another" and (known := [one for one in moved if f"{one}/".startswith(f"{folder}/")]):
            raise Refused(
                f"{known[0]} is the name of files of {name} that were moved away",
                data="nothing was changed",
                hint="give the new files a folder of another name",
            )
        record_id.tell_moved(name, roots[-1] if said == "moved" else folder, folder)
    facts = {
        "inbox": folder,
        "was": record_id.last_inbox(roots, moved) if roots else None,
        "files known": len(there.marks),
    }
    try:
        facts["named"] = record_id.named_inbox(name, folder, roots, record_id.moved_inboxes_of(name))
    except Refused as error:
        return Report(f"{name}: its inbox is elsewhere", "asked", facts, {}, [f"{error.what}: {error.hint}"])
    return Report(f"{name}: its inbox", "told" if said else "asked", facts)


def _refuse_settled(name: str, folder: str, roots: tuple[str, ...], moved: record_id.Moved) -> None:
    try:
        record_id.named_inbox(name, folder, roots, moved)
    except Refused:
        return
    raise Refused(
        f"the inbox of {name}, {folder}, is where it was",
        data="nothing was changed",
        hint=f"nothing to do: onlyonce run {name}",
    )


def _refuse_copies(folder: str, known: set[str]) -> None:
    """Raise Refused if a growing file was copied: a copy has another inode, so it would be read from the start."""
    first_lines = {first_line(who) for who in known}
    for path in sorted(Path(folder).expanduser().glob("[!._]*")):
        who = identity(path)
        if who is not None and who not in known and first_line(who) in first_lines:
            raise Refused(
                f"{path} is a copy of a file that was read, and files that grow are known by their inodes",
                data="nothing was changed; the copy would be read again from its beginning",
                hint="move the folder within its file system (mv), which keeps them",
            )
