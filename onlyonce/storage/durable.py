"""Flushes to the disk what was written: a file, or the names in a folder. Who calls it: `onlyonce.sources.land`,
`onlyonce.sinks.files.local_store`, `onlyonce.storage.rewriting`.
"""

from __future__ import annotations

import os
from pathlib import Path

from onlyonce.model.storage.location import Location


def sync(path: Location) -> None:
    """It is there after a power cut too, as an object is without more. Raises OSError of the disk."""
    if not isinstance(path, Path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
