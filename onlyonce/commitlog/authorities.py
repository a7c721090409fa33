"""The databases in which a lineage may have units: the platform's own, and those of its sinks elsewhere (PostgreSQL,
MySQL).

docs/specification/incarnation.md.

The log notes each database for each lineage, before an epoch is first stored there. The note stays when a later
declaration no longer has that database. Every decision that depends on "is there a unit?" asks all of them, through
this module. The asker's epoch is raised in each of them first, so no older driver can change the answer.

Who calls it: the sinks of tables, the begin of a batch or a backfill, `onlyonce lineage new`, `drop`, `collect`, the
doctor. Errors: a database that can't be asked never counts as "no unit". Refused if a variable is not set, or names
another database than before; DatabaseAway if a database does not answer; Superseded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy import Connection, make_url
from sqlalchemy.exc import ArgumentError

from onlyonce import environment, settings
from onlyonce.commitlog.lineages import Driver, Lineages
from onlyonce.commitlog.units import Unit, Units
from onlyonce.database import mysql
from onlyonce.database.connect import Database, ask, do, run, transaction
from onlyonce.database.migrate import migrate_authority
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.errors import CommitStateUnknown, DatabaseAway, Refused


@dataclass(frozen=True)
class Elsewhere:
    """A database in which a lineage may have units: the variable that names it, and which one it was, where that is
    known."""

    lineage: str
    authority: str
    database_id: UUID | None


def url_of(variable: str | None, whose: str = "a sink's") -> str:
    """The URL of a sink's or lookup's database: the platform's own database, or what an environment variable holds.

    Raises Refused.
    """
    if variable is None:
        return settings.database_url()
    url = environment.variable(variable)
    if url is None:
        raise Refused(
            f"the environment variable {variable} of {whose} database is not set",
            data="nothing was read or written",
            hint=f"set {variable} to the database's URL where the driver runs (in Airflow: by the connection's name)",
        )
    if not _is_known(url):
        raise Refused(
            f"the environment variable {variable} of {whose} database has no URL of PostgreSQL or MySQL",
            data="nothing was read or written",
            hint="write it as postgresql://user:password@host:5432/database, or as mysql://user:password@host:3306/database",
        )
    return url


def _is_known(url: str) -> bool:
    with suppress(ArgumentError, ValueError):
        return make_url(url).drivername in ("postgresql", "postgresql+psycopg2") or mysql.is_mysql(url)
    return False


def database_of(variable: str | None) -> Database:
    """A sink's database, or with None the platform's, as a driver and its tasks reach it. Raises Refused.

    Tasks go through a pooler where the variable of the same name with `_POOLER` behind it has one.
    """
    url = url_of(variable)
    if variable is None:
        pooler = settings.database_pooler()
    else:
        pooler = None if mysql.is_mysql(url) else environment.variable(f"{variable}_POOLER")
    return Database(url, pooler=pooler, at_once=settings.task_sessions())


def adopt(platform: Database, driver: Driver, authority: str) -> None:
    """Make a sink's own database one in which this driver may commit: remembered in the log, then told the epoch
    there."""
    there, which = _opened(authority)

    def remember(connection: Connection) -> UUID | None:
        Lineages(connection).check_epoch(driver.lineage, driver.epoch)
        Authorities(connection)._remember(Elsewhere(driver.lineage, authority, which))
        return Authorities(connection).identity()

    ours = run(platform, remember)
    Authorities(there)._tell(driver, authority, ours)


class Authorities(Transactions):
    """The databases in which lineages may have units."""

    @one_transaction
    def remembered(self, names: list[str]) -> list[Elsewhere]:
        """Where units of some lineages may be beside the platform's own database."""
        return [Elsewhere(*tuple(row)) for row in ask(self.connection, "authorities", "remembered", lineages=names)]

    @one_transaction
    def fence(self, driver: Driver) -> None:
        """Raise the driver's epoch wherever its lineage may have units: no older driver commits anything any more.

        The caller holds the epoch in the platform's database, or has just bumped it.
        """
        for one in self.remembered([driver.lineage]):
            with _told(one):
                there, which = _opened(one.authority)
                self._remember(replace(one, database_id=which))
                ours = self.identity()
                Authorities(there)._tell(driver, one.authority, ours)

    @one_transaction
    def units_elsewhere(self, driver: Driver, batch_id: int) -> list[Unit]:
        """The units of a batch that other databases alone have.

        Fences first, so the answer stays.
        """
        self.fence(driver)
        return self.look(driver.lineage, batch_id)

    @one_transaction
    def look(self, lineage: str, batch_id: int) -> list[Unit]:
        """The same at this moment, without a fence: an older driver may be about to commit more. For who only looks."""
        logged = {row.unique_id for row in Units(self.connection).of_batch(lineage, batch_id)}
        found = []
        for one in self.remembered([lineage]):
            with _told(one), transaction(Database(url_of(one.authority), "onlyonce-look")) as there:
                _check(one, Authorities(there).identity())
                found += Units(there).of_batch(lineage, batch_id) if Authorities(there).is_there("units") else []
        return [row for row in found if row.unique_id not in logged]

    @one_transaction
    def refuse_forgotten(self, driver: Driver) -> None:
        """A log restored from an older backup than a sink's own database: a new life would write again what is
        there."""
        begun = Lineages(self.connection).last_batches(driver.lineage)[0]
        for one in self.remembered([driver.lineage]):
            with _told(one), transaction(Database(url_of(one.authority), "onlyonce-look")) as there:
                _check(one, Authorities(there).identity())
                rows = (
                    ask(there, "authorities", "newest", lineage=one.lineage)
                    if Authorities(there).is_there("units")
                    else []
                )
            newest = rows[0].batch_id if rows else None
            if newest is not None and newest > (-1 if begun is None else begun):
                raise Refused(
                    f"the database of {one.authority} holds batch {newest} of lineage {one.lineage}, but the log knows "
                    f"none after {begun}",
                    data="nothing was changed but the epoch; a new life would write the rows of the forgotten batches "
                    "again",
                    hint="PostgreSQL was restored from an older backup: restore it, the tables and the checkpoints "
                    "from one moment",
                )

    @one_transaction
    def settled(self) -> list[tuple[Elsewhere, int]]:
        """Where units may be that nobody asks for any more, each with the last batch of which that is so."""
        rows = ask(self.connection, "authorities", "settled")
        return [(Elsewhere(row.lineage, row.authority, row.database_id), row.upto) for row in rows]

    @one_transaction
    def _tell(self, driver: Driver, authority: str, ours: UUID | None) -> None:
        """Tell the epoch, if the lineage is this platform's there. Raises Refused, Superseded."""
        do(self.connection, "authorities", "own", lineage=driver.lineage, platform=str(ours))
        if str(ask(self.connection, "authorities", "owner", lineage=driver.lineage)[0].platform) != str(ours):
            raise Refused(
                f"the database of {authority} has lineage {driver.lineage} of another platform, under the same name",
                data="nothing was written; the units and rows there are the other platform's",
                hint="give the pipeline another name or its sink another database. If that platform is gone: its "
                "rows, and what "
                "onlyonce_private has of the lineage there, must go first",
            )
        Lineages(self.connection).adopt(driver)

    def _remember(self, one: Elsewhere) -> None:
        kept = ask(self.connection, "authorities", "remember", **vars(one))[0].database_id
        _check(replace(one, database_id=kept), one.database_id)

    @one_transaction
    def identity(self) -> UUID | None:
        """Which database this is; None if its tables are not made yet."""
        if not self.is_there("this_database"):
            return None
        return UUID(str(ask(self.connection, "authorities", "identity")[0].id))

    @one_transaction
    def is_there(self, table: str) -> bool:
        """Whether a database has one of our tables."""
        return bool(ask(self.connection, "authorities", "is_there", table=table)[0].there)


def remove_units(one: Elsewhere, upto: int, at_once: int) -> int:
    """Remove units of batches up to one from a sink's own database, some at a time; gives their number.

    Again until 0.
    """
    with _told(one), transaction(Database(url_of(one.authority), "onlyonce-collect")) as there:
        _check(one, Authorities(there).identity())
        return do(there, "authorities", "remove_units", lineage=one.lineage, upto=upto, at_once=at_once)


def _opened(authority: str) -> tuple[Database, UUID | None]:
    """A sink's own database, with the tables for epochs and units, and which one it is."""
    there = Database(url_of(authority))
    migrate_authority(there.url)
    return there, Authorities(there).identity()


def _check(one: Elsewhere, there: UUID | None) -> None:
    if one.database_id in (None, there):
        return
    raise Refused(
        f"{one.authority} names another database than the one in which lineage {one.lineage} may have units",
        data="nothing was decided or written; what the lineage has written is in the earlier database",
        hint=f"set {one.authority} to that database (or to a copy of all of it); another target needs another "
        "connection "
        "in the declaration, which onlyonce plan judges",
    )


@contextmanager
def _told(one: Elsewhere) -> Iterator[None]:
    """Whose database it is that does not answer."""
    try:
        yield
    except (DatabaseAway, CommitStateUnknown) as error:
        raise DatabaseAway(
            f"the database of {one.authority} may hold units of lineage {one.lineage}, and can't be asked: "
            f"{error.what}",
            data="nothing was decided; what is there stays as it is",
            hint=f"run the same command again when the database of {one.authority} answers",
        ) from error
