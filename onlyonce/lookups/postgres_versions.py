"""A PostgreSQL table as a lookup: reads it in one snapshot as Parquet, and keeps each new content as a version.

The rows come by COPY, in the order of their keys, with a hash of their content. The order of rows with equal keys is
undefined; such a table is refused later.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, cast

import psycopg2
import pyarrow as pa
from psycopg2 import sql
from pyarrow import csv, parquet
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from onlyonce.api.ddl import MOST_DIGITS
from onlyonce.api.declaration import declared_at
from onlyonce.api.joins_and_state import Lookup
from onlyonce.api.sinks import Postgres
from onlyonce.commitlog import units
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.database.connect import Database, ask, run, snapshot
from onlyonce.engine import session
from onlyonce.lookups import copies
from onlyonce.lookups.seen import Version, gone
from onlyonce.tables import arrow_files

MOST_BYTES = 512 * 2**20
"""The most bytes of the table as CSV. Each change stores the whole table again, and the driver has it in memory."""
ROW_BYTES = 16 * 2**20
"""Arrow reads CSV in blocks of this size, and a row must fit into one."""

TYPES = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "character varying": pa.string(),
    "character": pa.string(),
    "uuid": pa.string(),
    "json": pa.string(),
    "jsonb": pa.string(),
    "date": pa.date32(),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    "timestamp without time zone": pa.timestamp("us"),
}
NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
MAY_NOT = "42501"
"""SQLSTATE of a missing privilege."""


@dataclass(frozen=True)
class Copy:
    """A table at one moment.

    `content` is a hash of its columns, types and rows, whatever the order in which PostgreSQL keeps them.
    """

    content: str
    parquet: pa.Buffer


class _Spool:
    """The file object that COPY writes to: a temporary file, and a hash.

    Raise Refused if the table is too large.
    """

    def __init__(self, lookup: Lookup, file: Any) -> None:
        self._lookup, self._file, self.bytes, self._hash = lookup, file, 0, hashlib.sha256()

    def write(self, part: bytes) -> int:
        """Write a part. psycopg2 calls this for each."""
        self.bytes += len(part)
        if self.bytes > MOST_BYTES:
            raise _refused(
                self._lookup,
                f"{_name(self._lookup)} is larger than {MOST_BYTES:,} bytes of text, the most that a PostgreSQL "
                "lookup may have",
                "look up a view with the columns and rows that the function needs; or copy the table into a Delta "
                "table: table=Delta(path=…)",
            )
        self._hash.update(part)
        return self._file.write(part)  # type: ignore[no-any-return]

    def content(self, schema: pa.Schema) -> str:
        """Return the hash of all bytes and of the schema."""
        self._hash.update(str(schema).encode())
        return self._hash.hexdigest()[:32]


def url_of(lookup: Lookup) -> str:
    """Return the URL of the database with the table. Raise Refused if its variable is not set."""
    return units.url_of(table_of(lookup).connection, f"the lookup {lookup.name}'s", table_of(lookup).database_kind)


def read_table(lookup: Lookup) -> Copy:
    """Return the table as it is at one moment.

    Raise Refused if it is missing, may not be read, is too large, or has a column of an unknown type.
    """
    database = Database(url_of(lookup), "onlyonce/lookup", any_format=True)
    try:
        return run(database, lambda connection: _read(connection, lookup))
    except (DBAPIError, psycopg2.Error) as error:
        if getattr(getattr(error, "orig", error), "pgcode", None) == MAY_NOT:
            raise _refused(
                lookup,
                f"the role of the connection may not read {_name(lookup)}",
                "GRANT SELECT on it, and USAGE on its schema, to that role",
            ) from error
        raise


def _read(connection: Connection, lookup: Lookup) -> Copy:
    snapshot(connection)
    schema = _columns(connection, lookup)
    with TemporaryFile() as file:
        spool = _Spool(lookup, file)
        connection.connection.cursor().copy_expert(_statement(lookup, schema), spool)
        file.seek(0)
        return Copy(spool.content(schema), _parquet(lookup, file, schema))


def _columns(connection: Connection, lookup: Lookup) -> pa.Schema:
    schema, table = table_of(lookup).table.split(".")
    found = ask(connection, "lookups", "columns", schema=schema, table=table)
    if not found:
        raise _refused(
            lookup,
            f"there is no table {_name(lookup)} with columns",
            "make the table first, or correct its name or the connection",
        )
    return pa.schema([(row.name, _type(lookup, row)) for row in found])


def _type(lookup: Lookup, column: Any) -> pa.DataType:
    # A type may have a length or a precision anywhere: timestamp(3) with time zone.
    plain = re.sub(r"\(\d+\)", "", column.type)
    if column.kind == "e":
        return pa.string()
    if known := TYPES.get(plain):
        return known
    digits = NUMERIC.fullmatch(column.type)
    if digits and int(digits[1]) <= MOST_DIGITS and int(digits[2]) <= int(digits[1]):
        return pa.decimal128(int(digits[1]), int(digits[2]))
    raise _refused(
        lookup,
        f"column {column.name} of {_name(lookup)} is {column.type}, a type that a lookup can't have",
        f"look up a view that leaves it out, or casts it: to text, or a number to numeric({MOST_DIGITS}, 9)",
    )


def _statement(lookup: Lookup, schema: pa.Schema) -> sql.Composed:
    """Return the COPY statement. Its order depends only on the content: by the keys, and rows without a key by all
    columns.
    """
    keys = [sql.SQL("oo_row.{}").format(sql.Identifier(key)) for key in lookup.keys if key in schema.names]
    no_key = sql.SQL(" OR ").join([sql.SQL("{} IS NULL").format(key) for key in keys] or [sql.SQL("true")])
    by_keys = [sql.SQL('CAST({} AS text) COLLATE "C"').format(key) for key in keys]
    by_row = sql.SQL('CASE WHEN {} THEN CAST(oo_row AS text) END COLLATE "C"').format(no_key)
    return sql.SQL("COPY (SELECT {columns} FROM {table} oo_row ORDER BY {order}) TO STDOUT (FORMAT csv)").format(
        columns=sql.SQL(", ").join(sql.SQL("oo_row.{}").format(sql.Identifier(name)) for name in schema.names),
        table=sql.Identifier(*table_of(lookup).table.split(".")),
        order=sql.SQL(", ").join([*by_keys, by_row]),
    )


def _parquet(lookup: Lookup, file: Any, schema: pa.Schema) -> pa.Buffer:
    into = pa.BufferOutputStream()
    with parquet.ParquetWriter(into, schema, **arrow_files.footer_form(schema)) as writer:
        try:
            for part in _parts(file, schema):
                writer.write_batch(part)
        except pa.ArrowInvalid as error:
            raise _refused(
                lookup,
                f"a value of {_name(lookup)} is none that Spark has: {str(error)[:200]}",
                "NaN of a numeric, an infinite time, one before the year 1, or a row of more than 16 MiB: look up "
                "a view that leaves it out",
            ) from error
    return into.getvalue()


def _parts(file: Any, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    if not file.peek(1):  # Arrow rejects an empty file
        return []
    convert = csv.ConvertOptions(
        column_types=schema,
        null_values=[""],
        true_values=["t"],
        false_values=["f"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    parts: Iterable[pa.RecordBatch] = csv.open_csv(
        file, csv.ReadOptions(column_names=schema.names, block_size=ROW_BYTES), parse, convert
    )
    return parts


def table_of(lookup: Lookup) -> Postgres:
    """Return the table of a lookup that is known to be PostgreSQL's."""
    return cast(Postgres, lookup.table)


def _name(lookup: Lookup) -> str:
    table = table_of(lookup)
    return f"{table.table}" + (f" ({table.connection})" if table.connection else "")


def _refused(lookup: Lookup, what: str, hint: str) -> Refused:
    return Refused(f"{declared_at(lookup)}lookup {lookup.name}: {what}", data="nothing was read or written", hint=hint)


# A PostgreSQL table as a lookup. PostgreSQL keeps no earlier versions, so the platform does: each copy with new content
# is a version (`copies`). A copy may be as old as `Lookup.refresh`.


REFRESH = timedelta(minutes=1)

_taken: dict[tuple[str, ...], tuple[float, Version]] = {}
_turn = Lock()


def folder_of_lookup(lookup: Lookup) -> Location:
    """Return where the copies of the table are."""
    return copies.folder_of_table(lookup.table.target(""))


def file(lookup: Lookup, version: Version) -> Location:
    """Return the copy of a version."""
    return copies.copy_at(
        folder_of_lookup(lookup), (version[stored_names.LOOKUP_VERSION], version[stored_names.LOOKUP_TABLE])
    )


def newest(lookup: Lookup) -> Version:
    """Return the version that the table has now, or this process's last copy if that is younger than `refresh`."""
    key = (url_of(lookup), str(folder_of_lookup(lookup)), *lookup.keys)
    refresh = REFRESH if lookup.refresh is None else lookup.refresh
    with _turn:  # outputs that run at the same time take one copy
        at, version = _taken.get(key, (0.0, None))
        if version is None or time.monotonic() - at >= refresh.total_seconds() or not _there(lookup, version):
            at, version = time.monotonic(), _take(lookup)
            _taken[key] = at, version
        return version


def frame(spark: SparkSession, lookup: Lookup, version: Version) -> DataFrame:
    """Return the table as of a version. Nothing is read yet."""
    return session.file_reader(spark).parquet(str(file(lookup, version)))


def refuse_gone(lookup: Lookup, version: Version) -> None:
    """Raise Refused if a version that the log names is gone."""
    if not _there(lookup, version):
        raise gone(lookup, version, f"its copy is not at {file(lookup, version)}")


def _take(lookup: Lookup) -> Version:
    copy = read_table(lookup)
    number, content = copies.keep_copy(folder_of_lookup(lookup), copy.content, copy.parquet.to_pybytes())
    return {stored_names.LOOKUP_VERSION: number, stored_names.LOOKUP_TABLE: content}


def _there(lookup: Lookup, version: Version) -> bool:
    return (
        copies.look_at_copy(
            folder_of_lookup(lookup), (version[stored_names.LOOKUP_VERSION], version[stored_names.LOOKUP_TABLE])
        )
        is not None
    )
