"""Find the lines of input that an erasure selects, in files and objects, and blank the lines in files.

A condition names columns of the pipeline. If a pipeline has several sources, each has its own columns. A pipeline's
column that renames a source's column, or is a constant, can be compared with a line. A computed column can't, so lines
of that source are not searched, and the receipt names the source and the column.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple
from uuid import uuid4

from onlyonce import settings
from onlyonce.api import ddl
from onlyonce.api import load as declarations
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import Pipeline
from onlyonce.core import conversions, encodings, line_values
from onlyonce.core.encodings import UTF_8
from onlyonce.core.erasure import BYTE_ORDER_MARK, COMPARED, NOT_SEARCHED, Condition, Left, Mentions
from onlyonce.core.errors import Retryable
from onlyonce.core.locations import Location, Url
from onlyonce.failpoints import passing
from onlyonce.sources import discovery, file_bytes, folders, listing
from onlyonce.sources.file_bytes import NoFile
from onlyonce.tables import stores
from onlyonce.tables.stores import Entry


class Asked(NamedTuple):
    """A source as if it were the pipeline's only one, and the condition on its own columns.

    The condition is None if no line can fit. `computed` names a column that no line shows.
    """

    source: Pipeline
    condition: Condition | None
    computed: str | None = None


def source_conditions(pipeline: Pipeline, condition: Condition) -> Iterator[Asked]:
    """Yield each source with its condition."""
    for source in api_pipeline.each_input(pipeline):
        condition = replace(
            condition, aliases=source.aliases, delimiter=source.source.delimiter, null=source.source.null
        )
        if source.part is None or not source.part.columns:
            yield Asked(source, condition)
        else:
            yield _asked(source, {column: made.strip() for column, _, made in source.part.columns}, condition)


def source_mentions(pipeline: Pipeline, condition: Condition) -> Mentions:
    """Return the test for stored bytes of any kind, as opposed to `Condition`, which compares parsed lines.

    It knows the names that the sources have for the condition's columns, and their encodings.
    """
    names = {name: {name} for name in condition.values}
    codes = {source.source.encoding for source in api_pipeline.each_input(pipeline)} - {UTF_8}
    for source in api_pipeline.each_input(pipeline):
        made = {column: made.strip().strip("`") for column, _, made in source.part.columns} if source.part else {}
        for name, known in names.items():
            own = made.get(name, name)
            known |= {own, source.aliases.get(own, own)}
    return Mentions(condition, {name: tuple(known) for name, known in names.items()}, tuple(sorted(codes)))


def _asked(source: Pipeline, made: dict[str, str], condition: Condition) -> Asked:
    own = ddl.types(source.schema)
    values, kinds = {}, {}
    for name, value in condition.values.items():
        column = made[name].strip("`")
        if column in own and own[column] in COMPARED:
            values[column], kinds[column] = value, own[column]
        elif made[name].upper() == "NULL":
            return Asked(source, None)
        elif (constant := _constant(made[name])) is None:
            return Asked(source, None, name)
        elif constant != value:
            return Asked(source, None)
    return Asked(source, replace(condition, values=values, kinds=kinds))


def _constant(made: str) -> str | None:
    """Return the value of a string or whole number in Spark's SQL; None for any other expression."""
    if len(made) > 1 and made[0] == made[-1] == "'" and not set("'\\") & set(made[1:-1]):
        return made[1:-1]
    return made if made.lstrip("-").isdecimal() else None


# Blanking: each record stays as long as it was, so files keep their size, their time and the offsets of all other
# records.
#
# So the manifest still knows the file, nothing is read again, and a record that is identified by its position keeps its
# id. A blanked record is `invalid` to a later bounded run over all input. In CSV the quotes stay and line feeds within
# become spaces: without its quotes, a later quote could close a stray quote of another record. A file is written next
# to itself under a hidden name and then renamed, so a kill leaves either the old or the new file.
#
# The places are those of an earlier reading. They still hold, since nothing may change an input file: the manifest
# refuses a changed one. If the file's size or time differs all the same, nothing of it is blanked.
#
# Each byte becomes a space or stays a quote. That is right in each encoding that a source can declare (`encodings`): in
# all of them the bytes of these two characters are those of ASCII.
#
# Files that are compressed, that grow, or have columns (Parquet, Avro) stay, and the search at the end names them.


MARK = "forget"
SPACES = b" " * 256
SPACES_AND_QUOTES = SPACES[:34] + b'"' + SPACES[35:]
"""The replacement of each byte."""


State = tuple[int, int]


@dataclass(frozen=True)
class Lines:
    """A file with records to erase: the bytes [first, until) of each.

    state        the size and the time of change of the file when the places were found (`state_of`)
    with_quotes  whether their quotes stay
    ids          the values of the record id columns of each line that is a record; None if the lines don't have these
                 columns
    """

    path: Path
    places: list[tuple[int, int]]
    state: State
    source: str = ""
    with_quotes: bool = False
    ids: frozenset[tuple[str, ...]] | None = None


def found_in_files(pipeline: Pipeline, condition: Condition) -> list[Lines]:
    """Return the files of a pipeline, in its inbox and in the archive, that have lines to erase.

    For files in a store see `found_in_objects`.
    """
    found = []
    for source, asked, _ in source_conditions(pipeline, condition):
        if asked is None or not plain_input(source):
            continue
        for path in _files(source):
            if not _compressed(path):
                with suppress(FileNotFoundError, NoFile), os.fdopen(file_bytes.opened_file(str(path)), "rb") as file:
                    state = state_of(file)
                    meant = _meant(file, asked, source)
                    name = source.part.name if source.part else ""
                    ids = _ids(file, meant, source)
                    found.append(Lines(path, meant, state, name, source.source.format == "csv", ids))
    return [one for one in found if one.places]


def state_of(file: IO[bytes]) -> State:
    """Return the size of an open file and when it was changed, in nanoseconds."""
    there = os.fstat(file.fileno())
    return there.st_size, there.st_mtime_ns


def _ids(file: IO[bytes], places: list[tuple[int, int]], source: Pipeline) -> frozenset[tuple[str, ...]] | None:
    """Return the values of the record id columns of the lines, as they are written; None if the lines don't have these
    columns.

    A line that does not have them all counts as a record of its own, by its position.
    """
    made = {column: made.strip().strip("`") for column, _, made in source.part.columns} if source.part else {}
    own = [made.get(column, column) for column in source.record_id]
    if not own or not set(own) <= set(source.columns()):
        return None
    found, columns = set(), csv_columns(source)
    for first, until in places:
        file.seek(first)
        values: list[Any] = [None]
        with suppress(line_values.Invalid, UnicodeDecodeError):
            line = _in_utf8(file.read(until - first), source.source.encoding).decode().removeprefix(BYTE_ORDER_MARK)
            if columns is None:
                record: Mapping[str, Any] = line_values.json_object(line)
                values = [record.get(source.aliases.get(name, name)) for name in own]
            else:
                cells = line_values.csv_cells(line, source.source.delimiter, source.source.null)
                record = dict(zip(columns, cells, strict=False))
                values = [record.get(name) for name in own]
        found.add((str(first),) if None in values else tuple(map(conversions.text, values)))
    return frozenset(found)


def csv_columns(source: Pipeline) -> list[str] | None:
    """Return the columns of records of CSV; None for JSON, whose lines name them."""
    return source.columns() if source.source.format == "csv" else None


def blank_files(lines: Lines) -> None:
    """Overwrite these records with spaces."""
    for left in lines.path.parent.glob(f".{lines.path.name}.{MARK}-*"):
        left.unlink(missing_ok=True)  # left by a killed attempt
    try:
        with os.fdopen(file_bytes.opened_file(str(lines.path)), "rb") as file:
            state, before, content = state_of(file), os.fstat(file.fileno()), bytearray(file.read())
    except (FileNotFoundError, NoFile) as error:
        raise Retryable(
            f"the input file {lines.path} was there a moment ago, and is not a file any more: {error.strerror}",
            data="what was erased stays erased; nothing was read from the present files",
            hint="run the same command again: it continues with the present files",
        ) from error
    if state != lines.state:
        raise Retryable(
            f"the input file {lines.path} has changed since its records were found",
            data="what was erased stays erased; nothing of this file was changed",
            hint="run the same command again: it searches the present file",
        )
    for first, until in lines.places:
        content[first:until] = content[first:until].translate(SPACES_AND_QUOTES if lines.with_quotes else SPACES)
    new = lines.path.with_name(f".{lines.path.name}.{MARK}-{uuid4().hex}")
    # With mode 600 from its first byte on, since a kill may leave it.
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        if os.geteuid() == 0:  # otherwise the file is this user's own
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    stores.sync(new)
    passing("forget-before-file")
    new.replace(lines.path)
    stores.sync(lines.path.parent)


def left_in_files(pipeline: Pipeline, condition: Condition, files: list[Path] | None) -> Iterator[Left]:
    """Yield the input that the search at the end does not read.

    The search reads all files and objects of an inbox and of the archive.
    """
    for source, _, computed in source_conditions(pipeline, condition):
        if computed and source.part:
            why = f"{NOT_SEARCHED} by {computed}, which is computed from other columns"
            yield Left(f"input of the source {source.part.name}", why, "delete the lines of these records")
        if source.source.is_table:
            yield Left(
                f"rows of {source.source.reads}",
                NOT_SEARCHED,
                "delete them there, then VACUUM: its change data and old versions have them until the VACUUM",
            )
        if source.source.is_own:
            yield Left("what the reader of the source reads from", NOT_SEARCHED, "delete them there")
    # Lines of files were read, but not all records of the pipeline are such lines.
    in_files = (plain_input(one) and not one.source.in_store for one in api_pipeline.each_input(pipeline))
    if any(in_files) and not in_folders(pipeline):
        yield Left(
            "lines of the sources of files",
            "not compared with the number of records, since other sources have records without a line in a folder",
            "look in files that were deleted, moved or compressed",
        )
    for name in inputs_sharing(pipeline, files):
        yield Left(f"data of the pipeline {name}, which reads the same inbox", NOT_SEARCHED, f"onlyonce forget {name}")


def inputs_sharing(pipeline: Pipeline, files: list[Path] | None) -> list[str]:
    """Return the other pipelines that read the same inbox, of those that the files declare (--pipelines)."""
    others = declarations.load(files).values()
    return sorted(other.name for other in others if other.name != pipeline.name and folders.shared(pipeline, other))


def plain_input(pipeline: Pipeline) -> bool:
    """Return whether the pipeline's source has whole files or objects of lines, JSON or CSV."""
    source = pipeline.source
    return source.has_inbox and not source.in_ranges and source.format in ("json", "csv")


def in_folders(pipeline: Pipeline) -> bool:
    """Return whether all records of the pipeline are lines of files in a folder, so each record has a line."""
    return all(plain_input(source) and not source.source.in_store for source in api_pipeline.each_input(pipeline))


def _compressed(path: Path) -> bool:
    return file_bytes.compression_of(path.name) is not None or path.name.lower().endswith(file_bytes.LEFT_ALONE)


def inbox_of(pipeline: Pipeline) -> Location:
    """Return the folder or prefix of a pipeline's input."""
    found = api_pipeline.folder(pipeline)
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
    yield from (*_there(pipeline), *archived)


def _there(pipeline: Pipeline) -> list[Path]:
    inbox = inbox_of(pipeline)
    return folders.files(inbox, recursive=folders.is_recursive(pipeline)) if isinstance(inbox, Path) else []


def _in_utf8(line: bytes, encoding: str) -> bytes:
    """Return a line of a file as tasks read it."""
    return line if encoding == UTF_8 else encodings.decode(line, encoding).encode()


def _meant(content: IO[bytes], condition: Condition, source: Pipeline) -> list[tuple[int, int]]:
    return input_places(
        content, condition, csv_columns(source), discovery.quoted_within(source), source.source.encoding
    )


def input_places(
    content: IO[bytes],
    condition: Condition,
    columns: list[str] | None,
    quoted_within: int | None,
    encoding: str = UTF_8,
) -> list[tuple[int, int]]:
    """Return the bytes [first, until) of each record that fits the condition."""
    layout = None if columns is None else "csv"
    found = []
    for at, record in file_bytes.count_records(content, quoted_within, condition.delimiter):
        ended = record.removesuffix(b"\n").removesuffix(b"\r")
        line = _in_utf8(ended, encoding)
        # Most lines have neither the value nor an escape, and need no parser.
        if condition.may_be_in(line, layout) and condition.fits_bytes(line, columns):
            found.append((at, at + len(ended)))
    return found


# Objects of an inbox in a store are never rewritten, so they are only searched, compressed ones too.
#
# They stay: a rewritten object has another ETag, so the manifest would refuse it as replaced. The search at the end
# names them, and a person deletes them. An object that is replaced meanwhile raises Changed.


def found_in_objects(pipeline: Pipeline, condition: Condition) -> list[Url]:
    """Return the objects with lines to erase, and damaged objects, by name."""
    each = source_conditions(pipeline, condition)
    return sorted(
        one
        for source, asked, _ in each
        if asked and source.source.in_store and plain_input(source)
        for one in _found(source, asked)
    )


def _found(source: Pipeline, condition: Condition) -> list[Url]:
    inbox, held = api_pipeline.folder(source), list[Url]()
    assert isinstance(inbox, Url)
    with ThreadPoolExecutor(listing.AT_ONCE) as pool:
        for page in listing.object_pages(inbox, folders.of(source)):
            holds = pool.map(lambda one: _holds(one, condition, source), page)
            held += [one.at for one, is_one in zip(page, holds, strict=True) if is_one and isinstance(one.at, Url)]
    return held


def _holds(entry: Entry, condition: Condition, source: Pipeline) -> bool:
    name = str(entry.at)
    try:
        with listing.opened(listing.FileAt(name, entry.bytes, entry.etag), file_bytes.compression_of(name)) as content:
            lines: Any = content
            return bool(_meant(lines, condition, source))
    except FileNotFoundError:
        return False
    except Exception as error:
        if file_bytes.compression_of(name) and file_bytes.is_damage(error):
            return True
        raise
