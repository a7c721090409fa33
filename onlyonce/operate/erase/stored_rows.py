"""Search the rows of databases for what mentions a condition: the platform's own tables, and the tables of a pipeline's outputs. TOASTed values come whole.

And rewrite the tables from which an erasure has deleted rows: PostgreSQL leaves deleted rows on the pages of a table and of its indexes, and VACUUM FULL makes new files without them.
Errors: DatabaseAway; Retryable while an older transaction still sees the deleted rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from psycopg2 import sql as identifiers
from sqlalchemy import Connection

from onlyonce import environment
from onlyonce.commitlog.operate import erasures
from onlyonce.database import mysql
from onlyonce.database.connect import Database, Session, run
from onlyonce.declare.pipeline import MySQL, Pipeline, Postgres
from onlyonce.model.errors import Retryable
from onlyonce.model.operate.mentions import ESCAPES, Mentions
from onlyonce.model.sinks import names

AT_ONCE = 10_000
SEEN = re.compile(r"([1-9]\d*) dead row versions cannot be removed yet")


def found(database: Database, pipeline: Pipeline, mentions: Mentions) -> Iterator[tuple[str, int]]:
    """Yield each table with rows that mention the condition, and how many."""
    for schema in erasures.OWN_SCHEMAS:
        for table in run(database, lambda conn: erasures.tables(conn, schema)):  # noqa: B023 - it is called here
            yield from _in(database, (schema, table), mentions, pipeline.name)
    for output in pipeline.outputs:
        sink = output.sink
        if isinstance(sink, Postgres):
            schema, table = sink.table.split(".")
            url = database.url if sink.connection is None else environment.variable(sink.connection)
            for name in (table, names.POSTGRES.deleted(table)):
                yield from _in(Database(url or "", database.name), (schema, name), mentions)
        elif isinstance(sink, MySQL):
            for name in (sink.table, names.MYSQL.deleted(sink.table)):
                yield from _in_mysql(Database(environment.variable(sink.connection) or "", database.name), name, mentions)


def rewrite(database: Database, tables: Sequence[str]) -> None:
    """Write tables of the platform into new files, without the rows that were deleted from them."""
    session = Session(database)
    try:
        for table in tables:
            session.ask(lambda conn: _rewritten(conn, table))  # noqa: B023 - it is called here
    finally:
        session.close()


def _rewritten(connection: Connection, table: str) -> None:
    notices: list[str] = connection.connection.driver_connection.notices  # type: ignore[union-attr]
    notices.clear()
    erasures.rewrite(connection, table)
    if any(SEEN.search(notice) for notice in notices):
        raise Retryable(
            f"an older transaction still sees rows that were deleted from {table}",
            data="the rows are deleted, and their bytes are on the table's pages until it ends",
            hint="let that transaction end (a backup, or a session that is idle in a transaction); then run the same command again",
        )


def _in(database: Database, table: tuple[str, str], mentions: Mentions, instance: str | None = None) -> Iterator[tuple[str, int]]:
    count = run(database, lambda conn: _counted(conn, table, mentions, instance))
    if count:
        yield f"table {'.'.join(table)}", count


def _counted(connection: Connection, table: tuple[str, str], mentions: Mentions, instance: str | None) -> int:
    columns = erasures.searched_columns(connection, *table, [*mentions.condition.values])
    if not columns:
        return 0
    of = [identifiers.Identifier(name) for name in columns]
    limits = [_possible(of, mentions)] if mentions.longest_string else []
    if instance is not None and "instance" in columns:
        limits.append(identifiers.SQL("instance = {}").format(identifiers.Literal(instance)))
    where = identifiers.SQL(" AND ").join(limits) if limits else identifiers.SQL("true")
    chosen = identifiers.SQL(", ").join(identifiers.SQL("{}::text").format(one) for one in of)
    cursor = connection.connection.cursor()
    cursor.execute(identifiers.SQL("SELECT {} FROM {} WHERE {}").format(chosen, identifiers.Identifier(*table), where))
    count = 0
    while rows := cursor.fetchmany(AT_ONCE):
        count += sum(mentions.in_row(dict(zip(columns, row, strict=True))) for row in rows)
    return count


def _possible(columns: Sequence[identifiers.Identifier], mentions: Mentions) -> identifiers.Composed:
    """Rows of which some column has the longest value, or an escape. The others need not leave the server."""
    whole = identifiers.SQL("concat_ws(' ', {})").format(identifiers.SQL(", ").join(columns))
    each = (identifiers.SQL("position({} IN {}) > 0").format(identifiers.Literal(one), whole) for one in (mentions.longest_string, *ESCAPES))
    return identifiers.SQL("({})").format(identifiers.SQL(" OR ").join(each))


def _in_mysql(database: Database, table: str, mentions: Mentions) -> Iterator[tuple[str, int]]:
    def count(connection: Connection) -> int:
        if not mysql.tables(connection, table):
            return 0
        rows = connection.exec_driver_sql(f"SELECT * FROM {mysql.quoted(connection, table)}")
        return sum(mentions.in_row(dict(row._mapping)) for row in rows)

    if number := run(database, count):
        yield f"table {table}", number
