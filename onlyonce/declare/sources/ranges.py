"""The sources that are read in ranges: files that grow, and a reader of the user's own.

Pure data, checked when it is made.

A file or part need not be complete when it is found. Before a run reads, it stores how far it will read: [begin, end)
of each file or part. A replay reads the same ranges.
"""

from __future__ import annotations

import re
from dataclasses import field
from datetime import datetime
from typing import Any, Literal

from onlyonce.declare.declaration import check_one_of, declaration
from onlyonce.declare.sources.starts import EARLIEST, check_start
from onlyonce.model import record_size
from onlyonce.model.errors import Refused
from onlyonce.model.storage.folders import check_inbox
from onlyonce.model.storage.location import is_url

MEGABYTE = 1 << 20
PARTS_A_BATCH = 1000


@declaration
class Growing:
    """A folder of files that are appended to, as logs are, a record a line.

    Only whole lines (csv: whole records) are read; the rest waits.

    A file is known by its inode, its birth and its first line, whatever it is named. So rotate by renaming, in the
    folder: what was not read of the renamed file is read under its new name. A file that is cut short or rewritten in
    place below what was read is `invalid` as a file, and nothing more of it is read. Names that end in .gz, .bz2 or
    .zst are left alone, unless `packed`.

    inbox               the folder; by default <home>/inbox/<pipeline>. Names that begin with a dot are left alone.
                        Files that a rotation moves into an object store are read there by Files, as a second source
                        (docs/how-to/object-store.md)
    max_files_a_batch   from how many files one batch reads
    max_bytes_a_batch   how many bytes one batch reads, up to the end of a record
    format              'json': an object on each line. 'csv': the declared columns in order, as in Files
    packed              also read packed files: each as a whole, as a file of its own, complete when it appears. A
                        rotation that packs what was read would be read again
    start               'earliest', 'latest', or a time with its zone: of a file that was there at the first run (and
                        was last changed before that time) only what is appended later is read. Decided once, by the
                        first run
    max_record_bytes    a larger record is `invalid`, with its place, its size and how it begins. csv: an open quote is
                        closed within it
    links               whether a symbolic link is followed. Whoever may write to the inbox can then have any file read
                        that the driver's user may read. Else a link is `invalid` as a file, as are pipes, sockets and
                        device files
    """

    inbox: str | None = None
    max_files_a_batch: int = PARTS_A_BATCH
    max_bytes_a_batch: int = 256 * MEGABYTE
    format: Literal["json", "csv"] = "json"
    packed: bool = False
    start: Literal["earliest", "latest"] | datetime = EARLIEST
    max_record_bytes: int = record_size.DEFAULT
    links: bool = False

    def __post_init__(self) -> None:
        check_one_of("Growing", "format", self.format, ("json", "csv"))
        check_start("Growing", self.start)
        _refuse_store(self.inbox)
        check_inbox("Growing", self.inbox)
        _at_least_one(self, "max_files_a_batch")
        _at_least_one(self, "max_bytes_a_batch")
        record_size.check_record_size("Growing", self.max_record_bytes)

    @property
    def header(self) -> bool:
        """There is none: a rotated file would have one in its middle."""
        return False

    def layout(self) -> str:
        """How a file is cut into records and columns, in text."""
        return f"growing {self.format}"

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Refuse declared columns (in DDL) that the format can't hold. Any of them may be the record id."""
        nested = [column.strip() for column in columns if "<" in column]
        if nested and self.format == "csv":
            raise Refused(f"pipeline {pipeline}: CSV has no nested columns: {nested[0]}", hint="declare it as a string")


@declaration
class Custom:
    """A source of your own: a Python class that numbers its records (docs/how-to/own-source.md has its contract on one
    page).

    reader                  'module:Class'; made with `options`, it has ends() and read(part, start, end)
    needs_dedup             whether the same record may come under two numbers. If so the pipeline must name record_id
                            columns; else its record_id may be (): then a record is its part and number
    options                 what the class is made with. Not a place for passwords: name an environment variable
    max_records_a_batch     how many records one batch takes
    start                   'earliest': number 0 of each part. 'latest': the ends at the first run. Decided once, by
                            that run
    max_record_bytes        a larger record is `invalid`, with its place, its size and how it begins
    """

    reader: str
    needs_dedup: bool
    options: dict[str, Any] = field(default_factory=dict)
    max_records_a_batch: int = 1_000_000
    start: Literal["earliest", "latest"] = EARLIEST
    max_record_bytes: int = record_size.DEFAULT

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.]+:\w+", self.reader):
            raise Refused(f"Custom: reader {self.reader!r} is not of the form 'module:Class'")
        if not isinstance(self.needs_dedup, bool):
            raise Refused(f"Custom: needs_dedup={self.needs_dedup!r}", hint="True or False")
        check_start("Custom", self.start, times=False)
        _at_least_one(self, "max_records_a_batch")
        record_size.check_record_size("Custom", self.max_record_bytes)

    @property
    def inbox(self) -> None:
        """It has no folder."""
        return

    @property
    def links(self) -> Literal[False]:
        """Nor links."""
        return False

    @property
    def max_files_a_batch(self) -> int:
        """How many parts one batch reads from."""
        return PARTS_A_BATCH

    @property
    def format(self) -> Literal["columns"]:
        """What it gives is columns already."""
        return "columns"

    @property
    def header(self) -> bool:
        """It has none."""
        return False

    def layout(self) -> str:
        """Where its records come from, in text."""
        return f"columns of {self.reader}"

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Refuse a source that needs dedup in a pipeline that names no ids."""
        if self.needs_dedup and not record_id:
            raise Refused(
                f"pipeline {pipeline}: its source {self.reader} needs dedup, but record_id is ()",
                data="a record that comes under two numbers would be kept twice",
                hint="name the columns that identify a record; or, if none can come twice, say needs_dedup=False",
            )


def _refuse_store(inbox: str | None) -> None:
    if inbox is not None and is_url(inbox):
        raise Refused(
            f"Growing: inbox {inbox!r} is a URL: no object is appended to, and nothing tells a file that was moved "
            "there from a copy of it",
            data="nothing was read or written",
            hint="read rotated files there by Files(inbox=…), a second source beside Growing with "
            "id_space='shared': a record that comes by both is one (docs/how-to/object-store.md)",
        )


def _at_least_one(source: object, option: str) -> None:
    value = getattr(source, option)
    if value < 1:
        raise Refused(f"{type(source).__name__}: {option} is {value}", hint="at least 1; leave it out")
