"""Records of input files are blanked: each is as long as before, so files keep their size, their time and the places of
all other records.

So the registry knows the file as it was, nothing is read again, and a record that is identified by its place keeps its
id. A record that is blanked is `invalid` to a later bounded run over all input. Of CSV the quotes stay, and line feeds
within become spaces: without its quotes, a stray quote of another record could be closed by a later one. A file is
written beside itself under a hidden name, and takes its place at once: a kill leaves the one or the other.

Who calls it: `forget`. Errors: OSError. Files that are compressed, that grow, or have columns (Parquet, Avro) stay, and
the search at the end names them.
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
from onlyonce.model.operate.left import NOT_SEARCHED, Left
from onlyonce.model.storage.location import Location
from onlyonce.operate.erase import source_conditions
from onlyonce.sources import discovery
from onlyonce.sources.files import folders, packing, record_ends
from onlyonce.storage import durable

MARK = "forget"
SPACES = b" " * 256
SPACES_AND_QUOTES = SPACES[:34] + b'"' + SPACES[35:]
"""What takes the place of each byte."""


@dataclass(frozen=True)
class Lines:
    """A file with records that are meant: the bytes [first, until) of each. `with_quotes`: their quotes stay."""

    path: Path
    places: list[tuple[int, int]]
    source: str = ""
    with_quotes: bool = False


def found(pipeline: Pipeline, condition: Condition) -> list[Lines]:
    """The files of a pipeline, in its inbox and in the archive, with such lines.

    Those in a store have `input_objects`.
    """
    found = []
    for source, asked, _ in source_conditions.of(pipeline, condition):
        if asked is None or not plain(source):
            continue
        for path in _files(source):
            if not _packed(path):
                with path.open("rb") as file:
                    meant = places(file, asked, csv_columns(source), discovery.quoted_within(source))
                    found.append(
                        Lines(path, meant, source.part.name if source.part else "", source.source.format == "csv")
                    )
    return [one for one in found if one.places]


def csv_columns(source: Pipeline) -> list[str] | None:
    """Return the columns of records of CSV; None for JSON, whose lines name them."""
    return source.columns() if source.source.format == "csv" else None


def blank(lines: Lines) -> None:
    """Put spaces in the place of these records."""
    for left in lines.path.parent.glob(f".{lines.path.name}.{MARK}-*"):
        left.unlink(missing_ok=True)  # of a killed attempt
    before = lines.path.stat()
    content = bytearray(lines.path.read_bytes())
    for first, until in lines.places:
        content[first:until] = content[first:until].translate(SPACES_AND_QUOTES if lines.with_quotes else SPACES)
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


def left(pipeline: Pipeline, condition: Condition) -> Iterator[Left]:
    """Yield what of the input the search at the end does not read.

    It reads all files and objects of an inbox and of the archive.
    """
    for source, _, computed in source_conditions.of(pipeline, condition):
        if computed and source.part:
            why = f"{NOT_SEARCHED} by {computed}, which is computed from other columns"
            yield Left(f"input of the source {source.part.name}", why, "delete the lines of these records")
        if isinstance(source.source, DeltaSource):
            yield Left(
                f"rows of the table {source.source.where}",
                NOT_SEARCHED,
                "delete them there, then VACUUM: its change data and old versions have them until then",
            )
        if isinstance(source.source, Custom):
            yield Left("what the reader of the source reads from", NOT_SEARCHED, "delete them there")
    for name in sharing(pipeline):
        yield Left(f"data of the pipeline {name}, which reads the same inbox", NOT_SEARCHED, f"onlyonce forget {name}")


def sharing(pipeline: Pipeline) -> list[str]:
    """The other declared pipelines that read the same inbox."""
    others = declarations.load().values()
    return sorted(
        other.name
        for other in others
        if other.name != pipeline.name and {*inputs.folders(pipeline)} & {*inputs.folders(other)}
    )


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
    archived = (
        folders.files(archive / pipeline.name, recursive=True)
        if isinstance(archive, Path) and not pipeline.part
        else []
    )
    yield from (path for path in (*_there(pipeline), *archived) if path.is_file() and not path.is_symlink())


def _there(pipeline: Pipeline) -> list[Path]:
    inbox = inbox_of(pipeline)
    return folders.files(inbox, recursive=folders.is_recursive(pipeline)) if isinstance(inbox, Path) else []


def places(
    content: IO[bytes], condition: Condition, columns: list[str] | None, quoted_within: int | None
) -> list[tuple[int, int]]:
    """The bytes [first, until) of the records that are meant."""
    layout = None if columns is None else "csv"
    found = []
    for at, record in record_ends.records(content, quoted_within):
        ended = record.removesuffix(b"\n").removesuffix(b"\r")
        # Most lines have neither the value nor an escape, and need no parser.
        if condition.may_be_in(ended, layout) and condition.fits_bytes(ended, columns):
            found.append((at, at + len(ended)))
    return found
