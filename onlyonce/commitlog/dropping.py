"""Targets of outputs, and drops of pipelines and outputs.

A table or folder holds the rows of one output of one instance only (docs/specification/target.md).
`onlyonce.api.target_identity` decides whether two targets are the same. The log can't see writers outside this
platform.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg2 import sql as identifiers

from onlyonce.commitlog.incarnations import Declarations
from onlyonce.commitlog.removals import Removals
from onlyonce.commitlog.units import Authorities, Elsewhere
from onlyonce.core import ownership, stored_names
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.ownership import Place
from onlyonce.database import locks
from onlyonce.database.connect import Transactions, ask, do, do_many, one_transaction
from onlyonce.failpoints import passing


def another_target(instance: str, output: str, *, of: tuple[str, str]) -> str:
    """Return the hint for an output, `of` an instance, whose target another output has."""
    renamed = f"if {of[1]} is a new name of {output}, put name={output!r} back. Else " if of[0] == instance else ""
    return (
        f"{renamed}give this output another target. Or, if you no longer need {instance}/{output}: take it out of the "
        f"declaration, then `onlyonce drop {instance} --output {output} --tables`, which deletes that table and its "
        "rows"
    )


class Made(NamedTuple):
    """When the table of an output was made, and its id.

    `at` and `table_id` are None before the first run. `table_id` is None for a table without an id.
    """

    at: datetime | None
    table_id: str | None


class Claimed(NamedTuple):
    """The place of an output."""

    place: str
    instance: str
    output: str


class Targets(Transactions):
    """Which output has which target."""

    @one_transaction
    def claim(self, instance: str, output: str, place: Place, identity: str) -> Made:
        """Reserve a target for the output, and release the target that it had by another declaration.

        Return what the log says about the table. Raise Refused if the target belongs to another output.
        """
        do(self.connection, "targets", "one_at_a_time")
        asked = {"instance": instance, "output": output, "identity": identity}
        if others := ask(self.connection, "targets", "of_others", **asked):
            other = others[0]
            near = (
                "" if other.identity == identity else f" (one of it and {Place(other.place).where} is inside the other)"
            )
            raise Refused(
                f"output {output} of {instance}: {place.where} belongs to {other.instance}/{other.output}{near}",
                data="nothing of this output was written; a backfill or vacuum of one would remove the rows of "
                "the other",
                hint=another_target(other.instance, other.output, of=(instance, output)),
            )
        do(self.connection, "targets", "release", **asked)
        [found] = ask(self.connection, "targets", "claim", **asked, place=place.text)
        return Made(found.made_at, found.table_id)

    @one_transaction
    def has_kept(self, instance: str, output: str, query: str, place: Place) -> bool:
        """Return whether a batch has begun under a declaration by which the platform keeps a table next to `place`.

        That table was made before the batch began. `query`: the output that reads `events`; `place`: as declared.
        """
        asked = {"instance": instance, "output": output, "query": query, "place": place.text}
        return bool(ask(self.connection, "targets", "has_kept", **asked)[0].kept)

    @one_transaction
    def made(self, instance: str, output: str, table_id: str | None) -> None:
        """Note that the output's table exists.

        From now on a missing table counts as deleted, and a table with another id as dropped and made again.
        """
        do(self.connection, "targets", "made", instance=instance, output=output, table_id=table_id)

    @one_transaction
    def database(self) -> str:
        """Return the identity of this database, whatever address it was reached by."""
        return str(ask(self.connection, "targets", "database")[0].identity)

    @one_transaction
    def claimed(self) -> list[Claimed]:
        """Return the place of each output."""
        return [Claimed(row.place, row.instance, row.output) for row in ask(self.connection, "targets", "claimed")]

    @one_transaction
    def forget(self, instances: list[str], outputs: list[str] | None, kept: list[str]) -> None:
        """Release the targets of dropped instances, or of some of their outputs only. Keep the places that still have
        rows.
        """
        do(self.connection, "targets", "forget", instances=instances, outputs=outputs, kept=kept)

    @one_transaction
    def settle(self, place: str, instance: str) -> None:
        """Release the target of a table that was removed."""
        do(self.connection, "targets", "settle", place=place, instance=instance)


# Removes a dropped pipeline or output from the log, and notes the places outside the log that must be cleared.
# docs/specification/drop.md.
#
# One transaction removes the rows and notes each place. Then the places are cleared one by one, and each note is
# removed when its place is clear. So a drop that was killed continues from the notes.
#
# An old driver without a session may still write to Delta. It can commit no batch, since its epoch is gone.


LOCK_WAIT = "5s"
"""How long the drop of the id catalog waits for a reader."""


@dataclass(frozen=True)
class Parts:
    """The declaration of a query when it ran, in parts."""

    instance: str
    query: str
    parts: dict[str, Any]


@dataclass(frozen=True)
class Dropped:
    """The log's rows of a dropped pipeline, bounded run, or query."""

    instances: dict[str, int]
    query: str | None
    incarnations: dict[str, str]
    at_work: list[str]
    parts: list[Parts] = field(default_factory=list)
    elsewhere: list[Elsewhere] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    nothing_kept: bool = False

    def refuse_kept(self, name: str) -> None:
        """Raise Refused if something was kept: a declared pipeline is dropped only before it has kept anything."""
        if self.query is None and self.nothing_kept:
            return
        what = f"output {self.query} of {name}" if self.query else f"pipeline {name}"
        raise Refused(
            f"{what} is declared: its next run would begin it again",
            data="nothing was removed",
            hint="take it out of the file with the declarations first, then run the same command again",
        )

    def of(self, instance: str) -> list[str]:
        """Return the incarnations of one instance."""
        return [incarnation for incarnation, whose in self.incarnations.items() if whose == instance]


@dataclass(frozen=True)
class Left:
    """A place outside the log that a drop removes or leaves."""

    place: str
    instance: str
    query: str | None
    incarnations: list[str]
    state: str


class Drops(Transactions):
    """Drops of pipelines and outputs."""

    @one_transaction
    def look(self, name: str, query: str | None) -> Dropped:
        """Return what the log has of a pipeline or query, locked to the end: no driver starts or commits meanwhile."""
        instances = {row.instance: row.instance_no for row in ask(self.connection, "drop", "instances", name=name)}
        names = list(instances)
        known = ask(self.connection, "drop", "incarnations", instances=names, query=query)
        ask(self.connection, "drop", "hold", incarnations=[row.incarnation for row in known])
        # A driver of any query of the instance may start this query next.
        beside = ask(self.connection, "drop", "incarnations", instances=names, query=None)
        return Dropped(
            instances, query, {row.incarnation: row.instance for row in known},
            [row.incarnation for row in beside if row.at_work],
            [Parts(**row._mapping) for row in ask(self.connection, "drop", "parts", instances=names, query=query)],
            Authorities(self.connection).remembered([row.incarnation for row in known]),
            dict(ask(self.connection, "drop", "rows", incarnations=[row.incarnation for row in known])[0]._mapping),
            Declarations(self.connection).nothing_kept(name),
        )  # fmt: skip

    @one_transaction
    def known(self) -> list[str]:
        """Return the names that can be dropped."""
        return [row.instance for row in ask(self.connection, "drop", "known")]

    @one_transaction
    def begin(self, name: str, query: str | None, leaves: Iterable[Left], *, declared: bool) -> None:
        """Remove a pipeline or query from the log. Raise Retryable if a driver has started.

        Raise Refused if it is declared, and has kept something.
        """
        found = self.look(name, query)
        if declared:
            found.refuse_kept(name)
        if found.at_work:
            raise Retryable(
                f"a driver of {found.at_work[0]} has started", data="nothing was removed", hint="stop it first"
            )
        passing("drop-before-log")
        self.forget(found, leaves)

    @one_transaction
    def forget(self, found: Dropped, leaves: Iterable[Left]) -> None:
        """Remove what was found from the log, and note the places outside. This is the point of no return."""
        incarnations = list(found.incarnations)
        do(self.connection, "drop", "forget_outbox", incarnations=incarnations)
        do(self.connection, "drop", "forget_files", incarnations=incarnations)
        do(self.connection, "drop", "forget_units", incarnations=incarnations)
        do(self.connection, "drop", "forget_window_counts", incarnations=incarnations)
        do(self.connection, "drop", "forget_panes", incarnations=incarnations)
        do(self.connection, "drop", "forget_backfills", incarnations=incarnations)
        do(self.connection, "drop", "forget_markers", incarnations=incarnations)
        do(self.connection, "drop", "forget_batches", incarnations=incarnations)
        do(self.connection, "drop", "forget_authorities", incarnations=incarnations)
        do(self.connection, "drop", "forget_incarnations", incarnations=incarnations)
        do(self.connection, "drop", "forget_epochs", incarnations=incarnations)
        do(self.connection, "drop", "forget_declarations", instances=list(found.instances), query=found.query)
        if found.query is None:
            self._forget_instances(found.instances)
        leaves = list(leaves)
        outputs = (
            None if found.query is None else [name for row in found.parts for name in row.parts.get("outputs", {})]
        )
        Targets(self.connection).forget(list(found.instances), outputs, [left.place for left in leaves])
        self.note(leaves)

    @one_transaction
    def forget_units(self, incarnations: list[str], ours: UUID | None) -> None:
        """Remove units and epochs from a sink's own database. Keep another platform's units under the same names.

        Do nothing if the tables don't exist there. `ours`: the id of this platform's database.
        """
        if Authorities(self.connection).is_there("owners"):
            theirs = {
                row.incarnation
                for row in ask(
                    self.connection, "drop", "owned_by_others", incarnations=incarnations, platform=str(ours)
                )
            }
            incarnations = [incarnation for incarnation in incarnations if incarnation not in theirs]
            if not incarnations:
                return
            do(self.connection, "drop", "forget_owners", incarnations=incarnations)
        if Authorities(self.connection).is_there("units"):
            # This waits for a transaction before its commit and blocks new ones: otherwise a unit could still arrive
            # after the units are removed.
            do(self.connection, "drop", "forget_epochs", incarnations=incarnations)
            do(self.connection, "drop", "forget_units", incarnations=incarnations)

    @one_transaction
    def note(self, leaves: Iterable[Left]) -> None:
        """Note places outside the log, or their new state."""
        do_many(self.connection, "drop", "leave", [vars(left) for left in leaves])

    @one_transaction
    def left(self, name: str, query: str | None) -> list[Left]:
        """Return the places that earlier drops have noted."""
        return [Left(*tuple(row)) for row in ask(self.connection, "drop", "left", name=name, query=query)]

    @one_transaction
    def begun(self) -> list[tuple[str, str | None, list[str]]]:
        """Return (instance, query, places) of each drop that has not ended."""
        return [(row.instance, row.query, row.places) for row in ask(self.connection, "drop", "begun")]

    @one_transaction
    def settle(self, left: Left) -> None:
        """Remove the note of a place that is done, and release it as a target."""
        Targets(self.connection).settle(left.place, left.instance)
        do(self.connection, "drop", "settle", place=left.place)

    @one_transaction
    def drop_table(self, table: str) -> None:
        """Drop a sink's table with the tables derived from it. A second call does nothing."""
        schema, name = table.split(".")
        derived = {
            ownership.POSTGRES.window_sums(name): stored_names.BY_WINDOW_NOTE,
            ownership.POSTGRES.deleted(name): stored_names.DELETED_NOTE,
        }
        for beside, note in derived.items():
            if self.note_of(schema, beside) == note:
                self._drop(schema, beside)
        self._drop(schema, name)

    @one_transaction
    def note_of(self, schema: str, table: str) -> str | None:
        """Return the comment of a table; None if it has none or does not exist."""
        cursor = self.connection.connection.cursor()
        cursor.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", (f'"{schema}"."{table}"',))
        found = cursor.fetchone()
        return found[0] if found else None

    @one_transaction
    def put_note(self, schema: str, table: str, note: str) -> None:
        """Set the comment of a table.

        Leave the table of another owner as it is: In PostgreSQL only its owner can comment on it.
        """
        name = f'"{schema}"."{table}"'
        cursor = self.connection.connection.cursor()
        cursor.execute("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s)", (name,))
        if cursor.fetchone() == (True,):
            statement = identifiers.SQL("COMMENT ON TABLE {} IS {}")
            cursor.execute(statement.format(identifiers.Identifier(schema, table), identifiers.Literal(note)))

    @one_transaction
    def refuse_left(self, instance: str, places: list[str]) -> None:
        """Raise Refused if a run would write to a place of a dropped pipeline."""
        rows = ask(self.connection, "drop", "unsettled", instance=instance, places=places)
        if not rows:
            return
        row = rows[0]
        of = f"{row.instance} --output {row.query}" if row.query else row.instance
        if row.state == "going":
            raise Refused(
                f"the drop of {of} has not ended: {row.place} is still to be removed",
                data="nothing was read or written",
                hint=f"onlyonce drop {of} --yes continues it",
            )
        raise Refused(
            f"{row.place} has the rows of {of}, which was dropped: a new incarnation would write them next to the old "
            "ones",
            data="nothing was read or written; the old rows are as they were",
            hint=f"name another target for the output, or remove the old rows: onlyonce drop {of} --tables --yes",
        )

    def _forget_instances(self, instances: dict[str, int]) -> None:
        self.connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
        for number in instances.values():
            self._drop(stored_names.PRIVATE_SCHEMA, stored_names.catalog_table(number))
        names = list(instances)
        Removals(self.connection).forget(names)
        do(self.connection, "drop", "forget_reprocessed_sets", instances=names)
        do(self.connection, "drop", "forget_reprocessings", instances=names)
        do(self.connection, "drop", "forget_long_runs", instances=names)
        locks.forget(self.connection, names)
        do(self.connection, "drop", "forget_chunk_list", instances=names)
        do(self.connection, "drop", "forget_unacknowledged", instances=names)
        do(self.connection, "drop", "forget_subscriptions", instances=names)
        do(self.connection, "drop", "forget_answers", instances=names)
        do(self.connection, "drop", "forget_deliverers", instances=names)
        do(self.connection, "drop", "forget_instances", instances=names)

    def _drop(self, schema: str, name: str) -> None:
        statement = identifiers.SQL("DROP TABLE IF EXISTS {}").format(identifiers.Identifier(schema, name))
        self.connection.connection.cursor().execute(statement)
