"""A PostgreSQL table as a lookup.

It keeps no earlier versions, so the platform does: each copy with other content is a version (`copies`).

Who calls it: `onlyonce.lookups.tables`. Errors: Refused for a table that can't be read, and for a copy that is gone;
Retryable while its database is away. Not promised: that a copy is newer than `Lookup.refresh` says.
"""

from __future__ import annotations

import time
from datetime import timedelta
from threading import Lock

from pyspark.sql import DataFrame, SparkSession

from onlyonce.declare.outputs.lookup import Lookup
from onlyonce.lookups import copies, postgres_copy
from onlyonce.lookups.seen import Version, gone
from onlyonce.model import stored_names
from onlyonce.model.storage.location import Location
from onlyonce.session import data_files

REFRESH = timedelta(minutes=1)

_taken: dict[tuple[str, ...], tuple[float, Version]] = {}
_turn = Lock()


def folder(lookup: Lookup) -> Location:
    """Where the copies of the table are."""
    return copies.folder(lookup.table.target(""))


def file(lookup: Lookup, version: Version) -> Location:
    """The copy that is a version."""
    return copies.at(folder(lookup), (version[stored_names.LOOKUP_VERSION], version[stored_names.LOOKUP_TABLE]))


def newest(lookup: Lookup) -> Version:
    """The version that the table has now; or that it had when this process took a copy, if that is no longer ago than
    `refresh`."""
    key = (postgres_copy.url_of(lookup), str(folder(lookup)), *lookup.keys)
    refresh = REFRESH if lookup.refresh is None else lookup.refresh
    with _turn:  # outputs that run beside each other take one copy
        at, version = _taken.get(key, (0.0, None))
        if version is None or time.monotonic() - at >= refresh.total_seconds() or not _there(lookup, version):
            at, version = time.monotonic(), _take(lookup)
            _taken[key] = at, version
        return version


def frame(spark: SparkSession, lookup: Lookup, version: Version) -> DataFrame:
    """The table as of a version. Nothing is read yet."""
    return data_files.reader(spark).parquet(str(file(lookup, version)))


def refuse_gone(lookup: Lookup, version: Version) -> None:
    """Raise Refused where a version that the log names is not there any more."""
    if not _there(lookup, version):
        raise gone(lookup, version, f"its copy is not at {file(lookup, version)}")


def _take(lookup: Lookup) -> Version:
    copy = postgres_copy.read(lookup)
    number, content = copies.keep(folder(lookup), copy.content, copy.parquet.to_pybytes())
    return {stored_names.LOOKUP_VERSION: number, stored_names.LOOKUP_TABLE: content}


def _there(lookup: Lookup, version: Version) -> bool:
    return (
        copies.look(folder(lookup), (version[stored_names.LOOKUP_VERSION], version[stored_names.LOOKUP_TABLE]))
        is not None
    )
