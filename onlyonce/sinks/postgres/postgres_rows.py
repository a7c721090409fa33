"""Write the rows of a unit, from the table `arriving`: upserts by `sequence_by` and `delete_when`, histories, and sums.

An upsert keeps the newest row of each key by its columns `sequence_by`, and removes rows by `delete_when`. It drops an
arriving row that is older than the stored row (`newer_rows`; with `delete_when` also `delete_older`). Before, `newer`
in `outputs/results.py` has chosen the newest rows of the batch. Without `sequence_by` the later window wins
(`api.sinks.later_window_wins`, `postgres_unit.LATER_WINDOW`); if the keys name the window, or the rows have none, the
last write wins.

With `delete_when` a key has a row in the table, or its key and position in `<table>_deleted`: never both, and always
the key and position of its newest change. So a later row is compared with the newest change, even if that one has
deleted the key's row. All of it is in the transaction of the unit's claim.

A key is in one partition of a batch, and the batches of an output come one after the other, so no two units write one
key at the same time. A null in an ordering column, or in a key of rows that may be deleted, is an error of PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg2
import pyarrow as pa
from psycopg2 import sql

from onlyonce.core.errors import InvariantBroken
from onlyonce.core.ownership import POSTGRES
from onlyonce.core.stored_names import IS_CURRENT, VALID_FROM, VALID_TO, WINDOW_END, WINDOW_START
from onlyonce.core.units import UnitId
from onlyonce.failpoints import passing

STAGE = "CREATE TEMP TABLE arriving ON COMMIT DROP AS SELECT {columns} FROM {target} WITH NO DATA"
"""Only the columns that the function returns.

The target computes a default, an identity or a generated value of another column.
"""
MARK = "ALTER TABLE arriving ADD COLUMN {delete_when} boolean"
NEVER_NULL = "ALTER TABLE arriving {columns}"
ONE_A_KEY = "CREATE UNIQUE INDEX ON arriving ({keys})"
OUTDATED = """
DELETE FROM arriving USING {there} AS there
WHERE {same_key} AND {there_is_newer}
"""
REMEMBER = """
INSERT INTO {deleted} ({keys}, {sequence_by})
SELECT {keys}, {sequence_by} FROM arriving WHERE {delete_when}
ON CONFLICT ({keys}) DO UPDATE SET {moved}
"""
DELETE = "DELETE FROM {target} AS there USING arriving WHERE {same_key} AND arriving.{delete_when}"
FORGET = "DELETE FROM {deleted} AS there USING arriving WHERE {same_key} AND NOT arriving.{delete_when}"
NEWER = " WHERE ({target_is_older}) IS NOT FALSE"
"""The comparison is null if the columns before a null are equal: the stored row is from before that column was there,
and is replaced."""


NULL_KEYS = "SELECT DISTINCT {null_keys} FROM {staged}"
UNWRITTEN = """
SELECT count(*) FROM arriving
WHERE {written} AND {these_are_null} AND NOT EXISTS (
    SELECT FROM {target} AS there WHERE {same_or_null} AND {there_is_as_new}
)
"""
"""For the rows whose nulls are in the same keys."""
UNDELETED = "SELECT count(*) FROM {target} AS there JOIN arriving ON {same_key} WHERE arriving.{delete_when}"


class Twice(Exception):
    """Two rows of a unit have the same keys and are equally new."""


def stage_newest(
    cursor: Any,
    target: sql.Composable,
    columns: Iterable[str],
    keys: tuple[str, ...],
    sequence_by: tuple[str, ...],
    delete_when: str | None,
    *needed: str,
) -> None:
    """Make the table `arriving`, for the rows of a unit, with the `columns` that are stored.

    `needed`: further columns that may not be null.
    """
    cursor.execute(sql.SQL(STAGE).format(target=target, columns=listed(columns)))
    if not sequence_by:
        return
    whole = [*sequence_by, *needed]
    if delete_when is not None:
        cursor.execute(sql.SQL(MARK).format(delete_when=sql.Identifier(delete_when)))
        whole += [*keys, delete_when]
    alterations = [
        sql.SQL("ALTER COLUMN {} SET NOT NULL").format(sql.Identifier(name)) for name in dict.fromkeys(whole)
    ]
    cursor.execute(sql.SQL(NEVER_NULL).format(columns=sql.SQL(", ").join(alterations)))


def delete_older(
    cursor: Any,
    table: tuple[str, str],
    keys: tuple[str, ...],
    sequence_by: tuple[str, ...],
    delete_when: str,
    types: pa.Schema,
) -> int:
    """Drop outdated rows of `arriving`, then delete what its other rows say. The rows to write stay.

    Return how many rows stayed in the target because a trigger kept them. Raise Twice for two rows of the same keys: if
    one was deleted and one written, no later check would detect it.
    """
    schema, name = table
    target, beside = sql.Identifier(schema, name), sql.Identifier(schema, POSTGRES.deleted(name))
    same = [sql.SQL("there.{0} = arriving.{0}").format(sql.Identifier(key)) for key in keys]
    names = {
        "target": target,
        "deleted": beside,
        "delete_when": sql.Identifier(delete_when),
        "keys": listed(keys),
        "sequence_by": listed(sequence_by),
        "same_key": sql.SQL(" AND ").join(same),
        "there_is_newer": _compared("there", ">", "arriving", sequence_by, types),
        "moved": sql.SQL(", ").join(
            [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column)) for column in sequence_by]
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


def unwritten_keys(
    cursor: Any,
    target: sql.Composable,
    keys: Sequence[str],
    sequence_by: tuple[str, ...],
    delete_when: str | None,
    types: pa.Schema,
) -> int:
    """Return how many rows of `arriving` are not in the target, nor newer rows of their keys.

    Without `sequence_by` any row of the key counts. The rows must have been written just before.
    """
    written = sql.SQL("NOT arriving.{}").format(sql.Identifier(delete_when)) if delete_when else sql.SQL("true")
    as_new = _compared("there", ">=", "arriving", sequence_by, types) if sequence_by else sql.SQL("true")
    unwritten = 0
    for nulls in _null_keys(cursor, "arriving", keys):
        statement = sql.SQL(UNWRITTEN).format(
            target=target,
            written=written,
            these_are_null=_are_null("arriving", keys, nulls),
            same_or_null=_same_or_null("there", "arriving", keys, nulls),
            there_is_as_new=as_new,
        )
        cursor.execute(statement)
        unwritten += int(cursor.fetchall()[0][0])
    return unwritten


# Rows are matched by keys that may be null, in one statement for each combination of null keys that occurs. It compares
# by = and IS NULL, for which PostgreSQL uses an index or a hash. It uses neither for IS NOT DISTINCT FROM.


def _null_keys(cursor: Any, staged: str, keys: Sequence[str]) -> list[tuple[bool, ...]]:
    """Return, for each combination that occurs in the rows of `staged`, which keys are null."""
    null_keys = sql.SQL(", ").join([sql.SQL("{} IS NULL").format(sql.Identifier(key)) for key in keys])
    cursor.execute(sql.SQL(NULL_KEYS).format(null_keys=null_keys, staged=sql.Identifier(staged)))
    return list(cursor.fetchall())


def _are_null(side: str, keys: Sequence[str], nulls: tuple[bool, ...]) -> sql.Composable:
    """Return the condition that the rows of one side have these null keys, and no others."""
    return sql.SQL(" AND ").join(
        [
            sql.SQL("{} IS NULL" if null else "{} IS NOT NULL").format(sql.Identifier(side, key))
            for key, null in zip(keys, nulls, strict=True)
        ]
    )


def _same_or_null(one: str, other: str, keys: Sequence[str], nulls: tuple[bool, ...]) -> sql.Composable:
    """Return the condition that a row of one side has the keys of a row of the other side, which has these nulls."""
    return sql.SQL(" AND ").join(
        [
            sql.SQL("{} IS NULL" if null else "{} = {}").format(sql.Identifier(one, key), sql.Identifier(other, key))
            for key, null in zip(keys, nulls, strict=True)
        ]
    )


def left_newest(delete_when: str | None) -> sql.Composable:
    """Return the condition of the rows to write."""
    return sql.SQL("") if delete_when is None else sql.SQL("WHERE NOT {}").format(sql.Identifier(delete_when))


@contextmanager
def one_a_place(unit: UnitId, place: Iterable[str]) -> Iterator[None]:
    """Run the block, and raise InvariantBroken if two rows of a unit have the same place."""
    try:
        yield
    except (psycopg2.errors.CardinalityViolation, Twice) as error:
        raise InvariantBroken(
            f"unit {unit}: two rows have the same keys ({', '.join(place)})",
            data="nothing of this unit was written",
            hint="the keys must identify a row of the transform's result: group by all of them",
        ) from error


def newer_rows(sequence_by: tuple[str, ...], types: pa.Schema) -> sql.Composable:
    """Return the condition under which an upsert replaces the stored row; if it is false, the arriving row is dropped.

    An older row is dropped. A row that is equally new replaces the stored row.
    """
    return sql.SQL(NEWER).format(target_is_older=_compared("target", "<=", "excluded", sequence_by, types))


def _compared(one: str, how: str, other: str, columns: Iterable[str], types: pa.Schema) -> sql.Composable:
    sides = [sql.SQL(", ").join([ordered(side, column, types) for column in columns]) for side in (one, other)]
    return sql.SQL("({}) {} ({})").format(sides[0], sql.SQL(how), sides[1])


def ordered(side: str, column: str, types: pa.Schema) -> sql.Composable:
    """Return a column as rows are ordered by it."""
    # Strings are ordered by their bytes, as in Spark within the batch, and not by the database's language.
    kind = types.field(column).type
    by_bytes = ' COLLATE "C"' if pa.types.is_string(kind) or pa.types.is_large_string(kind) else ""
    return sql.SQL("{}.{}" + by_bytes).format(sql.Identifier(side), sql.Identifier(column))


def listed(names: Iterable[str]) -> sql.Composable:
    """Return names as a list separated by commas."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


# Histories (SCD type 2): each change is a version of its key's row, with the time from which and to which it held.
#
# A version holds until the next version of its key begins, by the order of `sequence_by`; the last one is current. A
# delete is not a version: it ends the version before it, and is kept in `<table>_deleted`. So a late change finds its
# place: after a unit's rows are written, the ends of all versions of its keys are computed again from both tables. Rows
# that were written before are overwritten with themselves. Times need not grow: if the source's clock went back, a
# version ends before it begins.


ENDS = {VALID_TO: "timestamp with time zone", IS_CURRENT: "boolean"}
"""The columns that the platform computes, and their types."""
ONE_A_POSITION = "CREATE UNIQUE INDEX ON arriving ({identity})"
ADD = (
    "INSERT INTO {target} ({columns}) SELECT {columns} FROM arriving {versions} ON CONFLICT ({identity}) DO "
    "UPDATE SET {values}"
)
REMEMBER_HISTORY = """
INSERT INTO {deleted} ({kept}) SELECT {kept} FROM arriving WHERE {delete_when}
ON CONFLICT ({identity}) DO UPDATE SET valid_from = excluded.valid_from
"""
COUNT = "SELECT count(*) FROM arriving {versions}"
FIND_ENDS = """
WITH found AS (
    SELECT {identity}, oo_gone, lead(valid_from) OVER later AS valid_to, lead(true) OVER later IS NULL AS is_current
    FROM (
        SELECT {kept}, false AS oo_gone FROM {target} WHERE ({keys}) IN (SELECT {keys} FROM arriving)
        {ended}
    ) AS change
    WINDOW later AS (PARTITION BY {keys} ORDER BY {ordered}, oo_gone)
), changed AS (
    SELECT found.* FROM found JOIN {target} AS target ON {same}
    WHERE NOT found.oo_gone AND (target.valid_to, target.is_current) IS DISTINCT FROM (found.valid_to, found.is_current)
), written AS (
    UPDATE {target} AS target SET valid_to = found.valid_to, is_current = found.is_current
    FROM changed AS found WHERE {same} RETURNING 1
)
SELECT (SELECT count(*) FROM changed) - (SELECT count(*) FROM written)
"""
ENDED = "UNION ALL SELECT {kept}, true FROM {deleted} WHERE ({keys}) IN (SELECT {keys} FROM arriving)"


def write_history(
    cursor: Any,
    table: tuple[str, str],
    columns: Iterable[str],
    keys: tuple[str, ...],
    sequence_by: tuple[str, ...],
    delete_when: str | None,
    types: pa.Schema,
) -> int:
    """Write the versions in `arriving`, and compute the ends of their keys' versions.

    `columns`: the stored columns. Return how many rows a trigger of the table has dropped. Raise Twice for two
    different changes of a key at one position.
    """
    schema, name = table
    identity = (*keys, *sequence_by)
    # Without another column a key is set to itself: with DO NOTHING, an existing row would count as dropped.
    overwritten = [column for column in columns if column not in identity] or [keys[0]]
    names: dict[str, sql.Composable] = {
        "target": sql.Identifier(schema, name),
        "deleted": sql.Identifier(schema, POSTGRES.deleted(name)),
        "columns": listed(columns),
        "identity": listed(identity),
        "keys": listed(keys),
        "delete_when": sql.Identifier(delete_when or ""),
        "kept": listed(dict.fromkeys((*identity, VALID_FROM))),  # `sequence_by` may contain valid_from
        "values": sql.SQL(", ").join([sql.SQL("{0} = excluded.{0}").format(sql.Identifier(c)) for c in overwritten]),
        "same": sql.SQL(" AND ").join([sql.SQL("target.{0} = found.{0}").format(sql.Identifier(c)) for c in identity]),
        "versions": sql.SQL("WHERE NOT {}").format(sql.Identifier(delete_when)) if delete_when else sql.SQL(""),
    }
    names["ended"] = sql.SQL(ENDED).format(**names) if delete_when else sql.SQL("")
    names["ordered"] = sql.SQL(", ").join([ordered("change", column, types) for column in sequence_by])
    try:
        cursor.execute(sql.SQL(ONE_A_POSITION).format(**names))
    except psycopg2.errors.UniqueViolation as error:
        raise Twice from error
    cursor.execute(sql.SQL(ADD).format(**names))
    written = cursor.rowcount
    cursor.execute(sql.SQL(COUNT).format(**names))
    dropped = int(cursor.fetchall()[0][0]) - written
    if delete_when:
        cursor.execute(sql.SQL(REMEMBER_HISTORY).format(**names))
    passing("postgres-unit-after-delete")
    cursor.execute(sql.SQL(FIND_ENDS).format(**names))
    return dropped + int(cursor.fetchall()[0][0])


# Increments that can be corrected: `<table>_by_window` keeps what each window has added to the sums.
#
# The stream's unit stores its rows there and adds them. A backfill's unit removes what its windows had added, stores
# the new rows, and adds the difference, all in one transaction. So a second attempt finds no difference.
#
# A float that is removed may leave a wrong sum: NaN and infinity stay in it, and a large number has taken the digits of
# the small ones. Such sums are computed again from all windows of their keys. ADD_SUMS has locked their rows: a unit of
# the stream has either committed its rows, or adds them later.


WINDOW = (WINDOW_START, WINDOW_END)
ADD_UP = "{column} = coalesce(target.{column}, 0) + coalesce(excluded.{column}, 0)"
"""How a number is added to the row of its keys."""

STAGE_SUMS = "CREATE TEMP TABLE {staged} (LIKE {by_window}) ON COMMIT DROP"
TAKE_OUT = """
WITH taken AS (DELETE FROM {by_window} WHERE window_start >= {start} AND window_start < {stop} RETURNING *)
INSERT INTO gone SELECT * FROM taken
"""
KEEP = "INSERT INTO {by_window} SELECT * FROM arriving"
ADD_SUMS = """
INSERT INTO {target} AS target ({columns})
SELECT {keys}, {sums}
FROM (SELECT {columns} FROM arriving UNION ALL SELECT {keys}, {taken} FROM gone) AS change
GROUP BY {keys}
ON CONFLICT ({keys}) DO UPDATE SET {updates}
"""

ADD_AGAIN = """
WITH lost AS MATERIALIZED (
    SELECT DISTINCT {gone_keys} FROM gone JOIN {target} AS target ON {target_is_gone}
    WHERE {these_are_null} AND ({lossy})
), found AS (
    SELECT {lost_keys}, {sums} FROM lost LEFT JOIN {by_window} AS kept ON {kept_is_lost} GROUP BY {lost_keys}
), written AS (
    UPDATE {target} AS target SET {updates}
    FROM found WHERE {target_is_found} RETURNING 1
)
SELECT (SELECT count(*) FROM found) - (SELECT count(*) FROM written)
"""
LOSSY = """
target.{column} IN ('NaN', 'Infinity', '-Infinity')
OR greatest(abs(gone.{column}::float8), 1e-290) / 1000 > abs(target.{column}::float8)
"""
"""More than ten bits of the sum's 53 or 24 were lost. `greatest`: an underflow is an error of PostgreSQL."""
FOUND_SUM = "{column} = CASE WHEN target.{column} IS NOT NULL THEN coalesce(found.{column}, 0) END"
FLOATS = (700, 701)
"""PostgreSQL's numbers of the types real and double precision."""

COUNT_SUMS = """
SELECT count(*) FROM (
    SELECT FROM (SELECT {keys} FROM arriving UNION ALL SELECT {keys} FROM gone) AS change GROUP BY {keys}
) AS one_a_key
"""


def write_sums(
    cursor: Any,
    table: tuple[str, str],
    keys: tuple[str, ...],
    windows: tuple[str, ...] | None,
    copy: Callable[[sql.Composable], object],
) -> int:
    """Add the rows that `copy` writes into the table that it gets, in the transaction of a unit's task.

    `windows`: the span whose rows are replaced. Return how many sums a trigger of the table has dropped. A key from
    which everything was removed keeps a row, of zeros.
    """
    schema, name = table
    by_window = sql.Identifier(schema, POSTGRES.window_sums(name))
    for staged in ("arriving", "gone"):
        cursor.execute(sql.SQL(STAGE_SUMS).format(staged=sql.Identifier(staged), by_window=by_window))
    if windows is not None:
        start, stop = map(sql.Literal, windows)
        # The times are literals: in a statement with parameters, psycopg2 takes a % in a table's name for one.
        cursor.execute(sql.SQL(TAKE_OUT).format(by_window=by_window, start=start, stop=stop))
        passing("postgres-unit-after-delete")
    copy(sql.Identifier("arriving"))
    cursor.execute(sql.SQL(KEEP).format(by_window=by_window))
    cursor.execute(sql.SQL("SELECT * FROM arriving LIMIT 0"))
    types = {column.name: column.type_code for column in cursor.description}
    columns = [column for column in types if column not in WINDOW or column in keys]
    values = [sql.Identifier(column) for column in columns if column not in keys]
    comma = sql.SQL(", ")
    names = {
        "target": sql.Identifier(schema, name),
        "columns": comma.join([*map(sql.Identifier, keys), *values]),
        "keys": comma.join(map(sql.Identifier, keys)),
        "sums": comma.join([sql.SQL("sum({})").format(v) for v in values]),
        "taken": comma.join([sql.SQL("-{}").format(v) for v in values]),
        "updates": comma.join([sql.SQL(ADD_UP).format(column=v) for v in values]),
    }
    cursor.execute(sql.SQL(ADD_SUMS).format(**names))
    written = cursor.rowcount
    cursor.execute(sql.SQL(COUNT_SUMS).format(**names))
    dropped = int(cursor.fetchall()[0][0]) - written
    floats = [column for column in columns if column not in keys and types[column] in FLOATS]
    if windows is not None and floats:
        dropped += _add_again(cursor, table, keys, floats)
    passing("postgres-unit-after-rows")
    return dropped


def _add_again(cursor: Any, table: tuple[str, str], keys: tuple[str, ...], floats: list[str]) -> int:
    """Compute the sums again from which a float was removed that they could not lose.

    Return how many sums a trigger of the table has dropped.
    """
    schema, name = table
    comma, columns = sql.SQL(", "), [sql.Identifier(column) for column in floats]
    names = {
        "target": sql.Identifier(schema, name),
        "by_window": sql.Identifier(schema, POSTGRES.window_sums(name)),
        "gone_keys": comma.join([sql.Identifier("gone", key) for key in keys]),
        "lost_keys": comma.join([sql.Identifier("lost", key) for key in keys]),
        "lossy": sql.SQL(" OR ").join([sql.SQL(LOSSY).format(column=column) for column in columns]),
        "sums": comma.join([sql.SQL("sum(kept.{0}) AS {0}").format(column) for column in columns]),
        "updates": comma.join([sql.SQL(FOUND_SUM).format(column=column) for column in columns]),
    }
    dropped = 0
    for nulls in _null_keys(cursor, "gone", keys):
        matched = {
            "these_are_null": _are_null("gone", keys, nulls),
            "target_is_gone": _same_or_null("target", "gone", keys, nulls),
            "kept_is_lost": _same_or_null("kept", "lost", keys, nulls),
            "target_is_found": _same_or_null("target", "found", keys, nulls),
        }
        cursor.execute(sql.SQL(ADD_AGAIN).format(**names, **matched))
        dropped += int(cursor.fetchall()[0][0])
    return dropped
