"""A PostgreSQL table as a lookup. It keeps no earlier versions, so the platform does: each copy with other content is a version, a file below
`data/@lookups`, for all pipelines that look the table up. The name has a number, and the hash of the content: what is there already is not stored again.

Who calls it: `onlyonce.lookups.tables`. Errors: Refused for a table that can't be read, and for a copy that is gone; Retryable while its
database is away. Not promised: that a copy is newer than `Lookup.refresh` says.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from threading import Lock
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession

from onlyonce import settings
from onlyonce.commitlog import authorities
from onlyonce.declare.lookup import Lookup
from onlyonce.lookups import postgres_copy
from onlyonce.lookups.seen import Version, gone
from onlyonce.model.location import Location
from onlyonce.storage import stores

FOLDER = "@lookups"
"""Among the folders of pipelines, none of which can have this name; so a backup of these has it too."""
REFRESH = timedelta(minutes=1)
NAME = re.compile(r"(\d+)-([0-9a-f]+)\.parquet")

_taken: dict[tuple[str, ...], tuple[float, Version]] = {}
_turn = Lock()


def folder(lookup: Lookup) -> Location:
    """Where the copies of a table are."""
    return settings.data_location(FOLDER) / quote(lookup.table.target(""), safe="")


def file(lookup: Lookup, version: Version) -> Location:
    """The copy that is a version."""
    return folder(lookup) / f"{version['version']}-{version['table']}.parquet"


def newest(lookup: Lookup) -> Version:
    """The version that the table has now; or that it had when this process took a copy, if that is no longer ago than `refresh`."""
    key = (authorities.url_of(postgres_copy.table_of(lookup).connection), str(folder(lookup)), *lookup.keys)
    refresh = REFRESH if lookup.refresh is None else lookup.refresh
    with _turn:  # outputs that run beside each other take one copy
        at, version = _taken.get(key, (0.0, None))
        if version is None or time.monotonic() - at >= refresh.total_seconds() or not _there(lookup, version):
            began = time.monotonic()
            version = _take(lookup)
            _taken[key] = began, version
        return version


def frame(spark: SparkSession, lookup: Lookup, version: Version) -> DataFrame:
    """The table as of a version. Nothing is read yet."""
    return spark.read.parquet(str(file(lookup, version)))


def refuse_gone(lookup: Lookup, version: Version) -> None:
    """Raise Refused where a version that the log names is not there any more."""
    if not _there(lookup, version):
        raise gone(lookup, version, f"its copy is not at {file(lookup, version)}")


def versions(at: Location) -> Iterator[Version]:
    """The versions that are in a folder of copies, in no order."""
    for name in stores.of(at).names(at):
        if found := NAME.fullmatch(name):
            yield {"version": int(found[1]), "table": found[2]}


def _take(lookup: Lookup) -> Version:
    copy = postgres_copy.read(lookup)
    there = sorted(versions(folder(lookup)), key=lambda one: int(one["version"]))
    for version in there:
        if version["table"] == copy.content:
            return version
    # Two drivers may give one number to two contents: the hash tells them apart.
    version = {"version": int(there[-1]["version"]) + 1 if there else 1, "table": copy.content}
    stores.of(folder(lookup)).put_new(file(lookup, version), copy.parquet.to_pybytes())
    return version


def _there(lookup: Lookup, version: Version) -> bool:
    return stores.of(folder(lookup)).look(file(lookup, version)) is not None
