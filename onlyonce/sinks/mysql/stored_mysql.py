"""What an output's table in MySQL or MariaDB stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from onlyonce import environment
from onlyonce.database import mysql
from onlyonce.database.connect import Database, run
from onlyonce.declare.pipeline import MySQL
from onlyonce.model.operate.mentions import Mentions
from onlyonce.model.sinks import names
from onlyonce.sinks.stored import Rows, Stored


@dataclass(frozen=True)
class StoredInMySQL(Stored):
    """A table, and its table of deleted keys."""

    platform: Database
    sink: MySQL

    def rows(self, mentions: Mentions) -> Iterator[Rows]:
        """Yield each of the two tables with rows that mention the condition."""
        database = Database(environment.variable(self.sink.connection) or "", self.platform.name)
        for table in (self.sink.table, names.MYSQL.deleted(self.sink.table)):
            if count := run(database, lambda conn: _count(conn, table, mentions)):  # noqa: B023 - it is called here
                yield Rows(f"table {table}", count, "delete these rows in your table")

    def stays(self) -> str:
        """Return what of replaced rows stays."""
        return (
            "InnoDB purges replaced rows by itself; pages, the redo log and the binary log have them until they "
            "are written over (binlog_expire_logs_seconds); "
            "statistics that ANALYZE TABLE keeps of columns (histograms) have values until it makes them anew"
        )


def _count(connection: Connection, table: str, mentions: Mentions) -> int:
    if not mysql.tables(connection, table):
        return 0
    rows = connection.exec_driver_sql(f"SELECT * FROM {mysql.quoted(connection, table)}")
    return sum(mentions.in_row(dict(row._mapping)) for row in rows)
