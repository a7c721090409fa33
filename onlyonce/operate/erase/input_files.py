"""Lines of input files are blanked: each is as long as before, so files keep their size, their time and the places of all other lines.

So the registry knows the file as it was, nothing is read again, and a record that is identified by its place keeps its id. A line that is blanked is `invalid` to a later
bounded run over all input. A file is written beside itself under a hidden name, and takes its place at once: a kill leaves the one or the other.

Who calls it: `forget`. Errors: OSError. Not promised: files that are packed, that grow, or have columns (Parquet, Avro); they are named instead.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

from onlyonce import settings
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Custom, DeltaSource, Growing, Kafka, Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.failpoints import passing
from onlyonce.model.operate.erasing import Condition
from onlyonce.model.storage.location import Location, Url
from onlyonce.operate.erase import source_conditions
from onlyonce.sources.files import folders, packing
from onlyonce.storage import durable

MARK = "forget"


@dataclass(frozen=True)
class Lines:
    """A file with lines that are meant: the bytes [first, until) of each."""

    path: Path
    places: list[tuple[int, int]]
    source: str = ""


def found(pipeline: Pipeline, condition: Condition) -> list[Lines]:
    """The files of a pipeline, in its inbox and in the archive, with such lines. Those in a store have `input_objects`."""
    found = []
    for source, asked, _ in source_conditions.of(pipeline, condition):
        if asked is None or not plain(source):
            continue
        for path in _files(source):
            if not _packed(path):
                with path.open("rb") as file:
                    found.append(Lines(path, places(file, asked, csv_columns(source)), source.part.name if source.part else ""))
    return [one for one in found if one.places]


def csv_columns(source: Pipeline) -> list[str] | None:
    """Return the columns of lines of CSV; None for JSON, whose lines name them."""
    return source.columns() if source.source.format == "csv" else None


def blank(lines: Lines) -> None:
    """Put spaces in the place of these lines."""
    for left in lines.path.parent.glob(f".{lines.path.name}.{MARK}-*"):
        left.unlink(missing_ok=True)  # of a killed attempt
    before = lines.path.stat()
    content = bytearray(lines.path.read_bytes())
    for first, until in lines.places:
        content[first:until] = b" " * (until - first)
    new = lines.path.with_name(f".{lines.path.name}.{MARK}-{uuid4().hex}")
    # Of mode 600 from its first byte on: a kill may leave it.
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        if os.geteuid() == 0:  # else the file is this user's own
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    durable.sync(new)
    passing("forget-before-file")
    new.replace(lines.path)
    durable.sync(lines.path.parent)


def left(pipeline: Pipeline, condition: Condition) -> list[str]:
    """What of the input is not looked into, by name."""
    asked = [*source_conditions.of(pipeline, condition)]
    computed = [
        f"input of the source {one.source.part.name}: {one.computed} is computed there, so no line of it is searched: delete those with such records"
        for one in asked if one.computed and one.source.part
    ]  # fmt: skip
    return [*computed, *(what for one in asked if one.condition for what in _left(one.source))]


def _left(pipeline: Pipeline) -> list[str]:
    if isinstance(pipeline.source, Kafka):
        return [f"messages in the topic {pipeline.source.topic}: delete them there, or let them expire"]
    if isinstance(pipeline.source, DeltaSource):
        return [f"rows of the table {pipeline.source.where}: delete them there"]
    if isinstance(pipeline.source, Custom):
        return ["what the reader of the source reads from"]
    inbox = inbox_of(pipeline)
    others = [f"what pipeline {name} has of the same inbox: onlyonce forget {name}" for name in sharing(pipeline)]
    if not plain(pipeline):
        files = f"input files ({pipeline.source.layout()}) in {inbox} and in an archive"
        return [f"{files}: delete those with such records", *others]
    packed = sum(_packed(path) for path in _files(pipeline))
    links = sum(path.is_symlink() for path in _there(pipeline)) if isinstance(inbox, Path) else 0
    told = {"packed input file(s)": packed, "link(s)": links}
    archive = settings.archive()
    stored = [f"objects below {archive / pipeline.name}: delete those with such records"] if isinstance(archive, Url) else []
    return [
        f"{count} {what} in {inbox} or the archive: delete those with such records"
        for what, count in told.items()
        if count
    ] + stored + others


def sharing(pipeline: Pipeline) -> list[str]:
    """The other declared pipelines that read the same inbox."""
    others = declarations.load().values()
    return sorted(other.name for other in others if other.name != pipeline.name and {*inputs.folders(pipeline)} & {*inputs.folders(other)})


def plain(pipeline: Pipeline) -> bool:
    return not isinstance(pipeline.source, Kafka | Custom | Growing) and pipeline.source.format in ("json", "csv")


def in_folders(pipeline: Pipeline) -> bool:
    """Return whether the pipeline's records are lines of files in a folder, so each record has a line."""
    return all(plain(source) and not inputs.in_store(source) for source in inputs.each(pipeline))


def _packed(path: Path) -> bool:
    return packing.of(path.name) is not None or path.name.lower().endswith(packing.LEFT_ALONE)


def inbox_of(pipeline: Pipeline) -> Location:
    """The folder or prefix of its input."""
    found = inputs.folder(pipeline)
    assert found is not None
    return found


def _files(pipeline: Pipeline) -> Iterator[Path]:
    archive = settings.archive()
    # Files of several sources are not archived.
    archived = folders.files(archive / pipeline.name, recursive=True) if isinstance(archive, Path) and not pipeline.part else []
    yield from (path for path in (*_there(pipeline), *archived) if path.is_file() and not path.is_symlink())


def _there(pipeline: Pipeline) -> list[Path]:
    inbox = inbox_of(pipeline)
    return folders.files(inbox, recursive=folders.is_recursive(pipeline)) if isinstance(inbox, Path) else []


def places(content: IO[bytes], condition: Condition, columns: list[str] | None) -> list[tuple[int, int]]:
    """The bytes [first, until) of the lines that are meant."""
    layout = None if columns is None else "csv"
    found, at = [], 0
    for line in content:
        ended = line.removesuffix(b"\n").removesuffix(b"\r")
        # Most lines have neither the value nor an escape, and need no parser.
        if condition.may_be_in(ended, layout) and condition.fits_line(ended.decode("utf-8", "replace"), columns):
            found.append((at, at + len(ended)))
        at += len(line)
    return found
