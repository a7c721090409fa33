"""The database of a MySQL sink, by the variable that it names. Without Spark.

Who calls it: whoever reads or writes the sink's table. Errors: Refused where the variable is not set, or names no
MySQL.
"""

from __future__ import annotations

from onlyonce.commitlog import authorities
from onlyonce.database import mysql
from onlyonce.database.connect import Database
from onlyonce.declare.declaration import declared_at
from onlyonce.declare.outputs.sinks import MySQL
from onlyonce.model.errors import Refused


def database_of(sink: MySQL) -> Database:
    """Where the sink's table is."""
    database = authorities.database_of(sink.connection)
    if not mysql.is_mysql(database.url):
        raise Refused(
            f"{declared_at(sink)}the environment variable {sink.connection} of a MySQL sink names a database of "
            "another kind",
            data="nothing was read or written",
            hint="write its URL as mysql://user:password@host:3306/database; for PostgreSQL declare Postgres(…)",
        )
    return database
