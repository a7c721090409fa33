"""Removes a dropped pipeline or output from the log, and notes the places outside the log that must be cleared.
docs/specification/drop.md.

One transaction removes the rows and notes each place. Then the places are cleared one by one, and each note is removed
when its place is clear. So a drop that was killed goes on from the notes.

Who calls it: `onlyonce.operate.drop`, and a starting driver (`refuse_left`). Not promised: that an old driver without a
session writes nothing more to Delta. It can commit no batch, since its epoch is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg2 import sql as identifiers
from sqlalchemy import Connection

from onlyonce.commitlog import authorities
from onlyonce.commitlog.authorities import Elsewhere
from onlyonce.commitlog.operate import removals
from onlyonce.commitlog.sinks import targets
from onlyonce.database import locks
from onlyonce.database.connect import ask, do, do_many
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.sinks import names

LOCK_WAIT = "5s"
"""How long the drop of the catalog waits for a reader."""


@dataclass(frozen=True)
class Dropped:
    """What of a pipeline (a bounded run, or one query of it) is in the log."""

    instances: dict[str, int]
    query: str | None
    lineages: dict[str, str]
    at_work: list[str]
    parts: list[Any] = field(default_factory=list)
    elsewhere: list[Elsewhere] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)

    def of(self, instance: str) -> list[str]:
        """The lineages of one instance."""
        return [lineage for lineage, whose in self.lineages.items() if whose == instance]


@dataclass(frozen=True)
class Left:
    """A place beside the log that a drop has to do with."""

    place: str
    instance: str
    query: str | None
    lineages: list[str]
    state: str


def look(connection: Connection, name: str, query: str | None) -> Dropped:
    """All that is in the log, held until the transaction ends: no driver starts or commits meanwhile."""
    instances = {row.instance: row.instance_no for row in ask(connection, "drop", "instances", name=name)}
    names = list(instances)
    known = ask(connection, "drop", "lineages", instances=names, query=query)
    ask(connection, "drop", "hold", lineages=[row.lineage for row in known])
    # Whoever drives any query of the instance may open this one next.
    beside = ask(connection, "drop", "lineages", instances=names, query=None)
    return Dropped(
        instances, query, {row.lineage: row.instance for row in known},
        [row.lineage for row in beside if row.at_work],
        ask(connection, "drop", "parts", instances=names, query=query),
        authorities.remembered(connection, [row.lineage for row in known]),
        dict(ask(connection, "drop", "rows", lineages=[row.lineage for row in known])[0]._mapping),
    )  # fmt: skip


def known(connection: Connection) -> list[str]:
    """The names that can be dropped."""
    return [row.instance for row in ask(connection, "drop", "known")]


def forget(connection: Connection, found: Dropped, leaves: Iterable[Left]) -> None:
    """Take all of it out of the log and note what is beside it: the point of no return."""
    lineages = list(found.lineages)
    do(connection, "drop", "forget_outbox", lineages=lineages)
    do(connection, "drop", "forget_files", lineages=lineages)
    do(connection, "drop", "forget_units", lineages=lineages)
    do(connection, "drop", "forget_window_counts", lineages=lineages)
    do(connection, "drop", "forget_panes", lineages=lineages)
    do(connection, "drop", "forget_backfills", lineages=lineages)
    do(connection, "drop", "forget_closes", lineages=lineages)
    do(connection, "drop", "forget_batches", lineages=lineages)
    do(connection, "drop", "forget_authorities", lineages=lineages)
    do(connection, "drop", "forget_lineages", lineages=lineages)
    do(connection, "drop", "forget_epochs", lineages=lineages)
    do(connection, "drop", "forget_declarations", instances=list(found.instances), query=found.query)
    if found.query is None:
        _forget_instances(connection, found.instances)
    leaves = list(leaves)
    outputs = None if found.query is None else [name for row in found.parts for name in row.parts.get("outputs", {})]
    targets.forget(connection, list(found.instances), outputs, [left.place for left in leaves])
    note(connection, leaves)


def forget_units(connection: Connection, lineages: list[str], ours: UUID | None) -> None:
    """Take units and epochs out of a sink's own database, but those of another platform under the same names.

    Does nothing where they never were. `ours`: the id of this platform's database.
    """
    if authorities.is_there(connection, "owners"):
        theirs = {
            row.lineage for row in ask(connection, "drop", "owned_by_others", lineages=lineages, platform=str(ours))
        }
        lineages = [lineage for lineage in lineages if lineage not in theirs]
        if not lineages:
            return
        do(connection, "drop", "forget_owners", lineages=lineages)
    if authorities.is_there(connection, "units"):
        # Waits for whoever is before its commit, and lets nobody begin: else a unit could come after its kind has gone.
        do(connection, "drop", "forget_epochs", lineages=lineages)
        do(connection, "drop", "forget_units", lineages=lineages)


def note(connection: Connection, leaves: Iterable[Left]) -> None:
    """Note places beside the log, or what has become of them."""
    do_many(connection, "drop", "leave", [vars(left) for left in leaves])


def left(connection: Connection, name: str, query: str | None) -> list[Left]:
    """What earlier drops have noted."""
    return [Left(*tuple(row)) for row in ask(connection, "drop", "left", name=name, query=query)]


def begun(connection: Connection) -> list[tuple[str, str | None, list[str]]]:
    """(instance, query, places) of each drop that has not ended."""
    return [(row.instance, row.query, row.places) for row in ask(connection, "drop", "begun")]


def settle(connection: Connection, left: Left) -> None:
    """A place is done: its note goes, and it is nobody's target."""
    targets.settle(connection, left.place, left.instance)
    do(connection, "drop", "settle", place=left.place)


def drop_table(connection: Connection, table: str) -> None:
    """Drop a sink's table with what was kept beside it. Nothing happens the second time."""
    schema, name = table.split(".")
    derived = {
        names.POSTGRES.by_window(name): stored_names.BY_WINDOW_NOTE,
        names.POSTGRES.deleted(name): stored_names.DELETED_NOTE,
    }
    for beside, note in derived.items():
        if note_of(connection, schema, beside) == note:
            _drop(connection, schema, beside)
    _drop(connection, schema, name)


def note_of(connection: Connection, schema: str, table: str) -> str | None:
    """The comment of a table; None where it has none, or is not there."""
    cursor = connection.connection.cursor()
    cursor.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", (f'"{schema}"."{table}"',))
    found = cursor.fetchone()
    return found[0] if found else None


def put_note(connection: Connection, schema: str, table: str, note: str) -> None:
    """Set the comment of a table.

    Leave the table of another owner as it is: PostgreSQL lets only its owner comment on it.
    """
    name = f'"{schema}"."{table}"'
    cursor = connection.connection.cursor()
    cursor.execute("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s)", (name,))
    if cursor.fetchone() == (True,):
        statement = identifiers.SQL("COMMENT ON TABLE {} IS {}")
        cursor.execute(statement.format(identifiers.Identifier(schema, table), identifiers.Literal(note)))


def refuse_left(connection: Connection, instance: str, places: list[str]) -> None:
    """A run writes to no place of a dropped pipeline. Raises Refused with the way out."""
    rows = ask(connection, "drop", "unsettled", instance=instance, places=places)
    if not rows:
        return
    row = rows[0]
    of = f"{row.instance} --output {row.query}" if row.query else row.instance
    if row.state == "going":
        raise Refused(
            f"the drop of {of} has not ended: {row.place} is still to be removed",
            data="nothing was read or written",
            hint=f"onlyonce drop {of} --yes goes on with it",
        )
    raise Refused(
        f"{row.place} has the rows of {of}, which was dropped: a new life would write them beside the old ones",
        data="nothing was read or written; the old rows are as they were",
        hint=f"name another target for the output, or remove the old rows: onlyonce drop {of} --tables --yes",
    )


def _forget_instances(connection: Connection, instances: dict[str, int]) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
    for number in instances.values():
        _drop(connection, stored_names.PRIVATE_SCHEMA, stored_names.catalog_table(number))
    names = list(instances)
    removals.forget(connection, names)
    do(connection, "drop", "forget_released_sets", instances=names)
    do(connection, "drop", "forget_releases", instances=names)
    do(connection, "drop", "forget_long_runs", instances=names)
    locks.forget(connection, names)
    do(connection, "drop", "forget_chunk_list", instances=names)
    do(connection, "drop", "forget_unacknowledged", instances=names)
    do(connection, "drop", "forget_subscriptions", instances=names)
    do(connection, "drop", "forget_deliverers", instances=names)
    do(connection, "drop", "forget_instances", instances=names)


def _drop(connection: Connection, schema: str, name: str) -> None:
    statement = identifiers.SQL("DROP TABLE IF EXISTS {}").format(identifiers.Identifier(schema, name))
    connection.connection.cursor().execute(statement)
