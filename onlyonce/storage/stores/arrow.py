"""A location as Arrow's own file system, where Arrow reads or writes rows: columns are read by range, and nothing passes through Python.

Who calls it: `event_rows`, `event_files`, `own_tables` and others that have Parquet files. Errors: OSError. Not promised: conditions of any kind.
"""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs

from onlyonce.model.location import Location
from onlyonce.storage.stores import options


def folder(at: Location) -> fs.FileSystem:
    """A file system whose root is the location."""
    if isinstance(at, Path):
        return fs.SubTreeFileSystem(str(at.absolute()), fs.LocalFileSystem())
    system, root = file(at)
    return fs.SubTreeFileSystem(root, system)


def file(at: Location) -> tuple[fs.FileSystem, str]:
    """A file system, and how it names the location."""
    if isinstance(at, Path):
        return fs.LocalFileSystem(), str(at.absolute())
    if at.scheme != "s3":
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(str(at))
        return found
    # The standard variables, or the role of the machine, say who we are.
    scheme, _, host = (options.endpoint() or "https://").partition("://")
    system = fs.S3FileSystem(endpoint_override=host or None, scheme=scheme, region=options.region())
    return system, f"{at.root.removeprefix('s3://')}/{at.key}"
