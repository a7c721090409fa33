"""An object as a file that is written from its beginning to its end, as Arrow wants one.

Up to ten megabytes are one PUT when it is closed; more are parts of that size. Nothing is there before it is closed.
Who calls it: `arrow`. Errors: those of the interface of stores.
"""

from __future__ import annotations

from io import RawIOBase
from typing import Any

import obstore

from onlyonce.model.storage.location import Url
from onlyonce.storage.stores.objects import Objects, told


class Sink(RawIOBase):
    """The file. One that is never closed leaves no object."""

    def __init__(self, at: Url) -> None:
        self._at = at
        self._file: Any = obstore.open_writer(Objects().bucket(at), at.key)

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, content: Any) -> int:
        """See RawIOBase."""
        with told(self._at):
            self._file.write(content)
        return len(content)

    def close(self) -> None:
        """The object is there after it."""
        if not self.closed:
            with told(self._at):
                self._file.close()
        super().close()

    def __del__(self) -> None:
        """A file that was left is not closed: half of it is not an object."""
