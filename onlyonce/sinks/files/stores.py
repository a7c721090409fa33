"""Where the files of a sharded sink are, and the interface of such a store.

A local folder gives final names. In an object store several files can't be renamed at once, so there the log and a
manifest for each pane say which files are final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from onlyonce import settings
from onlyonce.model.sinks.shards import Winner
from onlyonce.sinks.files.contents import Counted
from onlyonce.sinks.files.local_store import LocalStore
from onlyonce.sinks.files.object_store import ObjectStore


class Store(Protocol):
    """One place. It travels to Spark's workers inside closures."""

    def create(self, temporary: str) -> AbstractContextManager[Counted]:
        """A new temporary, which must not be there yet; whole when the block has ended, gone after an error."""

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

    def everything(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """(path or URL, how to read it) of each file that is there, final or not."""

    def note(self) -> str | None:
        """Return what the place says of its writer; None if it says nothing."""

    def put_note(self, note: str) -> None:
        """Write what the place says of its writer, if it says nothing.

        If two platforms write at once, one succeeds where a store can tell them apart.
        """

    def temporaries(self) -> Iterator[tuple[str, float]]:
        """(name, seconds since it last grew) of all temporaries that are there."""


def store_of(place: str) -> Store:
    """The store of a place as it is declared."""
    if "://" in place:
        return ObjectStore(place)
    return LocalStore(folder_of(place))


def folder_of(place: str) -> Path:
    """The folder of a place that is no URL."""
    return settings.files_dir() / Path(place).expanduser()
