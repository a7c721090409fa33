"""What a table of PostgreSQL stores: its rows, TOASTed values whole, and the values that the planner's statistics keep
of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg2 import sql as identifiers
from sqlalchemy import Connection

from onlyonce import environment
from onlyonce.commitlog.operate.erasures import Erasures
from onlyonce.database.connect import Database, Session, run
from onlyonce.declare.pipeline import Postgres
from onlyonce.model.operate.mentions import ESCAPES, Mentions
from onlyonce.model.sinks import names
from onlyonce.sinks.stored import Mentioned, Rows, Stored

AT_ONCE = 10_000
GOES = "delete these rows in your table, then VACUUM (FULL, ANALYZE) it"
STATISTICS_GO = "ANALYZE the table once it has other rows; statistics of an empty table stay until it is dropped"


@dataclass(frozen=True)
class StoredInPostgres(Stored):
    """A table, and its table of deleted keys."""

    platform: Database
    sink: Postgres

    def rows(self, mentions: Mentions) -> Iterator[Rows]:
        """Yield what has rows or statistics that mention the condition."""
        for table in self._tables():
            if count := run(self._database(), lambda conn: counted(conn, table, mentions)):  # noqa: B023 - it is called here
                yield Rows(f"table {'.'.join(table)}", count, GOES)
            if count := run(self._database(), lambda conn: in_statistics(conn, table, mentions)):  # noqa: B023
                yield Rows(f"pg_stats of {'.'.join(table)}", count, STATISTICS_GO)

    def clean(self, mentions: Mentions, mentioned: Mentioned) -> None:
        """Make new statistics where the old ones mention the condition."""
        session = Session(self._database())
        try:
            for table in self._tables():
                session.ask(lambda conn: _analyze(conn, table, mentions))  # noqa: B023 - it is called here
        finally:
            session.close()

    def stays(self) -> str:
        """Return what of replaced rows stays."""
        return f"replaced rows stay on the pages of the table and of its indexes until VACUUM (FULL) {self.sink.table}"

    def _tables(self) -> list[tuple[str, str]]:
        schema, table = self.sink.table.split(".")
        return [(schema, table), (schema, names.POSTGRES.deleted(table))]

    def _database(self) -> Database:
        sink = self.sink
        url = self.platform.url if sink.connection is None else environment.variable(sink.connection)
        return Database(url or "", self.platform.name)


def counted(connection: Connection, table: tuple[str, str], mentions: Mentions, instance: str | None = None) -> int:
    """Return how many rows of a table mention the condition; 0 if there is no such table.

    `instance`: only rows of that pipeline.
    """
    columns = Erasures(connection).searched_columns(*table, [*mentions.condition.values])
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


def in_statistics(connection: Connection, table: tuple[str, str], mentions: Mentions) -> int:
    """Return of how many columns of a table the planner's statistics mention the condition."""
    return sum(
        mentions.in_row({f"statistics of {column}": values})
        for column, values in Erasures(connection).statistics(*table)
    )


def _possible(columns: Sequence[identifiers.Identifier], mentions: Mentions) -> identifiers.Composed:
    """Rows of which some column has the longest value, or an escape. The others need not leave the server."""
    whole = identifiers.SQL("concat_ws(' ', {})").format(identifiers.SQL(", ").join(columns))
    each = (
        identifiers.SQL("position({} IN {}) > 0").format(identifiers.Literal(one), whole)
        for one in (mentions.longest_string, *ESCAPES)
    )
    return identifiers.SQL("({})").format(identifiers.SQL(" OR ").join(each))


def _analyze(connection: Connection, table: tuple[str, str], mentions: Mentions) -> None:
    if in_statistics(connection, table, mentions):
        connection.connection.cursor().execute(identifiers.SQL("ANALYZE {}").format(identifiers.Identifier(*table)))
