"""Claims an output's target before its table is made, and notices if somebody has deleted the table. PROTOCOL.md, 1.

Who calls it: `results`, for runs and backfills. Errors: Refused for the target of another output, and for a deleted table;
Retryable while its database is away. Not promised: anything about sinks to which rows are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from onlyonce import settings
from onlyonce.commitlog import authorities
from onlyonce.commitlog.sinks import targets
from onlyonce.context.run_context import RunContext
from onlyonce.database import mysql
from onlyonce.database.connect import Database, run
from onlyonce.declare import target_identity
from onlyonce.declare.pipeline import Output, target
from onlyonce.model.errors import Refused
from onlyonce.model.operate.dropping import TABLES, Place
from onlyonce.storage import delta


@contextmanager
def claimed(context: RunContext, output: Output) -> Iterator[None]:
    """Around the making of an output's table: the target is this output's alone, however it is spelled, and what was made once is
    not made again without a word."""
    declared, suffix = Place(target(context.pipeline, output)), context.target_suffix()
    if declared.kind not in TABLES:
        yield
        return
    identity, place = target_identity.identity(declared, _database, suffix), Place(declared.text + suffix)
    made = run(context.database, lambda conn: targets.claim(conn, context.instance, output.name, place, identity))
    if made is not None and not _is_there(place):
        raise Refused(
            f"output {output.name}: {place.where} is gone; it was there since {made:%Y-%m-%d %H:%M}",
            data="nothing was written: a new table would hold the newest rows only, while the log says that all are there",
            hint="put it back from a copy; or make it again from `events`: take the output out of the declaration, "
            f"onlyonce drop {context.pipeline.name} --output {output.name} --tables --yes, and declare it again",
        )
    yield
    if made is None:
        run(context.database, lambda conn: targets.made(conn, context.instance, output.name))


def _database(variable: str | None) -> str:
    return run(Database(authorities.url_of(variable)), targets.database)


def _is_there(place: Place) -> bool:
    if place.kind == "delta":
        return delta.exists(settings.table_location(place.where))
    if place.kind == "files":
        return True  # each window has files of its own, which the log names

    if place.kind == "iceberg":
        from onlyonce.sinks.iceberg import catalogs  # with it comes pyiceberg, an extra

        return catalogs.is_there(place)

    def look(connection: Connection) -> bool:
        if place.kind == "mysql":
            return bool(mysql.tables(connection, place.where))
        schema, table = place.where.split(".", 1)
        cursor = connection.connection.cursor()
        cursor.execute("SELECT to_regclass(format('%%I.%%I', %s, %s)) IS NOT NULL", (schema, table))
        [(there,)] = cursor.fetchall()
        return bool(there)

    return run(Database(authorities.url_of(place.variable)), look)
