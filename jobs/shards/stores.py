"""Where the files of a sharded sink lie, and what is asked of such a place.

A local folder gives final names; in an object store nothing can be renamed as one, so there the log and a manifest for
each pane say what is final.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from jobs import settings
from jobs.model.errors import InvariantBroken
from jobs.model.shards import Winner

PIECE = 1 << 20


class Store(Protocol):
    """One place. It travels to Spark's workers inside closures."""

    def create(self, temporary: str) -> AbstractContextManager[Counted]:
        """A new temporary, which must not be there yet; whole when the block has ended."""

    def settle(self, temporaries: list[str]) -> None:
        """These are there after a power cut too. Asked before the unit that names them commits."""

    def remove(self, temporary: str) -> None:
        """Take a temporary away. No error when it is gone."""

    def publish(self, pane: list[Winner]) -> None:
        """Make all files of a pane final. May be repeated, at the same time too.

        Raises InvariantBroken for a file that is missing, or a final name that other content has.
        """

    def published(self, winners: list[Winner]) -> None:
        """Their final names are there after a power cut too. Asked before the log says that they are final."""

    def size(self, winner: Winner) -> int | None:
        """How many bytes a file that is final has; None when it is not there."""

    def read(self, winner: Winner) -> bytes:
        """The bytes of a file that is final."""

    def temporaries(self) -> Iterator[tuple[str, float]]:
        """(name, seconds since it last grew) of all temporaries that are there."""


class Counted(io.RawIOBase):
    """A binary file that counts and hashes what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file, self._hash, self.bytes = file, hashlib.sha256(), 0

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:
        """All of it, whatever the file below takes at once."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._hash.update(view)
        self.bytes += len(view)
        return len(view)

    def tell(self) -> int:
        """How much was written."""
        return self.bytes

    @property
    def checksum(self) -> str:
        """sha256 of what was written, in hexadecimal."""
        return self._hash.hexdigest()


def store_of(place: str) -> Store:
    """The store of a place as it is declared."""
    if "://" in place:
        from jobs.shards.object_store import ObjectStore

        return ObjectStore(place)
    from jobs.shards.local_store import LocalStore

    return LocalStore(folder_of(place))


def folder_of(place: str) -> Path:
    """The folder of a place that is no URL."""
    return settings.files_dir() / Path(place).expanduser()


def digest(file: BinaryIO) -> tuple[int, str]:
    """(bytes, sha256) of what can be read."""
    found, size = hashlib.sha256(), 0
    while piece := file.read(PIECE):
        found.update(piece)
        size += len(piece)
    return size, found.hexdigest()


def check(winner: Winner, where: object, there: tuple[int, str]) -> None:
    """Stop unless a file is what its unit has recorded. Raises InvariantBroken."""
    if there != (winner.bytes, winner.checksum):
        raise InvariantBroken(
            f"{where} should have {winner.bytes} bytes (sha256 {winner.checksum[:16]}…), but it has {there[0]} "
            f"(sha256 {there[1][:16]}…)",
            data=f"pane {winner.pane} of {winner.instance}, output {winner.output}, is not final; nothing was overwritten",
            hint="somebody else has written there. Move that file away if it is not yours, then: onlyonce finalize",
        )


def missing(winner: Winner, where: object) -> InvariantBroken:
    """The error for a file that the log vouches for and that is nowhere."""
    return InvariantBroken(
        f"{where} is not there, and neither is {winner.name}: {winner.rows} rows of {winner.instance}, output {winner.output}",
        data="the log says that they were written; the pane is not final",
        hint="put the file back from a backup of the same moment; or, for a window: onlyonce backfill makes it anew",
    )
