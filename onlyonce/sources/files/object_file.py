"""An object as a file to be read: each read is a GET of a range, of the content that was listed and of no other.

Who calls it: the reader of lines, on executors, and the listing, on the driver. Errors: Changed where the object was
replaced; FileNotFoundError; those of the store. In memory is one piece.
"""

from __future__ import annotations

import io
from typing import Any

from onlyonce.model.storage.location import Url, location
from onlyonce.storage import stores

PIECE = 1 << 23
"""How much a request asks for at least, as far as there is so much."""


class ObjectFile(io.RawIOBase):
    """The content of an object with this size and ETag, from `name`, its URL. It has no descriptor."""

    def __init__(self, name: str, size: int, etag: str) -> None:
        self.name, self.size, self.etag = name, size, etag
        at = location(name)
        assert isinstance(at, Url)
        self._at, self._store = at, stores.of(at)
        self._place = self._begin = 0
        self._piece = b""

    def again(self) -> ObjectFile:
        """The same from its begin, as a file of its own."""
        return ObjectFile(self.name, self.size, self.etag)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._place

    def seek(self, at: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; nothing is asked for."""
        self._place = at + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        return self._place

    def readinto(self, into: Any) -> int:
        """What comes next, up to the size of `into`."""
        data = self._next(min(len(into), self.size - self._place))
        into[: len(data)] = data
        self._place += len(data)
        return len(data)

    def _next(self, wanted: int) -> bytes:
        if wanted <= 0:
            return b""
        skipped = self._place - self._begin
        if not 0 <= skipped <= len(self._piece) - wanted:
            end = min(self._place + max(wanted, PIECE), self.size)
            self._piece, self._begin, skipped = (
                self._store.read_range(self._at, self._place, end, self.etag),
                self._place,
                0,
            )
        return self._piece[skipped : skipped + wanted]
