"""Packed files: which names say that a file is one, and its content as a file.

Each ending stands for one format: gzip, bzip2, Zstandard. A file may be several packed streams, one behind the other.
Who calls it: the listing, the reader of lines, `onlyonce init`. Errors: `is_damage` tells those of a file that is cut
short or damaged from those of a disk. Not promised: that damage is noticed which the format has no checksum for.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import zlib
from collections.abc import Callable
from typing import IO, Any

import pyarrow as pa

from onlyonce.sources.files.object_file import ObjectFile

LEFT_ALONE = (".deflate", ".lz4", ".snappy", ".passthrough")
"""Names that Spark's reader would unpack, and we don't."""


class Zstandard(io.RawIOBase):
    """The content of a Zstandard file.

    To go back means to begin anew: the reader of lines does it once, behind a header.
    """

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._begin()

    def _begin(self) -> None:
        self._packed.seek(0)
        # Arrow closes what it reads, with a stream that is given up.
        of_its_own: Any = self._packed
        of_its_own = (
            of_its_own.again()
            if isinstance(of_its_own, ObjectFile)
            else os.fdopen(os.dup(self._packed.fileno()), "rb", buffering=0)
        )
        self._content, self._at = pa.CompressedInputStream(of_its_own, "zstd"), 0

    def readable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """That of the packed file."""
        return self._packed.fileno()

    def tell(self) -> int:
        """The place in the content."""
        return self._at

    def readinto(self, into: Any) -> int:
        """What comes next, up to the size of `into`."""
        data = self._content.read(len(into))
        into[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, at: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place of the content."""
        assert whence == io.SEEK_SET
        if at < self._at:
            self._begin()
        while self._at < at and self.read(min(at - self._at, 1 << 20)):
            pass
        return self._at


FORMATS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda packed: gzip.GzipFile(fileobj=packed), ".bz2": bz2.BZ2File, ".zst": Zstandard,
}  # fmt: skip


def of(name: str) -> str | None:
    """The ending by which a file is packed; None of one that is not."""
    return next((ending for ending in FORMATS if name.lower().endswith(ending)), None)


def content(packed: IO[bytes], ending: str) -> Any:
    """The content of an open file, as a file to be read: `read`, `readline`, `seek`, `tell`, `fileno`, `close`."""
    return FORMATS[ending](packed)


def is_damage(error: BaseException) -> bool:
    """Whether it says that a file is cut short or damaged. A disk's errors have a number."""
    return isinstance(error, (EOFError, zlib.error)) or (isinstance(error, OSError) and error.errno is None)
