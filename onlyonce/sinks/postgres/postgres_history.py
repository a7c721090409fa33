"""Histories (SCD type 2): each change is a version of its key's row, with the time from which and to which it held.

A version holds until the next one of its key begins, by the order of `newest_by`; the last one is current. A delete is
no version: it ends the one before it, and is kept in `<table>_deleted`. So a change that comes late finds its place:
after a unit's rows are in, the ends of all versions of its keys are computed anew from both tables. All is one
transaction, that of the unit's claim. What was written before is written over itself.

A key is in one partition of a batch, and the batches of an output come one after the other, so no two units write one
key at once.

Who calls it: `postgres_unit`, with the rows of a unit in the table `arriving`. Errors: those of PostgreSQL; Twice for
two different changes of a key at one position. Not promised: that times grow. Where the source's clock went back, a
version ends before it begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg2
import pyarrow as pa
from psycopg2 import sql

from onlyonce.failpoints import passing
from onlyonce.model.sinks.names import POSTGRES
from onlyonce.model.stored_names import IS_CURRENT, VALID_FROM, VALID_TO
from onlyonce.sinks.postgres.postgres_newest import Twice, listed, ordered

ENDS = {VALID_TO: "timestamp with time zone", IS_CURRENT: "boolean"}
"""The columns that the platform computes, and their types."""
ONE_A_POSITION = "CREATE UNIQUE INDEX ON arriving ({identity})"
ADD = (
    "INSERT INTO {target} ({columns}) SELECT {columns} FROM arriving {versions} ON CONFLICT ({identity}) DO "
    "UPDATE SET {values}"
)
REMEMBER = """
INSERT INTO {deleted} ({kept}) SELECT {kept} FROM arriving WHERE {deletes}
ON CONFLICT ({identity}) DO UPDATE SET valid_from = excluded.valid_from
"""
COUNT = "SELECT count(*) FROM arriving {versions}"
FIND_ENDS = """
WITH found AS (
    SELECT {identity}, lead(valid_from) OVER later AS valid_to, lead(true) OVER later IS NULL AS is_current
    FROM (
        SELECT {kept} FROM {target} WHERE ({keys}) IN (SELECT {keys} FROM arriving)
        {ended}
    ) AS change
    WINDOW later AS (PARTITION BY {keys} ORDER BY {ordered})
), changed AS (
    SELECT found.* FROM found JOIN {target} AS target ON {same}
    WHERE (target.valid_to, target.is_current) IS DISTINCT FROM (found.valid_to, found.is_current)
), written AS (
    UPDATE {target} AS target SET valid_to = found.valid_to, is_current = found.is_current
    FROM changed AS found WHERE {same} RETURNING 1
)
SELECT (SELECT count(*) FROM changed) - (SELECT count(*) FROM written)
"""
ENDED = "UNION ALL SELECT {kept} FROM {deleted} WHERE ({keys}) IN (SELECT {keys} FROM arriving)"


def write(
    cursor: Any,
    table: tuple[str, str],
    columns: Iterable[str],
    keys: tuple[str, ...],
    newest_by: tuple[str, ...],
    deletes: str | None,
    types: pa.Schema,
) -> int:
    """Put the rows of `arriving` in their places.

    `columns`: those that are stored. Return how many rows a trigger of the table has dropped.
    """
    schema, name = table
    identity = (*keys, *newest_by)
    names: dict[str, sql.Composable] = {
        "target": sql.Identifier(schema, name),
        "deleted": sql.Identifier(schema, POSTGRES.deleted(name)),
        "columns": listed(columns),
        "identity": listed(identity),
        "keys": listed(keys),
        "deletes": sql.Identifier(deletes or ""),
        "kept": listed(dict.fromkeys((*identity, VALID_FROM))),  # the versions may be in order by when they begin
        "values": sql.SQL(", ").join(
            [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(c)) for c in columns if c not in identity]
        ),
        "same": sql.SQL(" AND ").join([sql.SQL("target.{0} = found.{0}").format(sql.Identifier(c)) for c in identity]),
        "versions": sql.SQL("WHERE NOT {}").format(sql.Identifier(deletes)) if deletes else sql.SQL(""),
    }
    names["ended"] = sql.SQL(ENDED).format(**names) if deletes else sql.SQL("")
    names["ordered"] = sql.SQL(", ").join([ordered("change", column, types) for column in newest_by])
    try:
        cursor.execute(sql.SQL(ONE_A_POSITION).format(**names))
    except psycopg2.errors.UniqueViolation as error:
        raise Twice from error
    cursor.execute(sql.SQL(ADD).format(**names))
    written = cursor.rowcount
    cursor.execute(sql.SQL(COUNT).format(**names))
    dropped = int(cursor.fetchall()[0][0]) - written
    if deletes:
        cursor.execute(sql.SQL(REMEMBER).format(**names))
    passing("postgres-unit-after-delete")
    cursor.execute(sql.SQL(FIND_ENDS).format(**names))
    return dropped + int(cursor.fetchall()[0][0])
