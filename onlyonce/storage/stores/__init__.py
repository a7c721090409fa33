"""What is at a location, and how it gets there: one interface for a local disk and for object stores.

| module   | holds                                                                               |
|----------|-------------------------------------------------------------------------------------|
| local    | a disk: a file gets its name by a rename, or by a link where it must be new         |
| objects  | S3, GCS and ADLS by obstore                                                         |
| arrow    | Arrow's own file system for a location, for rows                                    |
| sink     | an object that Arrow writes                                                         |
| options  | what delta-rs, obstore and Spark are told of a store; never a secret                |
| claiming | a prefix is one platform's, and the store has a conditional PUT: seen at the first start |

The object side is `obstore`, the crate under delta-rs: so files and commits are written by one client, with one set of
variables, and it has what everything here rests on, a PUT that is carried out only if the key is not there.
`pyarrow.fs`, which was there before, has no conditional PUT, no ETag, and no conditional range; it stays where Arrow
itself reads rows.

Who calls it: whatever reads or writes data of the platform. Errors: FileNotFoundError where a read finds nothing;
Changed; Refused for a store that does not let us in; Retryable for one that is away. Not promised: the order of two
writers of `put`; use `put_new` where it matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onlyonce.model.errors import Retryable
from onlyonce.model.storage.location import Location


class Changed(Retryable):
    """What was to be read is no longer what was listed: its ETag is another."""


@dataclass(frozen=True)
class Entry:
    """One file or object.

    `etag` is opaque: another one means other content. `modified`: seconds since 1970, by the store's clock.
    """

    at: Location
    bytes: int
    etag: str
    modified: float


class Store(Protocol):
    """One place for files. Whole files only: what can be seen is complete."""

    def entries(self, below: Location) -> Iterator[Entry]:
        """All that is below, at any depth, page by page; nothing where there is nothing. In no order."""

    def unfinished(self, below: Location) -> Iterator[Location]:
        """What killed writers have left below, which no reader sees; and folders without anything in them."""

    def names(self, at: Location) -> Iterator[str]:
        """The names directly below, of files and of folders; nothing where there is nothing. In no order."""

    def look(self, at: Location) -> Entry | None:
        """What is there; None for nothing."""

    def read(self, at: Location) -> bytes:
        """All of it. Raises FileNotFoundError."""

    def read_range(self, at: Location, begin: int, end: int, etag: str) -> bytes:
        """The bytes from `begin` up to `end`, of this content.

        Raises Changed if there is another, FileNotFoundError if none.
        """

    def tail(self, at: Location, length: int) -> tuple[Entry, bytes]:
        """What is there, and its last bytes; all of them where there are no more. Raises FileNotFoundError."""

    def put(self, at: Location, content: bytes) -> None:
        """Write it, whatever was there. For good when this returns."""

    def put_new(self, at: Location, content: bytes) -> bool:
        """Write it only if nothing is there; False if something is. Of writers at once one wins.

        An answer that was lost is asked for again: then what is there has these bytes, and it counts as ours. So
        writers that must know which of them won write something of their own.
        """

    def delete(self, at: Location) -> None:
        """Take it away. No error where nothing is."""

    def delete_all(self, below: Location, names: Sequence[str]) -> None:
        """Delete what has these names directly below, in few requests. Where one is not there others may stay."""

    def clear(self, below: Location) -> None:
        """Take away what is there, and all that is below, at any depth, and the folders.

        No error where nothing is. A kill leaves a part of it, in no order.
        """

    def renew(self, at: Location) -> None:
        """Its time of modification is now, and its content what it was.

        No error where nothing is. To an object all of it is written again.
        """


def of(at: Location) -> Store:
    """The store of a location."""
    if isinstance(at, Path):
        from onlyonce.storage.stores.local import LocalFiles

        return LocalFiles()
    from onlyonce.storage.stores.objects import Objects  # only who has data there pays for the import

    return Objects()


def anything(below: Location) -> bool:
    """Whether there is anything at or below a location."""
    return any(True for _ in of(below).entries(below))
