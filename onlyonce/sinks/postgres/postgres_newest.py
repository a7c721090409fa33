"""Upserts that keep the newest row of each key by its columns (`newest_by`), and remove rows (`deletes`):
`<table>_deleted` keeps what was deleted.

A key has a row in the table, or its key and position in `<table>_deleted`: never both, and always those of its newest
change. So whatever comes later is compared with the newest, also where that one has deleted the row. All is one
transaction, that of the unit's claim.

A key is in one partition of a batch, and the batches of an output come one after the other, so no two units write one
key at once.

Who calls it: `postgres_unit`, with the rows of a unit in the table `arriving`. Errors: those of PostgreSQL; a null
among the columns that put changes in order, or among the keys of rows that may be deleted, is one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
import pyarrow as pa
from psycopg2 import sql

from onlyonce.failpoints import passing
from onlyonce.model.errors import InvariantBroken
from onlyonce.model.sinks.names import POSTGRES
from onlyonce.model.units import UnitId

STAGE = "CREATE TEMP TABLE arriving ON COMMIT DROP AS SELECT {columns} FROM {target} WITH NO DATA"
"""Only the columns that the function gives: a default, an identity or a generated value of another column is for the
target to compute."""
MARK = "ALTER TABLE arriving ADD COLUMN {deletes} boolean"
NEVER_NULL = "ALTER TABLE arriving {columns}"
ONE_A_KEY = "CREATE UNIQUE INDEX ON arriving ({keys})"
OUTDATED = """
DELETE FROM arriving USING {there} AS there
WHERE {same_key} AND {there_is_newer}
"""
REMEMBER = """
INSERT INTO {deleted} ({keys}, {newest_by})
SELECT {keys}, {newest_by} FROM arriving WHERE {deletes}
ON CONFLICT ({keys}) DO UPDATE SET {moved}
"""
DELETE = "DELETE FROM {target} AS there USING arriving WHERE {same_key} AND arriving.{deletes}"
FORGET = "DELETE FROM {deleted} AS there USING arriving WHERE {same_key} AND NOT arriving.{deletes}"
NEWER = " WHERE {target_is_unknown} OR {target_is_older}"
"""A row whose position is null is of before there were positions: it gives way."""


UNWRITTEN = """
SELECT count(*) FROM arriving
WHERE {written} AND NOT EXISTS (SELECT FROM {target} AS there WHERE {same_or_null} AND {there_is_as_new})
"""
UNDELETED = "SELECT count(*) FROM {target} AS there JOIN arriving ON {same_key} WHERE arriving.{deletes}"


class Twice(Exception):
    """Two rows of a unit have the same keys and are equally new."""


def stage(
    cursor: Any,
    target: sql.Composable,
    columns: Iterable[str],
    keys: tuple[str, ...],
    newest_by: tuple[str, ...],
    deletes: str | None,
    *needed: str,
) -> None:
    """Make the table `arriving`, for the rows of a unit, with the `columns` that are stored.

    `needed`: further columns that may not be null.
    """
    cursor.execute(sql.SQL(STAGE).format(target=target, columns=listed(columns)))
    if not newest_by:
        return
    whole = [*newest_by, *needed]
    if deletes is not None:
        cursor.execute(sql.SQL(MARK).format(deletes=sql.Identifier(deletes)))
        whole += [*keys, deletes]
    alterations = [
        sql.SQL("ALTER COLUMN {} SET NOT NULL").format(sql.Identifier(name)) for name in dict.fromkeys(whole)
    ]
    cursor.execute(sql.SQL(NEVER_NULL).format(columns=sql.SQL(", ").join(alterations)))


def delete(
    cursor: Any,
    table: tuple[str, str],
    keys: tuple[str, ...],
    newest_by: tuple[str, ...],
    deletes: str,
    types: pa.Schema,
) -> int:
    """Drop outdated rows of `arriving`, then delete what its other rows say; leaves those that are to be written.

    Return how many rows stayed in the target because a trigger kept them. Raise Twice for two rows of the same keys:
    that one is deleted and one written would show nowhere else."""
    schema, name = table
    target, beside = sql.Identifier(schema, name), sql.Identifier(schema, POSTGRES.deleted(name))
    same = [sql.SQL("there.{0} = arriving.{0}").format(sql.Identifier(key)) for key in keys]
    names = {
        "target": target,
        "deleted": beside,
        "deletes": sql.Identifier(deletes),
        "keys": listed(keys),
        "newest_by": listed(newest_by),
        "same_key": sql.SQL(" AND ").join(same),
        "there_is_newer": _compared("there", ">", "arriving", newest_by, types),
        "moved": sql.SQL(", ").join(
            [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column)) for column in newest_by]
        ),
    }
    try:
        cursor.execute(sql.SQL(ONE_A_KEY).format(**names))
    except psycopg2.errors.UniqueViolation as error:
        raise Twice from error
    for there in (target, beside):
        cursor.execute(sql.SQL(OUTDATED).format(there=there, **names))
    for statement in (REMEMBER, DELETE, FORGET, UNDELETED):
        cursor.execute(sql.SQL(statement).format(**names))
    passing("postgres-unit-after-delete")
    return int(cursor.fetchall()[0][0])


def unwritten(
    cursor: Any,
    target: sql.Composable,
    keys: Iterable[str],
    newest_by: tuple[str, ...],
    deletes: str | None,
    types: pa.Schema,
) -> int:
    """Return how many rows of `arriving` are not in the target, nor newer ones of their keys.

    Without `newest_by` a row of the key is enough. The rows have been written just now.
    """
    same = [sql.SQL("there.{0} IS NOT DISTINCT FROM arriving.{0}").format(sql.Identifier(key)) for key in keys]
    written = sql.SQL("NOT arriving.{}").format(sql.Identifier(deletes)) if deletes else sql.SQL("true")
    as_new = _compared("there", ">=", "arriving", newest_by, types) if newest_by else sql.SQL("true")
    statement = sql.SQL(UNWRITTEN).format(
        target=target, written=written, same_or_null=sql.SQL(" AND ").join(same), there_is_as_new=as_new
    )
    cursor.execute(statement)
    return int(cursor.fetchall()[0][0])


def left(deletes: str | None) -> sql.Composable:
    """The condition of the rows that are to be written."""
    return sql.SQL("") if deletes is None else sql.SQL("WHERE NOT {}").format(sql.Identifier(deletes))


@contextmanager
def one_a_place(unit: UnitId, place: Iterable[str]) -> Iterator[None]:
    """Tell of two rows of a unit that are in one place. Raises InvariantBroken."""
    try:
        yield
    except (psycopg2.errors.CardinalityViolation, Twice) as error:
        raise InvariantBroken(
            f"unit {unit}: two rows have the same keys ({', '.join(place)})",
            data="nothing of this unit was written",
            hint="the keys must identify a row of the transform's result: group by all of them",
        ) from error


def newer(newest_by: tuple[str, ...], types: pa.Schema) -> sql.Composable:
    """The condition under which an arriving row replaces the one of its keys."""
    unknown = sql.SQL("target.{} IS NULL").format(sql.Identifier(newest_by[0]))
    return sql.SQL(NEWER).format(
        target_is_unknown=unknown, target_is_older=_compared("target", "<=", "excluded", newest_by, types)
    )


def _compared(one: str, how: str, other: str, columns: Iterable[str], types: pa.Schema) -> sql.Composable:
    sides = [sql.SQL(", ").join([ordered(side, column, types) for column in columns]) for side in (one, other)]
    return sql.SQL("({}) {} ({})").format(sides[0], sql.SQL(how), sides[1])


def ordered(side: str, column: str, types: pa.Schema) -> sql.Composable:
    """A column as rows are put in order by it."""
    # Texts by their bytes, as Spark has put them in order within the batch, and not by the language of the database.
    kind = types.field(column).type
    by_bytes = ' COLLATE "C"' if pa.types.is_string(kind) or pa.types.is_large_string(kind) else ""
    return sql.SQL("{}.{}" + by_bytes).format(sql.Identifier(side), sql.Identifier(column))


def listed(names: Iterable[str]) -> sql.Composable:
    """Names, one behind the other."""
    return sql.SQL(", ").join(map(sql.Identifier, names))
