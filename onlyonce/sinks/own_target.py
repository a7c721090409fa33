"""Claims an output's target before its table is made, and notices if somebody has deleted the table.
docs/specification/target.md.

The log knows the targets of this platform. What another platform has written is known by the note in the table or
folder itself (`model.sinks.owner`).

Who calls it: `results`, for runs and backfills. Errors: Refused for the target of another output or platform, and for a
deleted table; Retryable while its database or store is away. Not promised: anything about sinks to which rows are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from deltalake.exceptions import DeltaError
from sqlalchemy import Connection

from onlyonce import settings
from onlyonce.commitlog import authorities
from onlyonce.commitlog.operate.dropping import Drops
from onlyonce.commitlog.sinks.targets import Targets
from onlyonce.context.run_context import RunContext
from onlyonce.database import mysql
from onlyonce.database.connect import Database, run
from onlyonce.declare import target_identity
from onlyonce.declare.pipeline import Output, target
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.operate.dropping import TABLES, Place
from onlyonce.model.sinks import owner
from onlyonce.sinks.files.stores import store_of
from onlyonce.storage import delta, opening


@contextmanager
def claimed(context: RunContext, output: Output) -> Iterator[None]:
    """Around the making of an output's table: the target is this output's alone, however it is spelled, and what was
    made once is not made again without a word."""
    declared, suffix = Place(target(context.pipeline, output)), context.target_suffix()
    if declared.kind not in TABLES:
        yield
        return
    identity, place = target_identity.identity(declared, _database, suffix), declared.of_run(suffix)
    made = Targets(context.database).claim(context.instance, output.name, place, identity)
    again = (
        "make it again from `events`: take the output out of the declaration, "
        f"onlyonce drop {context.pipeline.name} --output {output.name} --tables --yes, and declare it again"
    )
    if made.at is not None and not _is_there(place):
        raise Refused(
            f"output {output.name}: {place.where} is gone; it was there since {made.at:%Y-%m-%d %H:%M}",
            data="nothing was written: a new table would hold the newest rows only, while the log says that all "
            "are there",
            hint=f"put it back from a copy; or {again}",
        )
    if made.table_id is not None:
        owner.refuse_replaced(
            f"output {output.name}: {place.where}",
            made.table_id,
            _table_id(place),
            f"put the old table back from a copy; or {again}, which removes this table",
        )
    owner.refuse_other(_note(place), context.platform, output.name, place.where)
    yield
    if made.at is None:
        _put_note(place, owner.note(context.platform))
        owner.refuse_other(
            _note(place), context.platform, output.name, place.where
        )  # two platforms may have come at once
        Targets(context.database).made(context.instance, output.name, _table_id(place))


def _database(variable: str | None) -> str:
    return Targets(Database(authorities.url_of(variable))).database()


def _is_there(place: Place) -> bool:
    if place.kind == "delta":
        return delta.exists(settings.table_location(place.where))
    if place.kind == "files":
        return True  # each window has files of its own, which the log names

    if place.kind == "iceberg":
        from onlyonce.sinks.iceberg import catalogs  # with it comes pyiceberg, an extra

        return catalogs.of_target(place) is not None

    def look(connection: Connection) -> bool:
        if place.kind == "mysql":
            return bool(mysql.tables(connection, place.where))
        schema, table = place.where.split(".", 1)
        cursor = connection.connection.cursor()
        cursor.execute("SELECT to_regclass(format('%%I.%%I', %s, %s)) IS NOT NULL", (schema, table))
        [(there,)] = cursor.fetchall()
        return bool(there)

    return run(_at(place), look)


def _table_id(place: Place) -> str | None:
    """Return the id that a Delta or Iceberg table got when it was made. None for other places.

    A database's table has none that stays: a rewrite of the table by its owner, and a restore, make another oid. Its
    units are in the same database, and a unit that is there is never written again, whatever became of the rows.
    """
    if place.kind == "delta":
        at = settings.table_location(place.where)
        return str(opening.table(at).metadata().id) if delta.exists(at) else None
    if place.kind == "iceberg":
        from onlyonce.sinks.iceberg import catalogs  # with it comes pyiceberg, an extra

        return catalogs.table_id(place)
    return None


def _note(place: Place) -> str | None:
    """Return what a target says of itself: a property in Delta, a comment in a database, a file in a folder.

    None if there is no note.
    """
    if place.kind == "delta":
        at = settings.table_location(place.where)
        return opening.table(at).metadata().configuration.get(owner.PROPERTY) if delta.exists(at) else None
    if place.kind == "postgres":
        schema, table = place.where.split(".", 1)
        return Drops(_at(place)).note_of(schema, table)
    if place.kind == "mysql":
        there = run(_at(place), lambda connection: mysql.tables(connection, place.where))
        return there[0].note if there else None
    if place.kind == "files":
        with _reached(place):
            return store_of(place.where).note()
    return None  # an Iceberg table names its owner by `iceberg.owners`


def _put_note(place: Place, note: str) -> None:
    """Put the note into a table that has none.

    A comment of a team stays; so does a table that this account or library can't alter.
    """
    if _note(place):
        return
    if place.kind == "delta":
        with suppress(
            DeltaError
        ):  # a feature that deltalake does not write: its transaction ids are this platform's all the same
            opening.set_property(settings.table_location(place.where), owner.PROPERTY, note)
    elif place.kind == "postgres":
        schema, table = place.where.split(".", 1)
        Drops(_at(place)).put_note(schema, table, note)
    elif place.kind == "mysql":
        run(_at(place), lambda connection: mysql.put_note(connection, place.where, note))
    elif place.kind == "files":
        with _reached(place):
            store_of(place.where).put_note(note)


@contextmanager
def _reached(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Retryable(
            f"{place.where}: {error}", data="nothing was written there",
            hint="see that the folder or store can be reached and written, then run the same command again",
        ) from error  # fmt: skip


def _at(place: Place) -> Database:
    return Database(authorities.url_of(place.variable))
