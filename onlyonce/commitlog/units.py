"""A unit's transaction: claim the unit, check the epoch, write the rows (the caller does this), store the content.
docs/specification/unit.md. Also the databases in which an incarnation may have units.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from math import isfinite
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection, Row, make_url
from sqlalchemy.exc import ArgumentError

from onlyonce import environment, settings
from onlyonce.catalog.chunks import Chunks, LookUps, Place
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.core.batch import Plan
from onlyonce.core.database_url import EXAMPLE, is_postgres, with_driver
from onlyonce.core.errors import CommitStateUnknown, DatabaseAway, InvariantBroken, Refused
from onlyonce.core.units import Content, Counts, FloatSum, UnitId, compare
from onlyonce.database import mysql
from onlyonce.database.connect import Database, Transactions, ask, do, one_transaction, run, transaction
from onlyonce.database.migrate import migrate_authority
from onlyonce.failpoints import passing

FATES = ("kept", "invalid", "expired", "duplicate", "unknown_fields")
"""The names by which a unit of receive counts its records."""


@dataclass(frozen=True)
class Claim:
    """The content of a unit's first statement: the driver that wants to commit it, and its kind.

    The rows of a data unit are in the transaction; if the unit exists, they are skipped. The rows of a reference unit
    go elsewhere; if the unit exists, they are emitted again. An existing unit of either kind is compared first.
    """

    unit: UnitId
    epoch: int
    attempt: str
    kind: Literal["data", "reference"]


@dataclass(frozen=True)
class Chunk:
    """The ids of a unit of receive as the id catalog keeps them, and their filter."""

    place: Place
    ids: bytes
    filter: bytes


@dataclass(frozen=True)
class Unit:
    """A unit of a batch, as stored in a log or in a sink's own database.

    Only a unit of receive has the counts of its records, from `kept` on.
    """

    unique_id: str
    sink: str
    partition: int
    epoch: int
    attempt: str
    kind: str
    rows: int
    content_hash: str
    float_sums: dict[str, Any]
    committed_at: datetime
    writes: int
    kept: int = 0
    invalid: int = 0
    expired: int = 0
    duplicate: int = 0
    unknown_fields: int = 0
    largest: datetime | None = None

    @property
    def content(self) -> Content:
        """The unit's rows, hash and sums."""
        return _content(self.rows, self.content_hash, self.float_sums)


class Units(Transactions):
    """Units, in the log or in a sink's own database."""

    @one_transaction
    def claim(self, wanted: Claim) -> Content | None:
        """Insert the unit, then check the epoch. Return None if the unit is ours to fill, else the existing unit's
        content.

        The unique index makes a twin wait here for the other's commit or rollback, so there is no moment between a read
        and a write. Raise Superseded.
        """
        unit = wanted.unit
        ours = do(
            self.connection, "units", "claim",
            unique_id=str(unit), incarnation=unit.incarnation, batch_id=unit.batch_id, sink=unit.sink,
            partition=unit.partition, epoch=wanted.epoch, attempt=wanted.attempt, kind=wanted.kind,
        )  # fmt: skip
        Incarnations(self.connection).check_epoch(unit.incarnation, wanted.epoch)
        return None if ours else self.find(unit)

    @one_transaction
    def commit(self, wanted: Claim, content: Content, points: str) -> None:
        """Claim and fill a unit whose rows go elsewhere. Compare it with the existing unit if there is one.

        `points`: the prefix of its fail-point's name.
        """
        there = self.claim(wanted)
        passing(f"{points}-unit-after-claim")
        if there is not None:
            compare(wanted.unit, there, content)
            return
        self.fill(wanted.unit, content)

    @one_transaction
    def commit_received(
        self, wanted: Claim, content: Content, counts: Counts, chunk: Chunk | None, took: LookUps
    ) -> bool:
        """Claim and fill a unit of receive with its chunk of the id catalog. Return whether the chunk was added.

        Compare it with the existing unit if there is one. `chunk` is None if the bucket of the unit may be removed.
        """
        passing("receive-unit-before-claim")
        there = self.claim(wanted)
        passing("receive-unit-after-claim")
        if there is not None:
            compare(wanted.unit, there, content)
            return False
        if chunk is not None:
            Chunks(self.connection).add(chunk.place, chunk.ids, chunk.filter)
        self.fill(wanted.unit, content, counts)
        Chunks(self.connection).note_look_ups(str(wanted.unit), took)
        passing("receive-unit-before-commit")
        return chunk is not None

    @one_transaction
    def fill(self, unit: UnitId, content: Content, counts: Counts | None = None) -> None:
        """Store the unit's content, in the transaction of its claim."""
        fates: dict[str, Any] = dict.fromkeys((*FATES, "largest"))
        if counts is not None:
            fates = {name: getattr(counts, name) for name in fates}
        do(
            self.connection,
            "units",
            "fill",
            unique_id=str(unit),
            rows=content.rows,
            content_hash=content.exact,
            float_sums=_as_json(content.floats),
            **fates,
        )

    @one_transaction
    def commit_same(
        self, incarnation: str, batch_id: int, sink: str, partitions: int, epoch: int, content: Content
    ) -> dict[UnitId, Content]:
        """Claim all data units of a sink's batch, check the epoch, and fill the units that are now ours with the same
        content.

        This takes as many statements as one unit. Return the other units with their content. Raise Superseded.
        """
        wanted = {number: UnitId(incarnation, batch_id, sink, number) for number in range(partitions)}
        ours = ask(
            self.connection, "units", "claim_all", incarnation=incarnation, batch_id=batch_id, sink=sink, epoch=epoch,
            unique_ids=[str(unit) for unit in wanted.values()], partitions=[*wanted],
        )  # fmt: skip
        Incarnations(self.connection).check_epoch(incarnation, epoch)
        filled = {wanted[row.partition] for row in ours}
        do(
            self.connection, "units", "fill_all", unique_ids=[str(unit) for unit in filled],
            rows=content.rows, content_hash=content.exact, float_sums=_as_json(content.floats),
        )  # fmt: skip
        if len(filled) == partitions:
            return {}
        there = self.contents(incarnation, batch_id, sink)
        return {unit: there[unit] for unit in wanted.values() if unit not in filled}

    @one_transaction
    def commit_nothing(self, plan: Plan, sink: str, epoch: int, nothing: Content, *, compared: bool) -> None:
        """Commit all data units of a sink's batch that has no rows.

        Compare existing units, unless `compared` is False: then they hold nothing that can be compared.
        """
        there = self.commit_same(plan.incarnation, plan.batch_id, sink, plan.partitions, epoch, nothing)
        if compared:
            for unit, found in there.items():
                compare(unit, found, nothing)

    @one_transaction
    def find(self, unit: UnitId) -> Content | None:
        """Return the content of a unit, or None if the unit does not exist."""
        rows = ask(self.connection, "units", "find", unique_id=str(unit))
        return _content(rows[0].rows, rows[0].content_hash, _float_sums(rows[0])) if rows else None

    @one_transaction
    def contents(self, incarnation: str, batch_id: int, sink: str) -> dict[UnitId, Content]:
        """Return the units of one sink's batch, each with its content."""
        there = [one for one in self.of_batch(incarnation, batch_id) if one.sink == sink]
        return {UnitId(incarnation, batch_id, sink, one.partition): one.content for one in there}

    @one_transaction
    def of_batch(self, incarnation: str, batch_id: int) -> list[Unit]:
        """Return all units of a batch."""
        return [
            _unit(row) for row in ask(self.connection, "units", "of_batch", incarnation=incarnation, batch_id=batch_id)
        ]

    @one_transaction
    def copy(self, incarnation: str, batch_id: int, unit: Unit, authority: str) -> None:
        """Copy a unit from the database of another authority."""
        values = asdict(unit) | {"float_sums": json.dumps(unit.float_sums)}
        do(
            self.connection, "units", "copy_to_log",
            incarnation=incarnation, batch_id=batch_id, authority=authority, **values,
        )  # fmt: skip

    @one_transaction
    def note_snapshot(self, unit: UnitId, snapshot_id: int) -> None:
        """Store which snapshot of an Iceberg table has the rows of a unit. For people: no decision depends on it."""
        do(self.connection, "units", "note_snapshot", unique_id=str(unit), snapshot_id=snapshot_id)

    @one_transaction
    def note(self, unit: UnitId, epoch: int, attempt: str, rows: int) -> None:
        """Note rows that no claim guards, in the transaction that writes them. Called in at-least-once mode."""
        do(
            self.connection, "units", "note",
            unique_id=str(unit), incarnation=unit.incarnation, batch_id=unit.batch_id, sink=unit.sink,
            partition=unit.partition, epoch=epoch, attempt=attempt, rows=rows,
        )  # fmt: skip

    @one_transaction
    def noted(self, incarnation: str, batch_id: int, sink: str) -> int:
        """Return how many rows all attempts at a batch have written to a sink without a claim."""
        return int(
            ask(self.connection, "units", "noted", incarnation=incarnation, batch_id=batch_id, sink=sink)[0].rows
        )


def expect(there: Iterable[Unit], sink: str, partitions: int, incarnation: str, batch_id: int) -> None:
    """Raise InvariantBroken unless each of the recorded partitions has its unit. Called before a batch ends."""
    found = {one.partition for one in there if one.sink == sink}
    if found != set(range(partitions)):
        missing = sorted(set(range(partitions)) - found) or sorted(found - set(range(partitions)))
        raise InvariantBroken(
            f"batch {incarnation}/{batch_id}: the units of {sink} don't match its {partitions} partitions: {missing}",
            data="the batch is not marked as committed",
            hint="look at onlyonce.commits for this batch, then run the same command again",
        )


def _unit(row: Row[Any]) -> Unit:
    known = row._mapping
    counts = {name: known.get(name) or 0 for name in FATES}
    return Unit(**{**known, "float_sums": _float_sums(row), **counts})


def _content(rows: int, exact: str, sums: dict[str, Any]) -> Content:
    return Content(rows, exact, {name: _float_sum(*values) for name, values in sums.items()})


def _float_sums(row: Row[Any]) -> dict[str, Any]:
    # MySQL returns JSON as a string.
    found = row.float_sums or {}
    return dict(json.loads(found) if isinstance(found, str) else found)


def _as_json(floats: dict[str, FloatSum]) -> str:
    # A sum may exceed a double, and JSON has no infinity: such a value is a string that float() reads.
    sums = {name: [one.total, one.size, one.nan, one.high, one.low] for name, one in floats.items()}
    return json.dumps(
        {name: [value if isfinite(value) else str(value) for value in values] for name, values in sums.items()}
    )


def _float_sum(total: Any, size: Any, nan: int, high: int, low: int) -> FloatSum:
    return FloatSum(float(total), float(size), nan, high, low)


# The databases in which an incarnation may have units: the platform's own, and the databases of its sinks (PostgreSQL,
# MySQL). docs/specification/incarnation.md.
#
# The log notes each database for each incarnation, before an epoch is first stored there. The note stays when a later
# declaration no longer has that database. Every decision that depends on "is there a unit?" asks all of them, through
# this module. The asker's epoch is raised in each of them first, so no older driver can change the answer.
#
# A database that is unreachable never counts as "no unit": DatabaseAway is raised. Refused is raised if a variable is
# not set, or names another database than before.


@dataclass(frozen=True)
class Elsewhere:
    """A database in which an incarnation may have units: the variable that names it, and the database's id if it is
    known.
    """

    incarnation: str
    authority: str
    database_id: UUID | None


MYSQL = "mysql://user:password@host:3306/database"
KINDS = {"postgresql": ("PostgreSQL", "Postgres", EXAMPLE), "mysql": ("MySQL", "MySQL", MYSQL)}
"""The kinds of a sink's database: its name, the class that declares it, and a URL."""


def url_of(variable: str | None, whose: str = "a sink's", kind: str = "") -> str:
    """Return the URL of a sink's or lookup's database: the platform's own, or the value of an environment variable.

    Raise Refused if it is not set, or not the URL of a database of that kind, one of KINDS; empty: of any.
    """
    if variable is None:
        return settings.database_url()
    url = environment.variable(variable)
    examples = [example for name, (_, _, example) in KINDS.items() if kind in ("", name)]
    if url is None:
        raise Refused(
            f"the environment variable {variable} of {whose} database {environment.why_missing(variable)}",
            data="nothing was read or written",
            hint=f"set {variable} to the database's URL in the environment of the driver, like {' or '.join(examples)}",
        )
    if not _is_known(url):
        raise Refused(
            f"the environment variable {variable} of {whose} database has no URL of PostgreSQL or MySQL",
            data="nothing was read or written",
            hint=f"write it as {', or as '.join(examples)}",
        )
    found = "mysql" if mysql.is_mysql(url) else "postgresql"
    if kind not in ("", found):
        name, declared, _ = KINDS[found]
        raise Refused(
            f"the environment variable {variable} of {whose} database has a URL of {name}",
            data="nothing was read or written",
            hint=f"write it as {examples[0]}; for {name} declare {declared}(…)",
        )
    if not make_url(with_driver(url)).database:
        raise Refused(
            f"the URL in the environment variable {variable} of {whose} database names no database",
            data="nothing was read or written",
            hint=f"write {variable} as {KINDS[found][2]}",
        )
    return url


def _is_known(url: str) -> bool:
    with suppress(ArgumentError, ValueError):
        return bool(make_url(with_driver(url))) and (is_postgres(url) or mysql.is_mysql(url))
    return False


def database_of(variable: str | None, kind: str = "") -> Database:
    """Return a sink's database, or with None the platform's, as a driver and its tasks reach it.

    Raise Refused as `url_of`.

    Tasks use a pooler if a variable of the same name with the suffix `_POOLER` is set.
    """
    url = url_of(variable, kind=kind)
    if variable is None:
        pooler = settings.database_pooler()
    else:
        pooler = None if mysql.is_mysql(url) else environment.variable(f"{variable}_POOLER")
    return Database(url, pooler=pooler, at_once=settings.task_sessions())


def adopt_authority(platform: Database, driver: Driver, authority: str) -> None:
    """Let this driver commit in a sink's own database: note the database in the log, then store the epoch there."""
    there, which = _opened(authority)

    def remember(connection: Connection) -> UUID | None:
        Incarnations(connection).check_epoch(driver.incarnation, driver.epoch)
        Authorities(connection)._remember(Elsewhere(driver.incarnation, authority, which))
        return Authorities(connection).identity()

    ours = run(platform, remember)
    Authorities(there)._tell(driver, authority, ours)


class Authorities(Transactions):
    """The databases in which incarnations may have units."""

    @one_transaction
    def remembered(self, names: list[str]) -> list[Elsewhere]:
        """Return the databases, other than the platform's own, that may have units of some incarnations."""
        return [Elsewhere(*tuple(row)) for row in ask(self.connection, "authorities", "remembered", incarnations=names)]

    @one_transaction
    def fence(self, driver: Driver) -> None:
        """Raise the driver's epoch wherever its incarnation may have units, so that no older driver commits anything.

        The caller holds the epoch in the platform's database, or has just bumped it.
        """
        for one in self.remembered([driver.incarnation]):
            with _told(one):
                there, which = _opened(one.authority)
                self._remember(replace(one, database_id=which))
                ours = self.identity()
                Authorities(there)._tell(driver, one.authority, ours)

    @one_transaction
    def units_elsewhere(self, driver: Driver, batch_id: int) -> list[Unit]:
        """Return the units of a batch that only other databases have.

        Fence older drivers first, so the answer stays true.
        """
        self.fence(driver)
        return self.look(driver.incarnation, batch_id)

    @one_transaction
    def look(self, incarnation: str, batch_id: int) -> list[Unit]:
        """Return the units of a batch that only other databases have at this moment. An older driver may still commit
        more.
        """
        logged = {row.unique_id for row in Units(self.connection).of_batch(incarnation, batch_id)}
        found = []
        for one in self.remembered([incarnation]):
            with _told(one), transaction(Database(url_of(one.authority), "onlyonce-look")) as there:
                _check(one, Authorities(there).identity())
                found += Units(there).of_batch(incarnation, batch_id) if Authorities(there).is_there("units") else []
        return [row for row in found if row.unique_id not in logged]

    @one_transaction
    def refuse_forgotten(self, driver: Driver) -> None:
        """Raise Refused if a sink's own database has newer batches than the log, which was restored from an older
        backup.

        A new incarnation would write the rows of these batches again.
        """
        begun = Incarnations(self.connection).last_batches(driver.incarnation)[0]
        for one in self.remembered([driver.incarnation]):
            with _told(one), transaction(Database(url_of(one.authority), "onlyonce-look")) as there:
                _check(one, Authorities(there).identity())
                rows = (
                    ask(there, "authorities", "newest", incarnation=one.incarnation)
                    if Authorities(there).is_there("units")
                    else []
                )
            newest = rows[0].batch_id if rows else None
            if newest is not None and newest > (-1 if begun is None else begun):
                raise Refused(
                    f"the database of {one.authority} holds batch {newest} of incarnation {one.incarnation}, but the "
                    f"log knows none after {begun}",
                    data="nothing was changed but the epoch; a new incarnation would write the rows of the forgotten "
                    "batches again",
                    hint="PostgreSQL was restored from an older backup: restore it, the tables and the checkpoints "
                    "from one moment",
                )

    @one_transaction
    def settled(self) -> list[tuple[Elsewhere, int]]:
        """Return the databases with units that can be removed, each with the last batch whose units can be."""
        rows = ask(self.connection, "authorities", "settled")
        return [(Elsewhere(row.incarnation, row.authority, row.database_id), row.upto) for row in rows]

    @one_transaction
    def _tell(self, driver: Driver, authority: str, ours: UUID | None) -> None:
        """Store the epoch there, if the incarnation belongs to this platform there. Raise Refused, Superseded."""
        do(self.connection, "authorities", "own", incarnation=driver.incarnation, platform=str(ours))
        if str(ask(self.connection, "authorities", "owner", incarnation=driver.incarnation)[0].platform) != str(ours):
            raise Refused(
                f"the database of {authority} has incarnation {driver.incarnation} of another platform, under the same "
                "name",
                data="nothing was written; the units and rows there are the other platform's",
                hint="give the pipeline another name or its sink another database. If that platform is gone: its "
                "rows, and what onlyonce_private has of the incarnation there, must be deleted first",
            )
        Incarnations(self.connection).adopt(driver, ours)

    def _remember(self, one: Elsewhere) -> None:
        kept = ask(self.connection, "authorities", "remember", **vars(one))[0].database_id
        _check(replace(one, database_id=kept), one.database_id)

    @one_transaction
    def identity(self) -> UUID | None:
        """Return the id of this database; None if its tables are not made yet."""
        if not self.is_there("this_database"):
            return None
        return UUID(str(ask(self.connection, "authorities", "identity")[0].id))

    @one_transaction
    def is_there(self, table: str) -> bool:
        """Return whether a database has one of our tables."""
        return bool(ask(self.connection, "authorities", "is_there", table=table)[0].there)


def remove_units(one: Elsewhere, upto: int, at_once: int) -> int:
    """Remove some units of batches up to one from a sink's own database, and return their number.

    The caller repeats until 0.
    """
    with _told(one), transaction(Database(url_of(one.authority), "onlyonce-collect")) as there:
        _check(one, Authorities(there).identity())
        return do(there, "authorities", "remove_units", incarnation=one.incarnation, upto=upto, at_once=at_once)


def _opened(authority: str) -> tuple[Database, UUID | None]:
    """Return a sink's own database, with the tables for epochs and units made, and its id."""
    there = Database(url_of(authority))
    migrate_authority(there.url)
    return there, Authorities(there).identity()


def _check(one: Elsewhere, there: UUID | None) -> None:
    if one.database_id in (None, there):
        return
    raise Refused(
        f"{one.authority} names another database than the one in which incarnation {one.incarnation} may have units",
        data="nothing was decided or written; what the incarnation has written is in the earlier database",
        hint=f"set {one.authority} to that database (or to a copy of all of it); another target needs another "
        "connection in the declaration, which onlyonce plan judges",
    )


@contextmanager
def _told(one: Elsewhere) -> Iterator[None]:
    """Raise DatabaseAway with the name of the database if it is unreachable."""
    try:
        yield
    except (DatabaseAway, CommitStateUnknown) as error:
        raise DatabaseAway(
            f"the database of {one.authority} may hold units of incarnation {one.incarnation}, and can't be asked: "
            f"{error.what}",
            data="nothing was decided; what is there stays as it is",
            hint=f"run the same command again when the database of {one.authority} answers",
        ) from error
