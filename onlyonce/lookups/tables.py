"""The tables of an output's lookups: their newest versions, whether these can be used, and each as a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.api.declaration import declared_at
from onlyonce.api.joins_and_state import Lookup
from onlyonce.api.pipeline import Output
from onlyonce.core.errors import DatabaseAway, Refused
from onlyonce.engine.session import quoted
from onlyonce.lookups.seen import NOTHING, Seen, Version, Versions

Lookups = Mapping[str, Lookup]


class Kept(Protocol):
    """The versions of a kind of table. A module implements this for each kind."""

    def newest(self, lookup: Lookup) -> Version: ...
    def frame(self, spark: SparkSession, lookup: Lookup, version: Version) -> DataFrame: ...
    def refuse_gone(self, lookup: Lookup, version: Version) -> None: ...


def kept(lookup: Lookup) -> Kept:
    """Return the module for a lookup's table: a Delta table's own log keeps versions, a PostgreSQL table has copies."""
    return cast(Kept, import_module(lookup.table.lookup_module))


def newest(lookups: Lookups, output: Output) -> Versions:
    """Return the version that each table has now. Raise Refused or DatabaseAway, which name the lookup's output."""
    return {name: _newest(lookup, output) for name, lookup in lookups.items()}


def _newest(lookup: Lookup, output: Output) -> Version:
    whose = f"lookup {lookup.name}"
    try:
        return kept(lookup).newest(lookup)
    except Refused as error:
        error.what = error.what.replace(whose, f"output {output.name}: {whose}", 1)
        raise
    except DatabaseAway as error:
        error.what = f"{declared_at(lookup)}output {output.name}: {whose}: {error.what}"
        raise


def as_of(spark: SparkSession, lookups: Lookups, versions: Versions) -> Seen:
    """Return each table as of its version."""
    if not lookups:
        return NOTHING
    frames = {name: kept(lookup).frame(spark, lookup, versions[name]) for name, lookup in lookups.items()}
    for name, lookup in lookups.items():
        check_columns(lookup, frames[name])
    return Seen({name: versions[name] for name in lookups}, frames)


def refuse_gone(lookups: Lookups, versions: Versions, hint: str) -> None:
    """Raise Refused, with this hint, if a table can't be read as of a version that the log names."""
    for name, lookup in lookups.items():
        try:
            kept(lookup).refuse_gone(lookup, versions[name])
        except Refused as error:
            raise Refused(error.what, data=error.data, hint=hint) from error


def check_keys(lookups: Lookups, seen: Seen) -> None:
    """Raise Refused for a table in which two rows have the same keys. Reads the key columns of each."""
    for name, lookup in lookups.items():
        keys = [quoted(key) for key in lookup.keys]
        known = seen.frames[name].dropna(subset=keys)  # a null equals nothing in a join
        twice = known.groupBy(*keys).agg(F.count("*").alias("oo_rows")).filter("oo_rows > 1").limit(1).collect()
        if twice:
            values = ", ".join(f"{key}={str(twice[0][key])[:100]}" for key in lookup.keys)
            raise Refused(
                f"{declared_at(lookup)}lookup {name}: {twice[0].oo_rows} rows have the keys {values} in version "
                f"{seen.versions[name]['version']}",
                data="nothing was read or written: a join by them would give a record twice",
                hint="leave one row for each key in the table and run again; or name more keys, if those don't "
                "identify a row",
            )


def check_columns(lookup: Lookup, frame: DataFrame) -> None:
    """Raise Refused for a key that is not a column of the table."""
    for key in lookup.keys:
        if key not in frame.columns:
            raise Refused(
                f"{declared_at(lookup)}lookup {lookup.name}: the key {key!r} is not a column of the table",
                data="nothing was read or written",
                hint=f"there is: {', '.join(frame.columns)}",
            )
