"""Search the platform's own tables for what mentions a condition, and rewrite the tables from which an erasure has
deleted rows.

PostgreSQL leaves deleted rows on the pages of a table and of its indexes, and VACUUM FULL makes new files without them.
No statistics are kept of the columns that have values of records. Errors: DatabaseAway; Retryable while an older
transaction still sees the deleted rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from onlyonce import settings
from onlyonce.commitlog.operate import erasures
from onlyonce.commitlog.operate.erasures import Erasures
from onlyonce.database.connect import Database, Session, run
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.errors import Retryable
from onlyonce.model.operate.mentions import Mentions
from onlyonce.sinks.postgres import stored_postgres
from onlyonce.sinks.stored import Rows

SEEN = re.compile(r"([1-9]\d*) dead row versions cannot be removed yet")
GO = {
    "alerts": "the alert deletes them once their cause has gone",
    "long_runs": "the next long run of the pipeline replaces them",
    "looks": "the next onlyonce doctor replaces them",
    "rejected": "an onlyonce backfill of their windows replaces them, and keep_events removes them",
}
"""When rows of a table of the platform are gone that quote a record: by the table's name."""
STAY = "keep_log cuts the log of batches, and onlyonce drop deletes all rows of a pipeline"
STATEMENTS_GO = "a superuser removes it by pg_stat_statements_reset()"


def found(database: Database, pipeline: Pipeline, mentions: Mentions) -> Iterator[Rows]:
    """Yield each table of the platform with rows that mention the condition, or with statistics that do."""
    collected = f"onlyonce collect deletes them after {settings.keep_units_days()} days (ONLYONCE_KEEP_UNITS_DAYS)"
    goes = GO | {"driver_runs": collected, "outbox": f"once they are delivered, {collected}"}
    for schema in erasures.OWN_SCHEMAS:
        for name in Erasures(database).tables(schema):
            table = (schema, name)
            if count := run(database, lambda conn: stored_postgres.counted(conn, table, mentions, pipeline.name)):  # noqa: B023
                yield Rows(f"table {'.'.join(table)}", count, goes.get(name, STAY))
            if count := run(database, lambda conn: stored_postgres.in_statistics(conn, table, mentions)):  # noqa: B023
                yield Rows(f"pg_stats of {'.'.join(table)}", count, stored_postgres.STATISTICS_GO)
    if count := sum(map(mentions.in_string, Erasures(database).statements())):
        yield Rows("pg_stat_statements", count, STATEMENTS_GO)


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
    Erasures(connection).rewrite(table)
    if any(SEEN.search(notice) for notice in notices):
        raise Retryable(
            f"an older transaction still sees rows that were deleted from {table}",
            data="the rows are deleted, and their bytes are on the table's pages until it ends",
            hint="let that transaction end (a backup, or a session that is idle in a transaction); then run the "
            "same command again",
        )
