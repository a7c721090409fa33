"""Compares the bytes of a sharded file with what its unit has recorded."""

from __future__ import annotations

import hashlib
import io
from typing import Any, BinaryIO

from onlyonce.model.errors import InvariantBroken
from onlyonce.model.sinks.shards import Winner

PIECE = 1 << 20


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
            data=f"pane {winner.pane} of {winner.instance}, output {winner.output}, is not final; nothing was "
            "overwritten",
            hint="somebody else has written there. Move that file away if it is not yours, then: onlyonce finalize",
        )


def missing(winner: Winner, where: object) -> InvariantBroken:
    """The error for a file that the log vouches for and that is nowhere."""
    return InvariantBroken(
        f"{where} is not there, and neither is {winner.name}: {winner.rows} rows of {winner.instance}, output "
        f"{winner.output}",
        data="the log says that they were written; the pane is not final",
        hint="put the file back from a backup of the same moment; or, for a window: onlyonce backfill makes it anew",
    )
