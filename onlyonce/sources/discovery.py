"""Finds what a source has and its registry does not know yet, in groups of one batch each; and what lies before the
source's start.

No Spark, and nothing is written: `source_files` appends what is found. Errors: Refused if the start was never decided,
and those of `custom`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from onlyonce.declare.declaration import declared_at
from onlyonce.declare.pipeline import Custom, Growing, Pipeline, PubSub
from onlyonce.declare.sources import inputs
from onlyonce.declare.sources.starts import EARLIEST, before_start
from onlyonce.declare.sources.tables import DeltaSource
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location, Url, on_disk
from onlyonce.model.stored_names import BATCH_NO, SEEN_AT
from onlyonce.sources import custom, registry
from onlyonce.sources.files import growing, moved_inboxes, object_listing, typed_files
from onlyonce.sources.files.folders import Folders
from onlyonce.sources.files.growing import Known
from onlyonce.sources.files.listing import Csv, InputFile, Layout, new_files
from onlyonce.sources.files.moved_inboxes import Moved
from onlyonce.sources.reading import Reading
from onlyonce.sources.tables import table_entries, table_log
from onlyonce.sources.tables.table_entries import Read
from onlyonce.storage import log_entries, opening
from onlyonce.storage.stores import arrow

TYPED = ("parquet", "avro")
NO_BATCH = -1
"""In the place of a number of the registry: nothing was registered yet. Entries under it lie before the source's
start."""
AT_A_LOOK = 10_000
"""About how many objects are counted before they are registered."""
DECIDED = InputFile("", 0, 0, 0, None)
"""Stands in the registry for a start that is decided, also where nothing lies before it."""


@dataclass(frozen=True)
class Inbox:
    """Where an instance's input comes in, and the table `files` that remembers it.

    `moved`: which of its folders are elsewhere now. `folders`: what becomes of those below it."""

    instance: str
    folder: Location
    table: Location
    max_files_a_batch: int
    pipeline: Pipeline
    moved: Moved = field(default_factory=dict)
    folders: Folders = field(default_factory=Folders)


@dataclass(frozen=True)
class Registered:
    """What the registry says: the last (size, mtime) by path, what was read by identity, the number of batches cut so
    far, the last system time, and whether it is empty.

    Of a table how far it is read, and of its files nothing; of objects what `object_listing` knows. `roots`: the
    inboxes that files were registered from, the last one last."""

    marks: dict[str, tuple[int, int]]
    known: dict[str, Known]
    batches: int = 0
    last_seen: datetime | None = None
    empty: bool = True
    of_table: Read = field(default_factory=Read)
    objects: object_listing.Known = field(default_factory=object_listing.Known)
    roots: tuple[str, ...] = ()


def registered(table: Location, pipeline: Pipeline) -> Registered:
    """What is in the registry of a pipeline's source."""
    if isinstance(pipeline.source, DeltaSource):
        read = table_entries.read_until(table)
        return Registered({}, {}, read.batches, read.last_seen, read.until is None, read)
    if inputs.in_store(pipeline):
        return _objects(table)
    entries = pa.table(opening.table(table).to_pyarrow_table(columns=_columns(pipeline)))
    return _more(Registered({}, {}), entries)


def reading(table: Location, pipeline: Pipeline) -> Reading[Registered]:
    """How a run reads the registry of a pipeline's source, look by look."""
    if isinstance(pipeline.source, DeltaSource):  # its last entries tell all
        return Reading(table, lambda at: registered(at, pipeline))
    if inputs.in_store(pipeline):
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
    """What the registry says with these entries, which came later than all that it said before."""
    entries = entries.sort_by(BATCH_NO)
    rows = {name: entries[name].to_pylist() for name in entries.column_names if name not in (SEEN_AT, BATCH_NO, "root")}
    marks = dict(zip(rows["path"], zip(rows["size"], rows["modified_ns"], strict=True), strict=True))
    last, seen = registry.last_entry(entries)
    return Registered(
        there.marks | marks,
        _known(rows, there.known) if "identity" in rows else {},
        there.batches if last is None else last + 1,
        seen or there.last_seen,
        there.empty and not entries.num_rows,
        roots=_roots(there.roots, entries),
    )


def _roots(before: tuple[str, ...], entries: pa.Table) -> tuple[str, ...]:
    """Return the inboxes of the entries, and those known before, in the order of the last batch from each, and of one
    batch by name."""
    last = entries.select(["root", BATCH_NO]).group_by("root").aggregate([(BATCH_NO, "max")])
    last = last.sort_by([("batch_no_max", "ascending"), ("root", "ascending")])
    now = [root for root in last["root"].to_pylist() if root]
    return (*(root for root in before if root not in now), *now)


def in_ranges(pipeline: Pipeline) -> bool:
    """Whether an entry has more than a file's size and time: a range of it, or the ETag of an object."""
    return isinstance(pipeline.source, Growing | Custom | DeltaSource) or inputs.in_store(pipeline)


def undecided(inbox: Inbox, there: Registered) -> bool:
    """Whether this is the first run of a source that does not start at its begin, and by its start alone nobody knows
    where."""
    return (
        not isinstance(inbox.pipeline.source, DeltaSource) and there.empty and inbox.pipeline.source.start != EARLIEST
    )


def look_for_folder(inbox: Inbox, there: Registered) -> None:
    """Make an inbox in the home where nothing was ever read from one; raises Refused where any other is not there."""
    source = inbox.pipeline.source
    if isinstance(source, Custom | DeltaSource) or not isinstance(inbox.folder, Path) or inbox.folder.is_dir():
        return
    if there.empty and (source.inbox is None or isinstance(source, PubSub)) and not inbox.folder.exists():
        inbox.folder.mkdir(parents=True, exist_ok=True)
        return
    raise Refused(
        f"{declared_at(source)}the inbox of {inbox.pipeline.name}, {inbox.folder}, is not a folder",
        data="nothing was read or written",
        hint="mount it, or put it back; if it is to be made by its producer and nothing has come yet: mkdir -p "
        f"{inbox.folder}",
    )


def looks(inbox: Inbox, there: Registered) -> Iterator[list[list[InputFile]]]:
    """What is new, cut into batches: of objects some thousand at a time, of all else at once. None of them is empty."""
    if inputs.in_store(inbox.pipeline):
        for some in _new_objects(inbox, there):
            yield list(batched_files(some, inbox.max_files_a_batch))
    elif found := groups(inbox, there):
        yield found


def groups(inbox: Inbox, there: Registered) -> list[list[InputFile]]:
    """What is new in a folder, cut into batches; of a table that of the next versions which have anything."""
    source, most = inbox.pipeline.source, inbox.max_files_a_batch
    if isinstance(source, DeltaSource):
        return list(
            table_entries.batched(next(table_log.pages(inbox.pipeline, inbox.folder, there.of_table), []), most)
        )
    if isinstance(source, Custom):
        return list(custom.batched(custom.new_ranges(source, there.known), source))
    if isinstance(source, Growing):
        found = _as_named(
            inbox,
            there,
            growing.new_ranges(
                on_disk(inbox.folder),
                there.known,
                source.max_bytes_a_batch,
                with_packed=source.packed,
                links=source.links,
                folders=inbox.folders,
                quoted_within=quoted_within(inbox.pipeline),
            ),
        )
        return list(growing.batched(found, source.max_bytes_a_batch, most))
    return list(batched_files(_new_files(inbox, there), most))


def before(inbox: Inbox) -> list[InputFile]:
    """What lies before the start: by what is there now for a stream, by what its stream has decided for a bounded
    run."""
    if inbox.instance != inbox.pipeline.name:
        return _as_the_stream(inbox)
    source = inbox.pipeline.source
    assert not isinstance(source, DeltaSource), "its start is a number of a version"
    nothing = Registered({}, {})
    if isinstance(source, Growing):
        ranges = growing.at_start(
            on_disk(inbox.folder),
            source.start,
            with_packed=source.packed,
            links=source.links,
            quoted_within=quoted_within(inbox.pipeline),
        )
        return [DECIDED, *_as_named(inbox, nothing, ranges)]
    if isinstance(source, Custom):
        ends = custom.ends(source).items()
        return [DECIDED, *(InputFile(part, 0, 0, end, None, part, 0, end) for part, end in ends)]
    found: Iterable[InputFile] = (
        chain.from_iterable(_new_objects(inbox, nothing))
        if inputs.in_store(inbox.pipeline)
        else _new_files(inbox, nothing)
    )
    return [DECIDED, *(f for f in found if before_start(source.start, f.modified_ns))]


def decided(inbox: Inbox) -> Registered:
    """What the registry would say if the start were decided now."""
    left_out = before(inbox)
    roots = tuple({file.root: None for file in left_out if file.root})
    if inputs.in_store(inbox.pipeline):
        rows = pa.RecordBatch.from_pylist(
            [{BATCH_NO: NO_BATCH, "path": file.path, "mark": file.mark} for file in left_out]
        )
        return Registered({}, {}, objects=object_listing.known([rows]), roots=roots)
    marks = {file.path: (file.size, file.modified_ns) for file in left_out}
    return Registered(marks, {file.identity: Known(file.ends, file.mark) for file in left_out}, roots=roots)


def batched_files(files: list[InputFile], size: int) -> Iterator[list[InputFile]]:
    """Groups of at most `size` files, in order."""
    for start in range(0, len(files), size):
        yield files[start : start + size]


def _new_files(inbox: Inbox, there: Registered) -> list[InputFile]:
    pipeline = inbox.pipeline
    known = (
        {moved_inboxes.place(path, inbox.moved): mark for path, mark in there.marks.items()}
        if inbox.moved
        else there.marks
    )
    return _as_named(
        inbox,
        there,
        new_files(on_disk(inbox.folder), known, layout(pipeline), links=pipeline.source.links, folders=inbox.folders),
    )


def layout(pipeline: Pipeline) -> Layout:
    """Return how the records of a pipeline's files are found and counted."""
    if pipeline.source.format in TYPED:
        return typed_files.counter(pipeline)
    within = quoted_within(pipeline)
    return None if within is None else Csv(within, list(pipeline.named().values()) if pipeline.source.header else None)


def quoted_within(pipeline: Pipeline) -> int | None:
    """Return within how many bytes of a record of CSV its quotes are closed; None if a record is a line."""
    return pipeline.source.max_record_bytes if pipeline.source.format == "csv" else None


def _new_objects(inbox: Inbox, there: Registered) -> Iterator[list[InputFile]]:
    assert isinstance(inbox.folder, Url)
    named = moved_inboxes.named(inbox.pipeline.name, str(inbox.folder), there.roots, inbox.moved)
    most = max(AT_A_LOOK // inbox.max_files_a_batch, 1) * inbox.max_files_a_batch
    return object_listing.new_objects(inbox.folder, named, there.objects, layout(inbox.pipeline), most, inbox.folders)


def _objects(table: Location) -> Registered:
    entries = opening.table(table).to_pyarrow_dataset(filesystem=arrow.folder(table))
    last, seen = registry.last_entry(entries.to_table(columns=[BATCH_NO, SEEN_AT]))
    found = object_listing.known(entries.to_batches(columns=[BATCH_NO, "path", "mark"]))
    roots = _roots((), entries.to_table(columns=["root", BATCH_NO]))
    return Registered(
        {}, {}, NO_BATCH + 1 if last is None else last + 1, seen, last is None, objects=found, roots=roots
    )


def _more_objects(there: Registered, entries: pa.Table) -> Registered:
    last, seen = registry.last_entry(entries)
    found, roots = object_listing.known(entries.to_batches(), there.objects), _roots(there.roots, entries)
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
    """With the paths by which the registry knows the inbox.

    Raises Refused where only a person knows whether it does.
    """
    folder = str(inbox.folder)
    name = moved_inboxes.named(inbox.pipeline.name, folder, there.roots, inbox.moved)
    return [replace(one, path=name + one.path.removeprefix(folder), root=name) for one in files]


def _as_the_stream(inbox: Inbox) -> list[InputFile]:
    name = inbox.pipeline.name
    table = registry.folder(inbox.pipeline, name) / inbox.table.name
    fields = [
        field
        for field in InputFile.__dataclass_fields__
        if field != "moved_to" and (in_ranges(inbox.pipeline) or field in FILE)
    ]
    rows = []
    if log_entries.any_in(table):
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
