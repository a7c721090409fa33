"""The identities of growing files, moved inboxes and records, without a JVM.

A growing file is identified by its inode, the inode's time of birth, and its first line (for a compressed file its
first bytes), whatever its name. A file system gives the inode of a deleted file to the next new file, and logs with a
header share their first line. So only the birth distinguishes the new log from the deleted one. If a file system
records no birth (statx returns none), only inode and first line remain. A copy is another file.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from onlyonce import settings
from onlyonce.api import ddl
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import DeltaSource, Growing, Kafka, Pipeline
from onlyonce.core import conversions, line_values, stored_names
from onlyonce.core.conversions import Cell, Convert, Unfit
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.sources import file_bytes
from onlyonce.tables import stores

HEAD = 1 << 10
"""How many bytes of a first line count."""


STATX_BTIME, AT_EMPTY_PATH, BTIME_AT, SIZE = 0x800, 0x1000, 80, 256
"""Constants of Linux's statx, which Python's os module lacks."""


class Inode(NamedTuple):
    """An inode and its birth in nanoseconds; 0 if the file system records none."""

    number: int
    born: int

    def holds(self, file: int) -> bool:
        """Return whether an open file is this inode, and not a later file in its place."""
        born = _born(file)
        return os.fstat(file).st_ino == self.number and (not born or not self.born or born == self.born)


def identity(path: Path) -> str | None:
    """Return the identity of a file; None while its first line is incomplete, or if it can't be read."""
    with suppress(OSError), opened(str(path)) as file:
        return of_open(file, str(path))
    return None


def of_open(file: int, path: str) -> str | None:
    """Return the identity of an open file."""
    head = os.pread(file, HEAD, 0)
    cut = len(head) if file_bytes.compression_of(path) else head.find(b"\n") + 1
    if not cut and len(head) < HEAD:
        return None
    born = _born(file)
    return f"{os.fstat(file).st_ino}-{xxhash.xxh64_hexdigest(head[: cut or HEAD])}" + (f"-{born}" if born else "")


def inode(who: str) -> Inode:
    """Return the inode of a file with that identity."""
    number, _, *born = who.split("-")
    return Inode(int(number), int(*born))


def first_line(who: str) -> str:
    """Return the hash of the first line in an identity."""
    return who.split("-")[1]


def _born(file: int) -> int:
    found, statx = ctypes.create_string_buffer(SIZE), _statx()
    if statx is None or statx(file, b"", AT_EMPTY_PATH, STATX_BTIME, found) != 0:
        return 0
    (known,) = struct.unpack_from("I", found)
    seconds, nanoseconds = struct.unpack_from("qI", found, BTIME_AT)
    return int(seconds * 1_000_000_000 + nanoseconds) if known & STATX_BTIME else 0


@lru_cache(maxsize=1)
def _statx() -> Any:
    return getattr(ctypes.CDLL(None), "statx", None)


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Yield a file's descriptor: reads through it are of the same file, even if the file is renamed."""
    file = file_bytes.opened_file(path)
    try:
        yield file
    finally:
        os.close(file)


# Inboxes that were moved.
#
# A file is identified by the path that it had when its inbox was first read, wherever the folder is now. The manifest
# keeps these first paths. A file next to the manifest has the current place of each moved folder. Only a person writes
# it, by `onlyonce inbox`. A run that finds its inbox at another place refuses to start until that is done, and never
# reads old files as new input.


Moved = Mapping[str, str]
"""A folder as the manifest names it → where it is now."""


def moved_inboxes_of(pipeline: str) -> Moved:
    """Return which folders of a pipeline were moved, and where to."""
    at = _file(pipeline)
    try:
        told: dict[str, str] = json.loads(stores.of(at).read(at))
    except FileNotFoundError:
        return {}
    return told


def tell_moved(pipeline: str, named: str, folder: str) -> None:
    """Store that the folder which the manifest calls `named` is now at `folder`."""
    at = _file(pipeline)
    stores.of(at).put(at, json.dumps({**moved_inboxes_of(pipeline), named: folder}, indent=1, sort_keys=True).encode())


def place_in_inbox(path: str, moved: Moved) -> str:
    """Return where a registered file is now; the longest moved folder above it decides."""
    above = max((folder for folder in moved if path.startswith(f"{folder}/")), key=len, default=None)
    return path if above is None else moved[above] + path.removeprefix(above)


def named_inbox(pipeline: str, folder: str, roots: Collection[str], moved: Moved) -> str:
    """Return the manifest's name for an inbox; `roots` are the folders of its files, the last one last.

    Raise Refused if only a person knows whether the inbox was moved."""
    for name, there in moved.items():
        if there == folder:
            return name
    if not roots or (folder in roots and folder not in moved):
        return folder
    raise Refused(
        f"the inbox of {pipeline} was {last_inbox(roots, moved)}, and is {folder} now",
        data="nothing was read or written; if it were taken for another inbox, each of its files would be read again",
        hint=f"if its files were moved or copied: onlyonce inbox {pipeline} --moved; if it is another folder, all "
        f"of which is new: onlyonce inbox {pipeline} --another (of several sources with --source NAME)",
    )


def last_inbox(roots: Collection[str], moved: Moved) -> str:
    """Return where the inbox was when it was last read."""
    root = list(roots)[-1]
    return moved.get(root, root)


def _file(pipeline: str) -> Location:
    return settings.data_location(pipeline) / stored_names.INBOXES_FILE


# A record's id, as receive computes it (`values.parse`, `values.fast_json`): two chained XXH64 hashes of the id columns
# as strings, or of the record's place.
#
# `onlyonce/core/line_values.py` writes each value as a string. Values that are not an id of the pipeline raise Refused.


SEED = 42
"""Spark's own seed, for the first column; the hash of a column is the seed of the next one."""
HEX = re.compile(r"[0-9a-fA-F]{32}")
LOW = b"low"


@dataclass(frozen=True)
class RecordId:
    """The two halves of an id as stored in `events`: signed 64-bit numbers."""

    high: int
    low: int

    def __str__(self) -> str:
        return f"{self.high % 2**64:016x}{self.low % 2**64:016x}"


@dataclass(frozen=True)
class Asked:
    """The ids that a person's request may mean, and the values by column if they were given."""

    ids: list[RecordId]
    values: dict[str, str]


def asked(pipeline: Pipeline, given: Sequence[str]) -> Asked:
    """Return the ids that a person's words may mean. Raise Refused.

    The words are the values of the id columns in order, one JSON object or list of them, or the id in hexadecimal. By
    position they are the file (its path, or its name in the inbox) and the byte at which the record begins. For a topic
    they are the partition and the offset, for a table version/file and the row. 32 hexadecimal digits may also be a
    value of the user's: then both ids are returned.
    """
    if pipeline.sources:
        return _of_each_source(pipeline, given)
    if pipeline.by_position and not (len(given) == 1 and HEX.fullmatch(given[0])):
        return _places(pipeline, given)
    if len(given) != 1 or not HEX.fullmatch(given[0]):
        values = _by_column(pipeline, given)
        return Asked([of_values(pipeline, values)], values)
    by_bits = from_hex(given[0])
    if pipeline.by_position:
        return Asked([by_bits], {})
    try:
        values = _by_column(pipeline, given)
        return Asked([by_bits, of_values(pipeline, values)], values)
    except Refused:
        return Asked([by_bits], {})


def _of_each_source(pipeline: Pipeline, given: Sequence[str]) -> Asked:
    """Return the ids that the record would have in each of several sources.

    Values belong to the pipeline's columns.
    """
    views = [pipeline.of_source(name) for name in pipeline.sources]
    if pipeline.by_position or (len(given) == 1 and HEX.fullmatch(given[0])):
        found = [asked(view, given) for view in views]
        return Asked(
            list(dict.fromkeys(one for each in found for one in each.ids)), found[0].values if len(given) == 1 else {}
        )
    values = _by_column(pipeline, given)
    return Asked(of_any_source(pipeline, values), values)


def _salt(pipeline: Pipeline) -> str:
    return pipeline.part.salt if pipeline.part else ""


def from_hex(text: str) -> RecordId:
    """Return the id with these 32 hexadecimal digits."""
    return RecordId(_signed(int(text[:16], 16)), _signed(int(text[16:], 16)))


def of_values(pipeline: Pipeline, values: Mapping[str, str | bytes], salt: str | None = None) -> RecordId:
    """Return the id of a record with these values, as people write them; values of `binary` columns may be bytes.

    `salt`: of one of several sources (`Part`).

    Raise Refused for a value that is not of its column's type.
    """
    kinds = ddl.types(pipeline.schema)
    before = _salt(pipeline) if salt is None else salt
    texts = [before.encode()] if before else []
    texts += [_string(column, kinds[column], values[column]).encode() for column in pipeline.record_id]
    return RecordId(_chained(texts), _chained([LOW, *texts]))


def of_any_source(pipeline: Pipeline, values: Mapping[str, str | bytes]) -> list[RecordId]:
    """Return the ids that such a record may have: one, or one for each source with its own id space.

    Raise Refused.
    """
    views = [pipeline.of_source(name) for name in pipeline.sources] or [pipeline]
    return list(dict.fromkeys(of_values(pipeline, values, _salt(view)) for view in views))


def of_file(path: str) -> int:
    """Return the number that stands for a file in the ids of its records, by position."""
    return _chained([path.encode()])


def of_place(file: int, position: int, salt: str = "") -> RecordId:
    """Return the id of a record by its place in a file (`of_file`). `salt`: of one of several sources (`Part`)."""
    place = [*([salt.encode()] if salt else []), struct.pack("<q", file), struct.pack("<q", position)]
    return RecordId(_chained(place), _chained([LOW, *place]))


def _places(pipeline: Pipeline, given: Sequence[str]) -> Asked:
    if len(given) != 2 or not given[1].lstrip("-").isdecimal():
        raise Refused(
            f"a record of {pipeline.name} is known by its place: a file and a byte in it; of a topic a partition and "
            "an offset; of a table version/file and a row",
            hint="give the path of the file (or its name in the inbox) and the byte at which the line begins, or "
            "the partition and the offset; or the id itself as 32 hexadecimal digits",
        )
    if isinstance(pipeline.source, Kafka):
        # 'topic/partition', or the partition alone.
        places = dict.fromkeys([given[0], f"{pipeline.source.topic}/{given[0]}"])
        return Asked([of_place(of_file(place), int(given[1]), _salt(pipeline)) for place in places], {})
    if isinstance(pipeline.source, DeltaSource):
        return Asked([of_place(of_file(given[0]), int(given[1]), _salt(pipeline))], {})
    folder = api_pipeline.folder(pipeline)
    assert folder is not None
    moved = moved_inboxes_of(pipeline.name)
    paths = [given[0], str(folder / given[0]), *(f"{named}/{Path(given[0]).name}" for named in moved)]
    if isinstance(pipeline.source, Growing):
        # The person gives the name that identifies the file (it may be gone), or the name that it has now.
        opened = [Path(file_bytes.place_of_file(path, links=pipeline.source.links)) for path in paths]
        paths += [who for who in map(identity, opened) if who]
    return Asked([of_place(of_file(path), int(given[1]), _salt(pipeline)) for path in dict.fromkeys(paths)], {})


def _chained(texts: list[bytes]) -> int:
    state = SEED
    for text in texts:
        state = xxhash.xxh64_intdigest(text, seed=state)
    return _signed(state)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _by_column(pipeline: Pipeline, given: Sequence[str]) -> dict[str, str]:
    columns = pipeline.record_id
    values: Sequence[str] = given
    if len(given) == 1 and given[0].lstrip().startswith(("{", "[")):
        found = _json(given[0])
        values = [found[name] for name in columns if name in found] if isinstance(found, dict) else found
    if len(values) != len(columns):
        raise Refused(
            f"a record of {pipeline.name} is known by {len(columns)} value(s) ({', '.join(columns)}), but "
            f"{len(values)} were given",
            hint="give them in that order, or as a JSON object; or the id itself as 32 hexadecimal digits",
        )
    return dict(zip(columns, map(_plain, values), strict=True))


def _json(text: str) -> dict[str, str] | list[str]:
    try:
        # Numbers stay as they are written, as in a line.
        found = json.loads(text, parse_int=str, parse_float=str)
    except ValueError as error:
        raise Refused(f"{text!r} is not JSON: {error}", hint='like {"id": "a-17"}, in quotes for the shell') from error
    assert isinstance(found, dict | list)
    return found


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _string(column: str, kind: str, value: str | bytes) -> str:
    """Return the string of a value that a person wrote, as written in CSV, or of bytes."""
    if isinstance(value, bytes):
        return line_values.octets(value)
    try:
        return line_values.FORMS[line_values.named_id_form(kind)](_convert(kind)(Cell(value), []))
    except Unfit as why:
        because = f": {why}" if str(why) else ""
        raise Refused(
            f"{value!r} is not of type {kind}, which the id column {column} has{because}",
            hint="write it as in CSV: a whole number like 5, a day like 2026-01-31, a time like 2026-01-31T10:00:00Z",
        ) from None


def _convert(kind: str) -> Convert:
    name = line_values.named_id_form(kind)
    if name != "decimal":
        return conversions.of_type(name)
    digits = [int(one) for one in re.findall(r"\d+", kind)]
    return conversions.decimal(digits[0] if digits else 10, digits[1] if len(digits) > 1 else 0)
