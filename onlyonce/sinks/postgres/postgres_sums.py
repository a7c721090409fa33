"""Increments that can be corrected: `<table>_by_window` keeps what each window has added to the sums.

The stream's unit keeps its rows there and adds them. A backfill's unit removes what its windows had added, keeps the
new rows, and adds the difference, all in one transaction. So a second attempt finds no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg2 import sql

from onlyonce.failpoints import passing
from onlyonce.model.sinks.names import POSTGRES
from onlyonce.model.stored_names import WINDOW_END, WINDOW_START

WINDOW = (WINDOW_START, WINDOW_END)
ADD_UP = "{column} = coalesce(target.{column}, 0) + coalesce(excluded.{column}, 0)"
"""How a number is added to the row of its keys."""

STAGE = "CREATE TEMP TABLE {staged} (LIKE {by_window}) ON COMMIT DROP"
TAKE_OUT = """
WITH taken AS (DELETE FROM {by_window} WHERE window_start >= %s AND window_start < %s RETURNING *)
INSERT INTO gone SELECT * FROM taken
"""
KEEP = "INSERT INTO {by_window} SELECT * FROM arriving"
ADD = """
INSERT INTO {target} AS target ({columns})
SELECT {keys}, {sums}
FROM (SELECT {columns} FROM arriving UNION ALL SELECT {keys}, {taken} FROM gone) AS change
GROUP BY {keys}
ON CONFLICT ({keys}) DO UPDATE SET {updates}
"""

COUNT = """
SELECT count(*) FROM (
    SELECT FROM (SELECT {keys} FROM arriving UNION ALL SELECT {keys} FROM gone) AS change GROUP BY {keys}
) AS one_a_key
"""


def write(
    cursor: Any,
    table: tuple[str, str],
    keys: tuple[str, ...],
    windows: tuple[str, ...] | None,
    copy: Callable[[sql.Composable], object],
) -> int:
    """Add the rows that `copy` puts into the table it is given.

    `windows`: the span whose rows are replaced. Return how many sums a trigger of the table has dropped.

    Called by a unit's task, in its transaction. A key of which nothing is left keeps a row, of zeros.
    """
    schema, name = table
    by_window = sql.Identifier(schema, POSTGRES.by_window(name))
    for staged in ("arriving", "gone"):
        cursor.execute(sql.SQL(STAGE).format(staged=sql.Identifier(staged), by_window=by_window))
    if windows is not None:
        cursor.execute(sql.SQL(TAKE_OUT).format(by_window=by_window), windows)
        passing("postgres-unit-after-delete")
    copy(sql.Identifier("arriving"))
    cursor.execute(sql.SQL(KEEP).format(by_window=by_window))
    cursor.execute(sql.SQL("SELECT * FROM arriving LIMIT 0"))
    columns = [column.name for column in cursor.description if column.name not in WINDOW or column.name in keys]
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
    cursor.execute(sql.SQL(ADD).format(**names))
    written = cursor.rowcount
    cursor.execute(sql.SQL(COUNT).format(**names))
    passing("postgres-unit-after-rows")
    return int(cursor.fetchall()[0][0]) - written
