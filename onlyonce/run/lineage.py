"""Entry point: begin a new life of a query whose checkpoint is lost, swapped or damaged.

Refusals name this command as the way out.

Receive goes on from the logged offsets. An output reads `events` from the first row of its oldest open window, and
leaves out windows that are final by the log. An output that keeps totals reads all of `events`. No Spark: the next run
makes the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.commitlog import authorities, lineages, turns
from onlyonce.commitlog.authorities import Authorities
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.new_lives import Begun, NewLives
from onlyonce.commitlog.operate.removals import Removals
from onlyonce.database.connect import Database
from onlyonce.declare import loading as declarations
from onlyonce.declare.outputs.stateful import ANEW
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.report import Report
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import (
    BATCH_NO,
    SOURCE_BATCH_NO,
)
from onlyonce.run import from_start, kept_start, withdraw
from onlyonce.sources.files import listing
from onlyonce.storage import log_entries, opening


def new(target: str, *, yes: bool = False, start: dict[str, Any] | None = None, from_kept: bool = False) -> Report:
    """Close the live lineage of INSTANCE/QUERY and register the next. Raises Refused.

    Without `yes` it only says what it would do. Drivers of the old life are fenced first, in each database in which
    they may commit; DatabaseAway where one does not answer. `start` is what a changed declaration asks of the new life
    beside what the log says (`onlyonce.operate.change.plan`). `from_kept`: where `events` has no beginning any more,
    what is kept will do (`kept_start`).
    """
    instance, _, query = target.strip("/").partition("/")
    start = from_start.asked(instance, query, start)
    database = authorities.database_of(None)
    if from_kept and (first := kept_start.first(database, target, yes=yes)):
        return first
    old = NewLives(database).old(instance, query)
    if query == "receive":
        _refuse_forgotten(database, instance, old.lineage)
    plan = NewLives(database).begins_at(instance, query, old.lineage, start)
    if from_kept:
        start = (start or {}) | kept_start.of(instance, query, Removals(database).kept_from(instance), plan)
        plan = (plan or {}) | start
    Removals(database).refuse_life(instance, query, plan)
    facts = {"instance": instance, "query": query, "old": old.lineage, "starts from": str(plan or "the beginning")}
    if not yes:
        return Report(f"{target}: what a new life would do (add --yes)", "dry run", facts)
    driver = Lineages(database).bump(old, "lineage new")
    Authorities(database).refuse_forgotten(driver)
    Authorities(database).fence(driver)
    if query == "receive":
        _fence_events(database, instance, driver)
    else:
        _settle_outputs(database, driver, instance, query, anew=ANEW in (start or {}))
    made = NewLives(database).begin(instance, query, driver, start)
    return Report(f"{target}: a new life", "lineage new", facts | {"new": made})


def _refuse_forgotten(database: Database, instance: str, lineage: str) -> None:
    """A log restored from an older backup than `events`: a new life would take in again what is there."""
    path = settings.data_location(instance) / stored_names.EVENTS_FOLDER
    there = (
        opening.table(path).transaction_version(stored_names.transaction(lineage, stored_names.EVENTS_BY))
        if log_entries.any_in(path)
        else None
    )
    begun = Lineages(database).last_batches(lineage)[0]
    if there is not None and there > (-1 if begun is None else begun):
        raise Refused(
            f"the table {path} holds batch {there} of lineage {lineage}, but the log knows none after {begun}",
            data="nothing was changed; a new life would write the records of the forgotten batches again",
            hint="PostgreSQL was restored from an older backup: restore it, the tables and the checkpoints from "
            "one moment",
        )


def _settle_outputs(database: Database, driver: lineages.Driver, instance: str, query: str, *, anew: bool) -> None:
    """A batch that began and did not end: finished where its sinks hold what a new life would write once more, else
    made ready to be withdrawn; always where the new life takes all rows out of the target."""
    for row in NewLives(database).begun(driver.lineage):
        left = withdraw.left(instance, NewLives(database).left(driver, instance, query, row.batch_id))
        staying = [one.sink for one in left if one.must_stay and not anew and withdraw.is_written(one, row.batch_id)]
        if staying:
            _finish_output(database, driver, instance, query, row.batch_id)
            continue
        for one in left:
            if one.table is not None and not withdraw.is_written(one, row.batch_id):
                withdraw.take_all(one.table, one.app_id, row.batch_id)


def _finish_output(database: Database, driver: lineages.Driver, instance: str, query: str, batch_id: int) -> None:
    """Rows of it are where a new life would write them once more: what is missing of it is written too, and it ends."""
    from onlyonce.context.query import Query
    from onlyonce.context.run_context import RunContext
    from onlyonce.outputs.windows import finishing
    from onlyonce.session import session

    pipeline = declarations.one(instance.partition("@")[0])
    root = pipeline.output(query)
    old = NewLives(database).old(instance, query)
    context = RunContext(
        session.start(f"onlyonce lineage new {instance}/{query}"), pipeline, instance, driver.run_id, database
    )
    finishing.finish(
        context, Query(driver, context.folder, driver.session(database), old.start_from or {}), root, batch_id
    )


def _fence_events(database: Database, instance: str, driver: lineages.Driver) -> None:
    """Take the transaction of a begun receive batch, so that a zombie's Delta commit can't land any more.

    If the commit is there already, the batch is not withdrawn but ended.
    """
    path = settings.data_location(instance) / stored_names.EVENTS_FOLDER
    app_id = stored_names.transaction(driver.lineage, stored_names.EVENTS_BY)
    for row in NewLives(database).begun(driver.lineage):
        if withdraw.holds(path, app_id, row.batch_id):
            _finish(database, driver, row, opening.table(path), path)
        else:
            withdraw.take(path, app_id, row.batch_id)


def _finish(database: Database, driver: lineages.Driver, row: Begun, table: DeltaTable, path: Location) -> None:
    """The rows of a begun receive batch are in `events`, and all units that it has in the log: end it."""
    found = Batches(database).find_begun(driver.lineage, row.batch_id)
    unit = f'"{driver.lineage}/{row.batch_id}/events"'
    version = next(int(e["version"]) for e in table.history() if unit in str(e.get("userMetadata")))
    must = _must(path.parent, row.source_to, found.plan.facts)
    if found.without_catalog:
        from onlyonce.receive import at_least_once

        at_least_once.end(database, driver, found, path, must, version)
        return
    read = must(Batches(database).fated(found.plan))
    Batches(database).end_receive(driver, found, read, version, bounded=False)


def _must(folder: Location, source_to: dict[str, Any], facts: dict[str, Any]) -> Callable[[int], int]:
    """How many records a batch must have, given how many have a fate.

    Of a topic the offsets are the most that there can be: without Spark nobody counts the gaps that transactions leave.
    """
    if stored_names.OFFSETS in source_to:
        most = int(source_to[stored_names.LINES]) + int(source_to.get(stored_names.LOST, 0)) + len(facts)
        return lambda fated: min(fated, most)
    of_source = turns.SOURCE in source_to
    registry = folder / stored_names.SOURCES_FOLDER / source_to[turns.SOURCE] if of_source else folder
    read = _records(
        registry / stored_names.FILES_MANIFEST, int(source_to[SOURCE_BATCH_NO if of_source else BATCH_NO]), facts
    )
    return lambda _: read


def _records(registry: Location, batch_no: int, unreadable: dict[str, Any]) -> int:
    """How many records a batch of the registry must have."""
    files = opening.table(registry).to_pyarrow_table(columns=["path", "lines"], filters=[(BATCH_NO, "=", batch_no)])
    return listing.records(((row["path"], row["lines"]) for row in files.to_pylist()), unreadable)
